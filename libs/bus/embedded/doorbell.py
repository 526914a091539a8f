"""Tells the processes that share a log that something was appended, without any polling.

A process that waits binds a datagram socket in a directory beside the file; one that appends sends each of them
the ids of the partitions that have grown. A datagram may get lost (a full queue, a reader that is bound a
moment too late), so waiting readers look by themselves every now and then as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

LONGEST_NAME_BYTES = 100
"""Of a socket's path, on all systems; a longer path is reached through its directory's descriptor."""
QUEUE_NEARLY_FULL = 8
"""So many datagrams at once: others may have been refused, so every reader looks."""
ABANDONED_S = 60.0
"""Age from which a socket that was never put in its place is taken for that of a process which has died."""
DATAGRAM_BYTES = 4096
_ID = struct.Struct("<I")


class Waiter:
    """One reader that waits for some partitions."""

    def __init__(self, partition_ids: Iterable[int]) -> None:
        self.partition_ids = frozenset(partition_ids)
        self._rung = asyncio.Event()

    def expect(self) -> None:
        """Forget earlier rings. To be called before looking, so that no message falls between."""
        self._rung.clear()

    def ring(self) -> None:
        """Let the reader look."""
        self._rung.set()

    async def wait(self, timeout_s: float) -> None:
        """Until rung, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()


class Doorbell:
    """Rings others, and is rung. One per bus, within its event loop; only `ring` is called from another thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiters: set[Waiter] = set()
        self._sender = _datagram_socket()
        self._ear: socket.socket | None = None
        self._name = ""
        self._descriptor = -1
        self._loop = asyncio.get_running_loop()

    @property
    def hears(self) -> bool:
        """Others can ring here."""
        return self._ear is not None

    def listen(self) -> None:
        """Be there for others. Where sockets cannot be bound nothing rings, and readers must look by themselves."""
        if self._ear is not None:
            return
        ear = _datagram_socket()
        try:
            self._directory.mkdir(exist_ok=True)
            self._remove_abandoned()
            self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
            # bound under another name first: a socket is known by its name a moment before it can be sent to
            ear.bind(self._address("." + self._name))
            os.rename(self._directory / ("." + self._name), self._directory / self._name)
        except OSError:
            ear.close()
            return
        self._ear = ear
        self._loop.add_reader(ear.fileno(), self._hear)

    def ring(self, partition_ids: Iterable[int]) -> None:
        """Tell all listeners which partitions have grown. Never fails: readers look by themselves, too."""
        datagram = b"".join(_ID.pack(partition_id) for partition_id in partition_ids)[:DATAGRAM_BYTES]
        with contextlib.suppress(OSError):
            for name in os.listdir(self._directory):
                if not name.startswith("."):
                    self._send(name, datagram)

    def _send(self, name: str, datagram: bytes) -> None:
        try:
            self._sender.sendto(datagram, self._address(name))
        except ConnectionRefusedError:  # its process has died
            with contextlib.suppress(OSError):
                os.unlink(self._directory / name)
        except OSError:  # gone meanwhile, or its queue is full and it will look anyway
            return

    def add(self, waiter: Waiter) -> None:
        """Ring this reader from now on."""
        self._waiters.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Do not ring it any more."""
        self._waiters.discard(waiter)

    def stop_listening(self) -> None:
        """Take the socket away and let all waiting readers look a last time. Idempotent."""
        if self._ear is not None:
            self._loop.remove_reader(self._ear.fileno())
            self._ear.close()
            self._ear = None
            with contextlib.suppress(OSError):
                os.unlink(self._directory / self._name)
        for waiter in self._waiters:
            waiter.ring()

    def close(self) -> None:
        """Give back the descriptors. Idempotent."""
        self.stop_listening()
        self._sender.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _hear(self) -> None:
        """Take all datagrams that have come and ring the readers that they concern."""
        assert self._ear is not None
        datagrams = 0
        grown: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = self._ear.recv(DATAGRAM_BYTES)
                datagrams += 1
                grown.update(partition_id for (partition_id,) in _ID.iter_unpack(datagram))
        for waiter in self._waiters:
            if datagrams >= QUEUE_NEARLY_FULL or not grown.isdisjoint(waiter.partition_ids):
                waiter.ring()

    def _address(self, name: str) -> str:
        path = os.fsencode(self._directory / name)
        if len(path) <= LONGEST_NAME_BYTES:
            return os.fsdecode(path)
        if self._descriptor < 0:
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}/{name}"

    def _remove_abandoned(self) -> None:
        """Sockets of processes that died between binding and renaming; the others are found when they are rung."""
        for entry in os.scandir(self._directory):
            if entry.name.startswith(".") and time.time() - entry.stat().st_mtime > ABANDONED_S:
                os.unlink(entry.path)


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
