"""The checkpoint of a job's best epoch, beside the newest one: kept for a job whose losses are followed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any

from .gang import from_the_first
from .moving.checkpoints import Checkpoints

FOLDER, LOSS = "best", "loss.json"


class BestCheckpoint:
    """Of one job, in the folder `best` beside its checkpoints, with its loss: a Job with that folder begins there."""

    def __init__(self, folder: str, rank: int, barrier: Callable[[], None], *, alike: bool) -> None:
        """Arguments and errors as for `Checkpoints`."""
        self._rank = rank
        self._checkpoints = Checkpoints(os.path.join(folder, FOLDER), rank, barrier, alike=alike)
        self._loss = math.inf

    def claim(self) -> None:
        """As `Checkpoints.claim`; the loss of an earlier attempt's best epoch counts on."""
        self._checkpoints.claim()
        newest = self._checkpoints.newest()
        self._loss = _loss_of(newest) if newest is not None else math.inf

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
        note = {LOSS: json.dumps({"loss": found, "batches_done": batches_done})}
        self._checkpoints.save(state(), batches_done, note=note, others=True)
        self._loss = found


def _loss_of(checkpoint: str) -> float:
    """Infinite where it is not known."""
    # Versions before attempts had folders have left it beside the checkpoint.
    for folder in (checkpoint, os.path.dirname(checkpoint)):
        try:
            with open(os.path.join(folder, LOSS)) as file:
                return float(json.load(file)["loss"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return math.inf
