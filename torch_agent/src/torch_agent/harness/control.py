"""What the agent wants of a task's processes: two numbers in a file that they all have mapped.

The first is a turn: odd means "suspend", even means "run". The second counts requests to save the job's state while
standing still. The agent alone writes, by adding one; a process says on its page which turn it has acknowledged last,
and which request it has answered. Eight aligned bytes are written and read at once: no reader sees half a number.

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

from .versions import UnknownVersion, Unreadable

NAME = "control"
NUMBER = struct.Struct("<Q")
MARK = struct.Struct("<4sI")
MARK_AT = 16
MAGIC, VERSION = b"SJCP", 3


@dataclass(frozen=True)
class Layout:
    """Where a version of the file has its numbers."""

    size: int
    turn_at: int
    saves_at: int | None
    """None: processes of that version save nothing."""


LAYOUTS = {
    1: Layout(size=8, turn_at=0, saves_at=None),
    2: Layout(size=16, turn_at=0, saves_at=8),
    3: Layout(size=24, turn_at=0, saves_at=8),
}
"""{version: layout}. A row never changes; a change to the file is a new version, and a row more."""
_UNMARKED = {LAYOUTS[version].size: version for version in (1, 2)}


def suspends(turn: int) -> bool:
    """Whether this turn is one of standing still."""
    return turn % 2 == 1


class ControlReader:
    """The training process's side; about a tenth of a microsecond per look."""

    def __init__(self, folder: str) -> None:
        """Map the file, if there is one.

        Raises:
            Unreadable: newer code has made it, or it is no control file.
        """
        self._map: mmap.mmap | None = None
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            layout = _layout(path, self._map)
            self._turn_at, self._saves_at = layout.turn_at, layout.saves_at

    @property
    def turn(self) -> int:
        """The turn in force; 0 where no agent controls this process."""
        return 0 if self._map is None else _number(self._map, self._turn_at)

    @property
    def saves(self) -> int:
        """How many requests to save there have been."""
        return 0 if self._map is None or self._saves_at is None else _number(self._map, self._saves_at)


def create_control(folder: Path) -> None:
    """The agent's side, before it starts the processes; what is there already stays."""
    path = folder / NAME
    if not path.exists():
        content = bytearray(LAYOUTS[VERSION].size)
        MARK.pack_into(content, MARK_AT, MAGIC, VERSION)
        part = folder / f"{NAME}.part"
        part.write_bytes(content)
        part.chmod(0o600)
        part.rename(path)


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
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    return _number(data, _layout(path, data).turn_at)


def ask_to_save(folder: Path) -> int:
    """Have processes that stand still save the job's state. Returns the request's number.

    It lapses if they are told to go on before they have answered it.

    Raises:
        Unreadable: newer code has made the file, or code that is too old to save anything; or it is no control file.
    """
    create_control(folder)
    path = folder / NAME
    data = path.read_bytes()
    saves_at = _layout(path, data).saves_at
    if saves_at is None:
        raise Unreadable(f"{path}: a control file of version 1, with processes that save no state; expected 2 or later")
    request = _number(data, saves_at) + 1
    _write(folder, saves_at, request)
    return request


def _layout_of(folder: Path) -> Layout:
    path = folder / NAME
    return _layout(path, path.read_bytes())


def _layout(path: Path | str, data: bytes | mmap.mmap) -> Layout:
    version = _UNMARKED.get(len(data))
    if version is None:
        magic, version = MARK.unpack_from(data, MARK_AT) if len(data) >= MARK_AT + MARK.size else (b"", 0)
        if magic != MAGIC:
            raise Unreadable(f"{path}: {len(data)} bytes without the mark {MAGIC!r} at {MARK_AT}; no control file")
    if version not in LAYOUTS:
        raise UnknownVersion(path, "a control file", version, LAYOUTS)
    return LAYOUTS[version]


def _write(folder: Path, at: int, number: int) -> None:
    with (folder / NAME).open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(NUMBER.pack(number % (1 << 64)))


def _number(data: bytes | mmap.mmap, at: int) -> int:
    (number,) = NUMBER.unpack_from(data, at)
    return int(number)
