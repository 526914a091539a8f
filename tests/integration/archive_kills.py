"""`python -m tests.integration.archive_kills FOLDER`: archiving is killed at every step, and done again.

Each run is a process of its own, forked from this one, and ended with SIGKILL at the n-th moment: before and after
what changes a file, and in the middle of a file, the first two times that each of these happens. One line of JSON
per moment goes to standard output.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libs.bus.connect import connect
from libs.bus.embedded import remover, transactions
from libs.bus.naming import CONTROL
from libs.contracts.base import Topic
from libs.inspect.archive import archive, files, give_back, writing
from libs.inspect.archive.reading import Archive
from tests.unit.inspect.archived_cell import filled, told, verified
from tests.unit.inspect.small_cell import messages

BEFORE = 40
TIMES = 2
STARTS = {"placement": BEFORE}
NODE = next(message.key for message in messages() if message.partition.topic is Topic.ORDERS)
STEPS = (
    (writing, "write_lines"),
    (writing, "write_table"),
    (writing, "write_manifest"),
    (files.os, "replace"),
    (remover.Remover, "_note"),
    (remover.Remover, "_remove_some"),
    (remover.Remover, "_shrink"),
    (transactions.Transactions, "_commit"),
)


class Moments:
    """Kills this process at one of the moments that it comes to."""

    def __init__(self, last: int, report: Path) -> None:
        self._last, self._report, self._count = last, report, 0
        self._times: Counter[str] = Counter()

    def is_last(self, name: str) -> bool:
        """Whether the moment that comes is the one."""
        return self._count == self._last and self._times[name] < TIMES

    def come(self, name: str) -> None:
        """One moment more."""
        if self.is_last(name):
            self._report.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += self._times[name] < TIMES
        self._times[name] += 1

    def around(self, owner: Any, name: str) -> None:
        """A moment before and one after each call of a step."""
        step = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.come(f"before {name}")
            result = step(*arguments, **named)
            self.come(f"after {name}")
            return result

        setattr(owner, name, watched)

    def amid(self, name: str) -> None:
        """A moment when a file of the archive has its first bytes."""
        step = getattr(writing, name)

        def watched(log: Any, out: Any) -> Any:
            if self.is_last(f"amid {name}"):
                file = out.open("wb") if isinstance(out, Path) else out
                file.write(b"x" * 1000)
                file.flush()
            self.come(f"amid {name}")
            return step(log, out)

        setattr(writing, name, watched)


def seen(path: Path) -> tuple[Any, ...]:
    """What the audit says, and the story of a node with orders."""
    return verified(str(path)), told(str(path), NODE)


async def archived(path: Path) -> Archive:
    """Archive and give back."""
    bus = await connect(f"sqlite:///{path}", "lab")
    try:
        opened = await archive(bus, path.with_name("archive"), BEFORE, contiguous=True)
        await give_back(bus, opened, BEFORE, STARTS)
        assert await bus.begin_offset(CONTROL) == BEFORE
        return opened
    finally:
        await bus.close()


def archived_until(moment: int, path: Path) -> None:
    """Archive, and die at a moment."""
    moments = Moments(moment, path.with_name("killed"))
    for owner, name in STEPS:
        moments.around(owner, name)
    moments.amid("write_jsonl")
    moments.amid("write_parquet")
    asyncio.run(archived(path))


def checked(path: Path, expected: tuple[Any, ...]) -> None:
    """What is there after the kill is the whole log; so it is when archiving was done again."""
    assert seen(path) == expected, "the log after the kill tells something else"
    asyncio.run(archived(path)).check()
    assert seen(path) == expected, "the log after archiving again tells something else"
    unfinished = [file.name for file in path.with_name("archive").iterdir() if file.name.endswith(files.UNFINISHED)]
    assert unfinished == [], f"left over: {unfinished}"


def forked(work: Callable[[], None]) -> int:
    """Do work in a process of its own; its wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def main(folder: Path) -> int:
    """Kill at one moment after the other until a run comes to its end."""
    writing.SEGMENT_RECORDS, remover.MESSAGES_PER_TRANSACTION = 16, 15
    original = folder / "log.db"

    async def fill() -> None:
        await (await filled(f"sqlite:///{original}")).close()

    assert forked(lambda: asyncio.run(fill())) == 0
    expected = seen(original)
    for moment in itertools.count():
        path = folder / str(moment) / "log.db"
        path.parent.mkdir()
        shutil.copy(original, path)
        status = forked(lambda path=path, moment=moment: archived_until(moment, path))  # type: ignore[misc]
        if status == 0:
            return 0
        if not os.WIFSIGNALED(status) or forked(lambda path=path: checked(path, expected)) != 0:  # type: ignore[misc]
            return 1
        print(json.dumps({"moment": moment, "at": path.with_name("killed").read_text()}), flush=True)
    raise AssertionError("there is always an end")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
