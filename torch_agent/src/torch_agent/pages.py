"""Reads the pages of shared memory that training processes write (harness/page.py), by the layouts of layouts.py."""

from __future__ import annotations

import math
import re
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from libs.contracts.placement import LaunchTask
from libs.kernel.launchers import PER_GPU
from torch_agent.harness.page import (
    BODY_AT,
    HEAD,
    MAGIC,
    SEQUENCE,
    SEQUENCE_AT,
    SIZE,
    Acknowledged,
    Gate,
    Handover,
    Memory,
    PageReading,
)
from torch_agent.harness.regular import regular
from torch_agent.harness.versions import UnknownVersion
from torch_agent.layouts import LAYOUTS
from torch_agent.listing import listed
from torch_agent.once import warn_once
from torch_agent.processes import lives

TRIES, PAUSE_S = 100, 0.0005
PID = struct.Struct("<I")
"""At the beginning of the body, in all versions."""
FIRST_MINIBATCHES = 3
"""After so many a script that is distributed has formed its process group."""
PAGE = re.compile(r".*\.page")
MOST_PAGES = 4096
"""Of a task on one node, those of processes that have ended included."""


def read_page(path: Path) -> PageReading | None:
    """The agent's side of a page.

    Returns:
        What the process wrote last; None when it has written nothing yet, was killed in the middle of writing, or
        the script has written something impossible.

    Raises:
        UnknownVersion: newer code has written the page.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            for _ in range(TRIES):
                file.seek(0)
                data = file.read(SIZE)
                if not _is_begun(data):
                    return None
                file.seek(SEQUENCE_AT)
                if _is_whole(data) and file.read(SEQUENCE.size) == data[SEQUENCE_AT : SEQUENCE_AT + SEQUENCE.size]:
                    return _parse(path, data)
                time.sleep(PAUSE_S)
    except OSError:
        return None
    return None


@dataclass(frozen=True)
class Living:
    """What the living processes of a task say."""

    pages: list[PageReading]
    """By rank."""
    unread: bool
    """Whether another process is still there, and has a page: it cannot be read at this moment.

    A busy machine may keep a process from going on for longer than a reader waits, in the middle of its writing. Beside
    a page of an unknown version none is read at any moment (`pages`), and none is waited for.
    """


def pages(folder: Path) -> list[PageReading]:
    """What the ranks of a task last wrote, by rank.

    Empty, with a warning, where a rank has a page of an unknown version: what the other ranks say is not the task's.
    """
    read, _ = _looked_at(folder)
    return read


def living_pages(folder: Path) -> list[PageReading]:
    """Those of processes that are still there."""
    return _of_the_living(pages(folder))


def living(folder: Path) -> Living:
    """The same, and whether they are all that living processes have, from one listing of the folder."""
    read, unreadable = _looked_at(folder)
    found = _of_the_living(read)
    return Living(found, _any_lives(unreadable, besides={page.pid for page in found}))


def are_all_there(living: list[PageReading], order: LaunchTask) -> bool:
    """Whether every rank of the task has a page.

    A launcher starts as many as its own options say; then the ranks know how many they are, over all nodes.
    """
    if order.launcher == PER_GPU:
        return len(living) >= len(order.gpu_indices)
    return bool(living) and len(living) >= living[0].world_size // order.node_count


def ranks_apart(living: list[PageReading], order: LaunchTask) -> int:
    """How many processes train side by side without a process group, over all nodes; 0: they do not, or not yet."""
    if not are_all_there(living, order) or living[0].world_size < 2:
        return 0
    apart = all(page.group_size == 1 and page.minibatches_total >= FIRST_MINIBATCHES for page in living)
    return living[0].world_size if apart else 0


def minibatches_done(folder: Path) -> int:
    """Mini-batches of the slowest rank; 0 when no rank had the harness."""
    return min((reading.minibatches_total for reading in pages(folder)), default=0)


def _looked_at(folder: Path) -> tuple[list[PageReading], list[Path]]:
    """Readings of pages, by rank, and the pages that cannot be read at this moment; of unknown versions see `pages`."""
    read, unreadable = [], []
    try:
        for path in listed(folder, PAGE, MOST_PAGES):
            if (reading := read_page(path)) is not None:
                read.append(reading)
            else:
                unreadable.append(path)
    except UnknownVersion as error:
        warn_once(f"{error}: the task goes on, its mini-batches are not counted, it is suspended with its memory")
        return [], []
    return sorted(read, key=lambda reading: reading.rank), unreadable


def _of_the_living(read: list[PageReading]) -> list[PageReading]:
    return [page for page in read if lives(page.pid)]


def _any_lives(unreadable: list[Path], besides: set[int]) -> bool:
    """Whether a process other than these has written one of these pages, and is still there."""
    try:
        writers = [_writer(path) for path in unreadable]
    except UnknownVersion:
        return False
    return any(pid not in besides and lives(pid) for pid in writers if pid is not None)


def _writer(path: Path) -> int | None:
    """The process that has written a page, also while it writes; None: there is none.

    Raises:
        UnknownVersion: the page is of newer code.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            data = file.read(SIZE)
    except OSError:
        return None
    if not _is_begun(data):
        return None
    version = HEAD.unpack_from(data)[1]
    if version not in LAYOUTS:
        raise UnknownVersion(path, "a page", version, LAYOUTS)
    return int(PID.unpack_from(data, BODY_AT)[0])


def _is_begun(data: bytes) -> bool:
    written = len(data) == SIZE and data.startswith(MAGIC)
    return written and SEQUENCE.unpack_from(data, SEQUENCE_AT) != (0,)


def _is_whole(data: bytes) -> bool:
    return data[SEQUENCE_AT] % 2 == 0  # the lowest byte of a little-endian number


def _parse(path: Path, data: bytes) -> PageReading | None:
    _, version = HEAD.unpack_from(data)
    layout = LAYOUTS.get(version)
    if layout is None:
        raise UnknownVersion(path, "a page", version, LAYOUTS)
    try:
        body = layout.body.read(data)
        acknowledged = (
            Acknowledged(**layout.acknowledged.read(data)) if layout.acknowledged is not None else Acknowledged()
        )
        handover = Handover(**layout.handover.read(data)) if layout.handover is not None else Handover()
        memory = Memory(**layout.memory.read(data)) if layout.memory is not None else None
        gate = Gate(**layout.gate.read(data)) if layout.gate is not None else None
        parts = [part for part in (layout.meeting, layout.rhythm, layout.signs) if part is not None]
        further = {name: value for part in parts for name, value in part.read(data).items()}
    except ValueError as error:
        warn_once(f"{path}: a page with an impossible value, {error}: it is not read")
        return None
    loss = body.pop("loss")
    return PageReading(
        **body,
        **further,
        loss=None if math.isnan(loss) and not further.get("nonfinite") else loss,
        acknowledged=acknowledged,
        handover=handover,
        memory=memory,
        gate=gate,
        listens=layout.acknowledged is not None,
    )
