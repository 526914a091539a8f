"""Folders that a node keeps for later: bounded by their size together, and by the age of each."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_EVERY_S = 600.0


@dataclass(frozen=True)
class Kept:
    """One folder that is kept for a while: the output of a job, or the environment of a setup."""

    name: str
    bytes: int
    changed_s: float
    """When a file or a folder in it was last changed."""


class KeptFolders:
    """The folders in a folder.

    Args:
        folder: made when it is needed.
        most_bytes: what those that are not in use may take together; beyond that the oldest goes first.
        longest_s: how long one is kept after its last change.
    """

    def __init__(self, folder: Path, most_bytes: int, longest_s: float) -> None:
        self.folder, self._most_bytes, self._longest_s = folder, most_bytes, longest_s

    async def run(self, in_use: Callable[[], Collection[str]], now_s: Callable[[], float]) -> None:
        """Remove what is too old or too much, for ever.

        Args:
            in_use: names of the folders that stay whatever there is.
        """
        while True:
            await asyncio.to_thread(self.clear, in_use(), now_s())
            await asyncio.sleep(LOOK_EVERY_S)

    def clear(self, in_use: Collection[str], now_s: float) -> list[str]:
        """Remove what is too old or too much. Returns the names of the folders that are gone."""
        idle = sorted((kept for kept in self._found() if kept.name not in in_use), key=lambda kept: kept.changed_s)
        left_bytes, removed = sum(kept.bytes for kept in idle), []
        for kept in idle:
            if left_bytes > self._most_bytes or now_s - kept.changed_s > self._longest_s:
                self.remove(kept.name)
                log.info("%s (%d bytes) is removed", self.folder / kept.name, kept.bytes)
                removed.append(kept.name)
                left_bytes -= kept.bytes
        return removed

    def remove(self, name: str) -> None:
        """Remove one of them. By `rm`: a job may nest folders deeper than Python's stack."""
        subprocess.run(["rm", "-rf", "--", self.folder / name], check=False, stderr=subprocess.DEVNULL)

    def _found(self) -> list[Kept]:
        try:
            names = sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
        return [_measured(self.folder / name) for name in names]


def _measured(folder: Path) -> Kept:
    size, changed_s, waiting = 0, 0.0, [str(folder)]
    while waiting:
        here = waiting.pop()
        try:
            changed_s = max(changed_s, os.lstat(here).st_mtime)
            with os.scandir(here) as items:
                for item in items:
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(item.path)
                        continue
                    seen = item.stat(follow_symlinks=False)
                    size, changed_s = size + seen.st_size, max(changed_s, seen.st_mtime)
        except OSError:  # removed meanwhile
            continue
    return Kept(folder.name, size, changed_s)
