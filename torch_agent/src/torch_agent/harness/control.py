"""What the agent wants of a task's processes: a few numbers in a file that they all have mapped.

The first is a turn: odd means "suspend", even means "run". The second counts requests to save the job's state while
standing still. The agent alone writes, by adding one; a process says on its page which turn it has acknowledged last,
and which request it has answered. Eight aligned bytes are written and read at once: no reader sees half a number.

The others say what the task may have of its GPUs: its role, its memory on each, its share of the time. Each change has
a number, which is written last: a process that reads the number first has at least what belongs to it. The limit of the
memory counts from the next mini-batch boundary on, role and share at once.

The agent makes the file before it starts the processes, in the layout that they know, and it stays in that layout: an
agent of newer code writes into it where its version has the numbers. The mark of the version is at 16 in all versions,
for ever; files of the versions 1 and 2 have none and are known by their sizes.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from .allowance import NUMBER, Allowance, AllowanceAt, Content, number
from .regular import regular
from .versions import UnknownVersion, Unreadable

NAME = "control"
MARK = struct.Struct("<4sI")
MARK_AT = 16
MAGIC, VERSION = b"SJCP", 5


@dataclass(frozen=True)
class Layout:
    """Where a version of the file has its numbers."""

    size: int
    turn_at: int
    saves_at: int | None
    """None: processes of that version save nothing."""
    allowance: AllowanceAt | None = None
    """None: they know neither roles nor limits nor shares."""


LAYOUTS = {
    1: Layout(size=8, turn_at=0, saves_at=None),
    2: Layout(size=16, turn_at=0, saves_at=8),
    3: Layout(size=24, turn_at=0, saves_at=8),
    4: Layout(size=64, turn_at=0, saves_at=8, allowance=AllowanceAt(24)),
    5: Layout(size=192, turn_at=0, saves_at=8, allowance=AllowanceAt(24, places_at=56)),
}
"""{version: layout}. A row never changes; a change to the file is a new version, and a row more."""
LARGEST = max(layout.size for layout in LAYOUTS.values())
_UNMARKED = {LAYOUTS[version].size: version for version in (1, 2)}


def suspends(turn: int) -> bool:
    """Whether this turn is one of standing still."""
    return turn % 2 == 1


class ControlReader:
    """The training process's side; about a tenth of a microsecond per look."""

    def __init__(self, folder: str, place: int | None = None) -> None:
        """Map the file, if there is one.

        Args:
            folder: of the task's pages.
            place: of this process's GPU among the task's; None: it is not known, or there are several.

        Raises:
            Unreadable: newer code has made it, or it is no control file.
        """
        self._map: mmap.mmap | None = None
        self._place = place
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            layout = _layout(path, self._map)
            self._turn_at, self._saves_at, self._allowance = layout.turn_at, layout.saves_at, layout.allowance

    @property
    def turn(self) -> int:
        """The turn in force; 0 where no agent controls this process."""
        return 0 if self._map is None else number(self._map, self._turn_at)

    @property
    def saves(self) -> int:
        """How many requests to save there have been."""
        return 0 if self._map is None or self._saves_at is None else number(self._map, self._saves_at)

    @property
    def change(self) -> int:
        """Number of the last change of what the task may have; 0: there was none. To be read before the others."""
        return 0 if self._map is None or self._allowance is None else self._allowance.change(self._map)

    @property
    def allowance(self) -> Allowance:
        """What the task may have; all of it where no agent says anything else."""
        return Allowance() if self._map is None or self._allowance is None else self._allowance.read(self._map)

    @property
    def limit_bytes(self) -> int | None:
        """Of this process's memory; None: it has no limit."""
        return None if self._map is None or self._allowance is None else self._allowance.limit(self._map, self._place)

    @property
    def tells_shares(self) -> bool:
        """Whether there is a file, of a version that knows roles, limits and shares."""
        return self._map is not None and self._allowance is not None

    @property
    def share_ratio(self) -> float:
        """That part of it alone: gates look at it each time."""
        return 1.0 if self._map is None or self._allowance is None else self._allowance.share(self._map)

    @property
    def suspends(self) -> bool:
        """Whether the turn in force is one of standing still."""
        return suspends(self.turn)


def create_control(folder: Path) -> None:
    """The agent's side, before it starts the processes; what is there already stays."""
    if not (folder / NAME).exists():
        _create(folder)


