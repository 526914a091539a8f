"""What the agent wants of a task's processes: two numbers in a file that they all have mapped.

The first is a turn: odd means "suspend", even means "run". The second counts requests to save the job's state while
standing still. The agent alone writes, by adding one; a process says on its page which turn it has obeyed last, and
which request it has answered. Eight aligned bytes are written and read at once: nobody sees half a number.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

NAME = "control"
NUMBER = struct.Struct("<Q")
TURN_AT, SAVES_AT = 0, 8
SIZE = 16


def suspends(turn: int) -> bool:
    """Whether this turn is one of standing still."""
    return turn % 2 == 1


class ControlReader:
    """The training process's side; about a tenth of a microsecond per look."""

    def __init__(self, folder: str) -> None:
        self._map: mmap.mmap | None = None
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    @property
    def turn(self) -> int:
        """The turn in force; 0 where nobody controls this process."""
        return 0 if self._map is None else _number(self._map, TURN_AT)

    @property
    def saves(self) -> int:
        """How many requests to save there have been."""
        return 0 if self._map is None else _number(self._map, SAVES_AT)


def create_control(folder: Path) -> None:
    """The agent's side, before it starts the processes; what is there already stays."""
    path = folder / NAME
    if not path.exists():
        part = folder / f"{NAME}.part"
        part.write_bytes(bytes(SIZE))
        part.chmod(0o600)
        part.rename(path)


def turn_to(folder: Path, *, suspend: bool) -> None:
    """Begin a turn of standing still or of running, unless such a turn is in force."""
    create_control(folder)
    turn = current_turn(folder)
    if suspends(turn) != suspend:
        _write(folder, TURN_AT, turn + 1)


def current_turn(folder: Path) -> int:
    """The turn in force; 0 when the file is gone with its task."""
    return _read(folder, TURN_AT)


def ask_to_save(folder: Path) -> int:
    """Have processes that stand still save the job's state. Returns the request's number.

    It lapses if they are told to go on before they have answered it.
    """
    create_control(folder)
    request = _read(folder, SAVES_AT) + 1
    _write(folder, SAVES_AT, request)
    return request


def _read(folder: Path, at: int) -> int:
    try:
        return _number((folder / NAME).read_bytes(), at)
    except FileNotFoundError:
        return 0


def _write(folder: Path, at: int, number: int) -> None:
    with (folder / NAME).open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(NUMBER.pack(number))


def _number(data: bytes | mmap.mmap, at: int) -> int:
    """0 when an older agent has made the file too short for it."""
    if len(data) < at + NUMBER.size:
        return 0
    (number,) = NUMBER.unpack_from(data, at)
    return int(number)
