"""Reads the pages of shared memory that training processes write (harness/page.py), of every version there has been.

A process keeps the harness that it was started with. An agent of newer code therefore meets pages of older versions,
and reads each by the layout of its version. The first 16 bytes are the same in all versions, for ever: the magic
number, the version, and the sequence number that tells a whole page from one that is being written; so is the size.
"""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
LARGEST = 1 << 53
"""No count and no number of bytes on a page is larger; the page lies in reach of the script, which may write there."""


@dataclass(frozen=True)
class Part:
    """One part of a page: where it begins, its values, and their names in the same order; `_` names padding."""

    at: int
    values: struct.Struct
    names: tuple[str, ...]

    def read(self, data: bytes) -> dict[str, Any]:
        """{name: value}.

        Raises:
            ValueError: a value is not possible.
        """
        found = dict(zip(self.names, self.values.unpack_from(data, self.at), strict=True))
        found.pop("_", None)
        for name, value in found.items():
            if name != "loss" and not (math.isfinite(value) and abs(value) <= LARGEST):
                raise ValueError(f"{name} is {value}")
        return found


@dataclass(frozen=True)
class Layout:
    """Where a version of the page has what; None: that version does not have the part."""

    body: Part
    acknowledged: Part | None = None
    handover: Part | None = None
    meeting: Part | None = None
    rhythm: Part | None = None
    signs: Part | None = None
    memory: Part | None = None
    gate: Part | None = None


_BODY = Part(
    16,
    struct.Struct("<IiiIQdddQQ"),
    (
        "pid",
        "rank",
        "world_size",
        "_",
        "minibatches_total",
        "last_boundary_s",
        "minibatch_mean_s",
        "loss",
        "memory_peak_bytes",
        "memory_min_bytes",
    ),
)
_ACKNOWLEDGED = Part(
    512,
    struct.Struct("<QQQddd"),
    ("turn", "bytes_parked", "bytes_left", "park_s", "unpark_s", "parked_at_s"),
)
_HANDOVER_3 = Part(
    1024,
    struct.Struct("<???Q?iQdd"),
    ("movable", "ready", "restored", "saved", "save_failed", "save_fd", "save_bytes", "save_s", "load_s"),
)
_HANDOVER_4 = Part(1024, struct.Struct("<???Q?iQdd?"), (*_HANDOVER_3.names, "resizable"))
_MEETING = Part(2048, struct.Struct("<I"), ("group_size",))
_RHYTHM = Part(2560, struct.Struct("<dI"), ("p99_s", "nonfinite"))
_SIGNS = Part(3072, struct.Struct("<Q"), ("signs",))
_MEMORY = Part(
    3200,
    struct.Struct("<QQQQQQ"),
    ("applied", "device_bytes", "cached_bytes", "host_bytes", "minibatch_host_bytes", "demand_bytes"),
)
_GATE = Part(
    3584,
    struct.Struct("<QdddQ"),
    ("gates", "spacing_p99_s", "closed_s", "last_minibatch_s", "closed_minibatches"),
)

LAYOUTS: dict[int, Layout] = {
    1: Layout(_BODY),
    2: Layout(_BODY, _ACKNOWLEDGED),
    3: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_3),
    4: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4),
    5: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING),
    6: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS),
    7: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS, _MEMORY, _GATE),
}
"""{version: layout}. A row never changes; a change to harness/page.py is a new version, and a row more."""


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


def pages(folder: Path) -> list[PageReading]:
    """What the ranks of a task last wrote, by rank.

    Empty, with a warning, where a rank has a page of an unknown version: what the other ranks say is not the task's.
    """
    try:
        return sorted(_readings(folder), key=lambda reading: reading.rank)
    except UnknownVersion as error:
        warn_once(f"{error}: the task goes on, its mini-batches are not counted, it is suspended with its memory")
        return []


def living_pages(folder: Path) -> list[PageReading]:
    """Those of processes that are still there."""
    return [page for page in pages(folder) if lives(page.pid)]


def is_unread(folder: Path, living: list[PageReading]) -> bool:
    """Whether another process than these is still there, and has a page: it cannot be read at this moment.

    A busy machine may keep a process from going on for longer than a reader waits, in the middle of its writing. Beside
    a page of an unknown version none is read at any moment (`pages`), and none is waited for.
    """
    read = {page.pid for page in living}
    try:
        written = [_writer(path) for path in listed(folder, PAGE, MOST_PAGES)]
    except UnknownVersion:
        return False
    return any(pid not in read and lives(pid) for pid in written if pid is not None)


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


def _readings(folder: Path) -> Iterator[PageReading]:
    for path in listed(folder, PAGE, MOST_PAGES):
        if (reading := read_page(path)) is not None:
            yield reading


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
