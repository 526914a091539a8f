"""The checkpoint of a job's best epoch, beside the newest one: kept for a job whose losses are followed."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from typing import Any

from .gang import from_the_first
from .moving.checkpoints import PART, PREFIX, Checkpoints

FOLDER, LOSS = "best", "loss.json"


class BestCheckpoint:
    """Of one job, in the folder `best` beside its checkpoints, with its loss: a Job with that folder begins there."""

    def __init__(self, folder: str, rank: int, barrier: Callable[[], None], *, alike: bool) -> None:
        """Arguments as for `Checkpoints`; the loss of an earlier attempt's best epoch counts on."""
        self._folder, self._rank = os.path.join(folder, FOLDER), rank
        self._checkpoints = Checkpoints(self._folder, rank, barrier, alike=alike)
        self._loss = self._kept_loss()

    def keep(self, state: Callable[[], Any], batches_done: int, loss: float | None) -> None:
        """Keep this epoch's end if its loss is the lowest so far; all ranks do, by the loss of the first.

        Args:
            state: collects that of this rank.
            batches_done: so far.
            loss: of the epoch; None: not known. One that is not finite is none.
        """
        found = from_the_first(loss)
        if found is None or not math.isfinite(found) or found >= self._loss:
            return
        self._checkpoints.save(state(), batches_done)
        self._loss = found
        if self._rank == 0:
            self._drop_others(f"{PREFIX}{batches_done}")
            part = os.path.join(self._folder, LOSS + PART)
            with open(part, "w") as file:
                json.dump({"loss": found, "batches_done": batches_done}, file)
            os.replace(part, os.path.join(self._folder, LOSS))

    def _drop_others(self, kept: str) -> None:
        """Also those of an attempt that had come further before it began again."""
        for name in os.listdir(self._folder):
            if name.startswith(PREFIX) and not name.endswith(PART) and name != kept:
                shutil.rmtree(os.path.join(self._folder, name))

    def _kept_loss(self) -> float:
        try:
            with open(os.path.join(self._folder, LOSS)) as file:
                return float(json.load(file)["loss"])
        except (OSError, ValueError, KeyError, TypeError):
            return math.inf
