"""Whether the disks that a cell writes to have room for more work."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import suppress
from pathlib import Path

from libs.bus.port import Bus, BusUnavailable, Room, TellsRoom
from libs.kernel.words import bytes_of
from libs.runtime.log import fields

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0


class Disks:
    """The disk of the log, where the bus knows it, and that of the gateway's own files.

    Args:
        bus: the cell's log.
        folder: of the gateway's own files; looked at through its nearest parent that exists.
        reserve_bytes: new work is refused while one of the disks has less.
    """

    def __init__(self, bus: Bus, folder: Path, reserve_bytes: int) -> None:
        self._bus, self._folder, self._reserve = bus, folder, reserve_bytes
        self.rooms: dict[str, Room] = {}
        """{what is kept there: the disk}, as of the last look."""
        self.shortage = ""
        """Which disk has too little room for new work; empty while all have enough."""

    async def look(self) -> None:
        """Find out what is free now. A disk that does not tell stays what it was."""
        if isinstance(self._bus, TellsRoom):
            with suppress(BusUnavailable):
                self.rooms["log"] = await self._bus.room()
        with suppress(OSError):
            self.rooms["uploads"] = await asyncio.to_thread(_room_of, self._folder)
        before, self.shortage = self.shortage, self._shortage()
        if bool(before) != bool(self.shortage):
            say = "new work is refused" if self.shortage else "new work is accepted again"
            log.warning(say, extra=fields(why=self.shortage or "there is room on all disks"))

    def is_short(self, what: str) -> bool:
        """Whether one disk has less than the reserve."""
        room = self.rooms.get(what)
        return room is not None and room.free_bytes < self._reserve

    def _shortage(self) -> str:
        for what, room in self.rooms.items():
            if self.is_short(what):
                return (
                    f"the disk of the cell's {what} ({room.path}) has {bytes_of(room.free_bytes)} free; "
                    f"new work is taken from {bytes_of(self._reserve)} on"
                )
        return ""

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)


def _room_of(folder: Path) -> Room:
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    return Room(str(folder), shutil.disk_usage(there).free)
