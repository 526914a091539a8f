"""Checkpoints of a job on disk: a folder each, with the state of every rank, there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from .loading import load
from .saving import save

PREFIX, PART = "job-", ".part"
NOT_PARKED: Mapping[int, Any] = MappingProxyType({})
"""Every tensor has its memory."""


class Checkpoints:
    """Of one job; `job-<batches done>/rank-<rank>` in the folder."""

    def __init__(self, folder: str, rank: int, barrier: Callable[[], None], *, alike: bool = False) -> None:
        """Look what is there.

        Args:
            barrier: waits for all ranks of the job.
            alike: all ranks are in the same state, which the first one saves for all.
        """
        self._folder, self._rank, self._barrier, self._alike = folder, rank, barrier, alike
        os.makedirs(folder, exist_ok=True)
        names = [name for name in os.listdir(folder) if name.startswith(PREFIX) and not name.endswith(PART)]
        self._newest = max(map(_batches_done, names), default=None)

    def load(self) -> Any:
        """This rank's state in the newest complete checkpoint; None when there is none."""
        if self._newest is None:
            return None
        return load(self._file(self._path(self._newest)))

    def save(
        self,
        state: Any,
        batches_done: int,
        *,
        parked: Mapping[int, Any] = NOT_PARKED,
        barrier: Callable[[], None] | None = None,
    ) -> None:
        """Make a checkpoint, together with all other ranks, and remove those before it.

        Args:
            state: of this rank.
            batches_done: names it.
            parked: {identity of a storage that is empty now: its bytes, on the host}.
            barrier: in the place of the usual one.
        """
        if batches_done == self._newest:
            return
        path = self._path(batches_done)
        if self._rank == 0 or not self._alike:
            self._write(state, path + PART, parked)
        (barrier or self._barrier)()
        if self._rank == 0:
            os.replace(path + PART, path)
            self._remove_before(batches_done)
        self._newest = batches_done

    def _write(self, state: Any, checkpoint: str, parked: Mapping[int, Any]) -> None:
        os.makedirs(checkpoint, exist_ok=True)
        with open(self._file(checkpoint), "wb") as file:
            save(state, file, parked)
            file.flush()
            os.fsync(file.fileno())

    def _remove_before(self, batches_done: int) -> None:
        """Also what was never completed; what other ranks may have begun since stays."""
        for name in os.listdir(self._folder):
            if name.startswith(PREFIX) and _batches_done(name) < batches_done:
                shutil.rmtree(os.path.join(self._folder, name))

    def _path(self, batches_done: int) -> str:
        return os.path.join(self._folder, f"{PREFIX}{batches_done}")

    def _file(self, checkpoint: str) -> str:
        return os.path.join(checkpoint, f"rank-{0 if self._alike else self._rank}")


def _batches_done(name: str) -> int:
    return int(name.removeprefix(PREFIX).removesuffix(PART))
