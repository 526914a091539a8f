"""What tells that a disk has no room."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
OF_THE_DISK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
FULL_BYTES = 1 << 20
"""With less a disk counts as full: what a process needs to begin would not fit."""


def lacks_room(error: BaseException | None, folder: Path) -> bool:
    """Whether this error, or the one that it comes from, is about a disk without room, or a quota that is used up.

    Args:
        error: it.
        folder: on that disk. SQLite calls some of it an error of the disk; it is taken for want of room on a full one.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code in OF_THE_DISK and free_bytes(folder) < FULL_BYTES):
            return True
        error = error.__cause__
    return False


def free_bytes(folder: Path) -> int:
    """Free on the folder's disk, for this user."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
