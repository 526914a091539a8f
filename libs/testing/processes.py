"""Service processes of a test, started as a supervisor would, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from libs.bus import codec
from libs.bus.port import Bus
from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.kernel.ids import request_id

ROOT = Path(__file__).parents[2]


def outside_the_clone(folder: Path, **further: str) -> dict[str, str]:
    """The environment of a user: nothing of this clone, and a home of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SANJAYA_", "KAFKA_"))}
    return {**kept, "HOME": str(folder / "home"), **further}


class Processes:
    """Starts `python -m …` with the environment of one cell."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._all: list[Process] = []

    async def start(self, *arguments: str, **environment: str) -> Process:
        """A new process; its stderr is a pipe."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *arguments,
            cwd=ROOT,
            env={**os.environ, **self._environment, **environment},
            stderr=asyncio.subprocess.PIPE,
        )
        self._all.append(process)
        return process

    async def kill_all(self) -> None:
        """Kill what still runs."""
        for process in self._all:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def live(process: Process) -> None:
    """Wait until a core's shell says that it works."""
    assert process.stderr is not None
    while b"msg=live" not in (line := await process.stderr.readline()):
        assert line, "the process ended"


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 200.0) -> None:
    """Wait for another process, which has no event that could be awaited here."""
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.1)  # a condition may read a whole log


async def give(bus: Bus, first: int, events: Sequence[Event]) -> None:
    """Append facts; ids and times follow from their number, counted from `first`."""
    envelopes = [
        Envelope(id=request_id("test", str(number)), source="test", time_s=float(number), event=event)
        for number, event in enumerate(events, first)
    ]
    await bus.append([codec.outgoing(envelope) for envelope in envelopes])


@contextmanager
def agent_process(
    node_id: str, state_dir: Path, *arguments: str, environment: Mapping[str, str] | None = None, within_s: float = 60.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent with two virtual GPUs; it ends in order, and not before, unless it is killed and waited for.

    Args:
        node_id: of its node.
        state_dir: its own; what it logs is beside it.
        arguments: how it reaches the log, and more.
        environment: beside this process's own, of which it has no setting of Sanjaya.
        within_s: most time from SIGTERM to its end.
    """
    own = ["--node-id", node_id, "--state-dir", str(state_dir), "--virtual-gpus", "2"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SANJAYA_")}
    log = state_dir.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "torch_agent.service", *own, *arguments],
            env=inherited | dict(environment or {}),
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(within_s) == 0, log.read_text()
