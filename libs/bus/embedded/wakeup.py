"""Tells the processes that share a log that something was appended: one datagram each, no polling.

Each listener binds a socket in a directory beside the file; writers send to all of them. A datagram may
get lost (a full queue): listeners look again by themselves every now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_numbers = itertools.count(1)


class Listener:
    """Wakes the waiting coroutines of one bus. Must be made inside the event loop that it serves."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"{os.getpid()}-{next(_numbers)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with _short_name(self._path) as name:
            self._socket.bind(name)
        self._waiting: set[asyncio.Event] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._woken)

    def join(self, event: asyncio.Event) -> None:
        """Set this event at every wake-up from now on."""
        self._waiting.add(event)

    def leave(self, event: asyncio.Event) -> None:
        """Do not set it any more."""
        self._waiting.discard(event)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(16):
                pass
        for event in self._waiting:
            event.set()

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)


def wake_all(directory: Path, sender: socket.socket) -> None:
    """Send a datagram to every listener; the sockets of processes that have died are removed."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = directory / name
        try:
            with _short_name(path) as address:
                sender.sendto(b"!", address)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
        except (BlockingIOError, OSError):
            continue


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Socket names may have 107 bytes: a longer path is reached through its directory's descriptor."""
    if len(os.fsencode(path)) <= 100:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
