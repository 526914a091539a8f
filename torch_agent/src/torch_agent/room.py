"""Room on the disk of the state directory: what is kept free for the agent, and what follows when there is none."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from libs.runtime.disk_room import free_bytes
from torch_agent.harness.regular import regular

log = logging.getLogger(__name__)

LOOK_S = 1.0
LEAST_BYTES = 4 << 20
"""Free on the disk: with less no task is launched here."""
AGAIN_BYTES = 2 * LEAST_BYTES
"""From so much on tasks are launched again: a disk about its bound must not change its mind with each look."""
NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV)
ZEROS = bytes(64 * 1024)


class Room:
    """Whether there is room for what a task's end takes. Without it no task is launched; all that runs goes on."""

    def __init__(self, folder: Path, settle: Callable[[], bool], changed: Callable[[], None]) -> None:
        """Of the disk that this folder is on.

        Args:
            folder: on that disk.
            settle: writes what has waited for room; returns whether nothing waits any more.
            changed: called when there is room again.
        """
        self._folder, self._settle, self._changed = folder, settle, changed
        self.shortage = ""
        """A sentence that says that there is no room; empty where there is some."""

    def look(self) -> None:
        """See whether that has changed."""
        if not self._settle() or (not self.shortage and free_bytes(self._folder) < LEAST_BYTES):
            self.run_out()
        elif self.shortage and self._has_room_again():
            log.warning("there is room again on the disk of %s", self._folder)
            self.shortage = ""
            self._changed()

    def _has_room_again(self) -> bool:
        """Tried out, because of a quota the file system says nothing."""
        if free_bytes(self._folder) < AGAIN_BYTES:
            return False
        probe = self._folder / "room.probe"
        try:
            allocate(probe, AGAIN_BYTES)
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)
        return True

    def run_out(self) -> None:
        """There is none: a look has shown it, or something that could not be written."""
        if self.shortage:
            return
        free = free_bytes(self._folder)
        self.shortage = (
            f"DiskFull: the disk of {self._folder} has {free >> 10} kB free; "
            f"no task is started here until it has {AGAIN_BYTES >> 10} kB"
        )
        log.error("%s", self.shortage)


def allocate(path: Path, size: int) -> bool:
    """Make a file of this size at least, so that writing into it needs no more room.

    Returns:
        Whether the file system promises it; else it was filled with zeros, which most file systems take for the same.

    Raises:
        OSError: there is no room; the file is as long as it was.
    """
    with open(path, "ab", buffering=0, opener=regular) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return True
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                with contextlib.suppress(OSError):
                    file.truncate(before)
                raise
        try:
            for begin in range(before, size, len(ZEROS)):
                file.write(ZEROS[: size - begin])
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise
        return False
