"""Tasks of a production cluster as figure 5 of AntMan (OSDI'20) shows them: size of the model, length of a mini-batch.

The figure's text gives one point of each distribution: 90 % of the models take at most 500 MB, and 80 % of the tasks at
most 600 ms for a mini-batch. Both are taken to be log-normal around a median that is an assumption.
"""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import NamedTuple

MB = 1e6
MODEL_MEDIAN_BYTES, MODEL_POINT = 60 * MB, (0.90, 500 * MB)
MINIBATCH_MEDIAN_S, MINIBATCH_POINT = 0.25, (0.80, 0.600)


class TaskDraw(NamedTuple):
    """One task."""

    model_bytes: float
    minibatch_s: float


def draw_tasks(seed: int, tasks: int = 10_000) -> list[TaskDraw]:
    """The same seed gives the same tasks."""
    luck = random.Random(f"{seed}/antman/tasks")
    size, length = _spread(MODEL_MEDIAN_BYTES, *MODEL_POINT), _spread(MINIBATCH_MEDIAN_S, *MINIBATCH_POINT)
    return [
        TaskDraw(
            MODEL_MEDIAN_BYTES * math.exp(luck.gauss(0.0, size)),
            MINIBATCH_MEDIAN_S * math.exp(luck.gauss(0.0, length)),
        )
        for _ in range(tasks)
    ]


def _spread(median: float, part: float, value: float) -> float:
    """The sigma of the logarithm with which this part of the tasks is at most so large."""
    return math.log(value / median) / NormalDist().inv_cdf(part)
