"""An embedded log under test, shared by several connections as by several processes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from libs.bus.embedded import EmbeddedBus
from libs.bus.port import Bus
from libs.testing.bus_contract import LogUnderTest


class SharedFile(LogUnderTest):
    """A file; each connection has threads and SQLite connections of its own."""

    def __init__(self, directory: Path, options: str = "") -> None:
        super().__init__()
        self.path = directory / "log.db"
        self.sockets = directory / "log.db.wake"
        self.url = f"sqlite:///{self.path}{options}"
        self._dead = 0

    async def _connect(self, cell: str) -> Bus:
        return await EmbeddedBus.connect(self.url, cell)

    async def _crash(self, bus: Bus) -> None:
        """What a dead process leaves behind: its open transaction is gone, its socket is not."""
        await bus.close()
        if self.sockets.is_dir():
            self._dead += 1
            leave_socket(self.sockets, f"dead-{self._dead}")


def leave_socket(directory: Path, name: str) -> None:
    """Bind a socket and close it, as the death of a process does: its name stays."""
    descriptor = os.open(directory, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(f"/proc/self/fd/{descriptor}/{name}")
    os.close(descriptor)