def mend_control(folder: Path) -> bool:
    """Put a new file in the place of what the task has made of it; one that can be read, or is of newer code, stays.

    The task's processes hear no more, but what paces them from outside does. Returns whether there is a new one.

    Raises:
        OSError: a folder is there, which stays, too.
    """
    path = folder / NAME
    try:
        _layout(path, _content(path))
    except UnknownVersion:
        return False
    except (Unreadable, OSError):
        _create(folder)
        return True
    return False


def _create(folder: Path) -> None:
    content = bytearray(LAYOUTS[VERSION].size)
    MARK.pack_into(content, MARK_AT, MAGIC, VERSION)
    _allowance_at(folder / NAME, content).write(content, Allowance())
    part = folder / f"{NAME}.part"
    with open(part, "wb", opener=regular) as file:
        file.write(content)
    part.chmod(0o600)
    part.rename(folder / NAME)


def turn_to(folder: Path, *, suspend: bool) -> None:
    """Begin a turn of standing still or of running, unless such a turn is in force.

    Raises:
        Unreadable: newer code has made the file, or it is no control file; it stays as it is.
    """
    create_control(folder)
    turn = current_turn(folder)
    if suspends(turn) != suspend:
        _write(folder, _layout_of(folder).turn_at, turn + 1)


def current_turn(folder: Path) -> int:
    """The turn in force; 0 when the file is gone with its task.

    Raises:
        Unreadable: newer code has made the file, or it is no control file.
    """
    path = folder / NAME
    try:
        data = _content(path)
    except FileNotFoundError:
        return 0
    return number(data, _layout(path, data).turn_at)


def ask_to_save(folder: Path) -> int:
    """Have processes that stand still save the job's state. Returns the request's number.

    It lapses if they are told to go on before they have answered it.

    Raises:
        Unreadable: newer code has made the file, or code that is too old to save anything; or it is no control file.
    """
    create_control(folder)
    path = folder / NAME
    data = _content(path)
    saves_at = _layout(path, data).saves_at
    if saves_at is None:
        raise Unreadable(f"{path}: a control file of version 1, with processes that save no state; expected 2 or later")
    request = number(data, saves_at) + 1
    _write(folder, saves_at, request)
    return request


def allow(folder: Path, what: Allowance) -> int:
    """Have the task's processes keep to this, unless they do. Returns the number of the change that says it.

    Raises:
        Unreadable: newer code has made the file, or code whose processes know no limits; or it is no control file.
    """
    create_control(folder)
    before = _content(folder / NAME)
    at = _allowance_at(folder / NAME, before)
    content, change = bytearray(before), at.change(before)
    at.write(content, what)
    if content == before:
        return change
    behind = at.at + NUMBER.size
    _write_bytes(folder, behind, bytes(content[behind:]))
    _write(folder, at.at, change + 1)
    return change + 1


def current_allowance(folder: Path) -> tuple[int, Allowance]:
    """The number of the last change, and what the task may have since then.

    Raises:
        Unreadable: newer code has made the file, or code whose processes know no limits; or it is no control file.
        FileNotFoundError: it is gone with its task, or not there yet.
    """
    data = _content(folder / NAME)
    at = _allowance_at(folder / NAME, data)
    return at.change(data), at.read(data)


def _allowance_at(path: Path, data: Content) -> AllowanceAt:
    at = _layout(path, data).allowance
    if at is None:
        raise Unreadable(f"{path}: a control file of processes that know no limits; expected version 4 or later")
    return at


def _layout_of(folder: Path) -> Layout:
    path = folder / NAME
    return _layout(path, _content(path))


def _content(path: Path) -> bytes:
    with open(path, "rb", opener=regular) as file:
        return file.read(LARGEST)


def _layout(path: Path | str, data: Content) -> Layout:
    version = _UNMARKED.get(len(data))
    if version is None:
        magic, version = MARK.unpack_from(data, MARK_AT) if len(data) >= MARK_AT + MARK.size else (b"", 0)
        if magic != MAGIC:
            raise Unreadable(f"{path}: {len(data)} bytes without the mark {MAGIC!r} at {MARK_AT}; no control file")
    if version not in LAYOUTS:
        raise UnknownVersion(path, "a control file", version, LAYOUTS)
    layout = LAYOUTS[version]
    if len(data) < layout.size:
        raise Unreadable(f"{path}: {len(data)} bytes; a control file of version {version} has {layout.size}")
    return layout


def _write(folder: Path, at: int, number: int) -> None:
    _write_bytes(folder, at, NUMBER.pack(number % (1 << 64)))


def _write_bytes(folder: Path, at: int, content: bytes) -> None:
    with open(folder / NAME, "r+b", buffering=0, opener=regular) as file:
        file.seek(at)
        file.write(content)
