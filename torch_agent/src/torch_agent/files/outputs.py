"""What a job keeps beyond its end (`--output DIR`): a folder of the node, linked into the working directory.

The link is there before the job starts, so that nothing has to be copied at its end and nothing is lost when its
processes or the agent are killed. A later attempt on the same node finds what the earlier ones have written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_EVERY_S = 600.0


@dataclass(frozen=True)
class Kept:
    """One job's folder."""

    job_id: str
    bytes: int
    changed_s: float
    """When a file or a folder in it was last changed."""


class Outputs:
    """The folders of all jobs of a node.

    Args:
        folder: made when it is needed.
        most_bytes: what jobs that have ended may keep together; beyond that the oldest goes first.
        longest_s: how long a folder is kept after its last change.
    """

    def __init__(self, folder: Path, most_bytes: int, longest_s: float) -> None:
        self._folder, self._most_bytes, self._longest_s = folder, most_bytes, longest_s

    def link(self, job_id: str, output_dir: str, work: Path) -> Path:
        """Have the working directory lead to the folder that is kept. Returns that folder.

        Raises:
            OSError: it cannot be made, or the working directory has a file of this name.
        """
        kept, link = self._folder / job_id / output_dir, work / output_dir
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        if link.is_symlink():
            link.unlink()
        elif link.is_dir():  # uploaded: the job goes on with what is in it
            shutil.copytree(link, kept, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(link)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(kept)
        return kept

    async def run(self, active: Callable[[], Collection[str]], now_s: Callable[[], float]) -> None:
        """Remove what is too old or too much, for ever.

        Args:
            active: ids of the jobs that have tasks here; their folders stay.
        """
        while True:
            await asyncio.to_thread(self.clear, active(), now_s())
            await asyncio.sleep(LOOK_EVERY_S)

    def clear(self, active: Collection[str], now_s: float) -> list[str]:
        """Remove what is too old or too much. Returns the ids of the jobs that have lost their folders."""
        ended = sorted((kept for kept in self._found() if kept.job_id not in active), key=lambda kept: kept.changed_s)
        left_bytes, removed = sum(kept.bytes for kept in ended), []
        for kept in ended:
            if left_bytes > self._most_bytes or now_s - kept.changed_s > self._longest_s:
                # Not shutil.rmtree: a job may nest folders deeper than Python's stack.
                subprocess.run(["rm", "-rf", "--", self._folder / kept.job_id], check=False, stderr=subprocess.DEVNULL)
                log.info("what %s had kept (%d bytes) is removed", kept.job_id, kept.bytes)
                removed.append(kept.job_id)
                left_bytes -= kept.bytes
        return removed

    def _found(self) -> list[Kept]:
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        return [_measured(self._folder / name) for name in names]


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
