"""Small disks that fill up: file systems of their own, in memory."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of so many bytes at this folder; the test is skipped where none can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """A file that takes what is free, but for `leave` bytes; called again it takes what has become free since."""
    ballast = folder / "ballast"
    with ballast.open("ab") as file:
        while True:
            found = os.statvfs(folder)
            free = found.f_bavail * found.f_frsize - leave
            if free <= 0:
                return ballast
            try:
                os.posix_fallocate(file.fileno(), 0, ballast.stat().st_size + free)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise  # else something else has taken a part of it
