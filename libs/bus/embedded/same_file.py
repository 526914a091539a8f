"""Notices that the file was taken away from under us: what is written then would be seen by no reader."""

from __future__ import annotations

import os
from pathlib import Path

from libs.bus.port import BusError


class SameFile:
    """Remembers which file a path named."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path)

    def check(self) -> None:
        """Raises BusError when the path names another file by now, or none."""
        if _identity(self._path) != self._identity:
            raise BusError(f"log {self._path} was removed or replaced while it was in use")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
