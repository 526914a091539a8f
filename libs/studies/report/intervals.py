"""Which job held which GPU when, and what follows from it over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """One job held one GPU. Jobs that share a GPU overlap."""

    job_id: str
    tenant: str
    node_id: str
    gpu_index: int
    gpu_type: str
    start_s: float
    end_s: float

    @property
    def gpu(self) -> tuple[str, int]:
        """Which GPU."""
        return (self.node_id, self.gpu_index)


def to_rows(intervals: Iterable[Interval]) -> list[list[Any]]:
    """As a result document keeps them."""
    return [list(astuple(interval)) for interval in intervals]


def from_rows(rows: Iterable[Sequence[Any]]) -> list[Interval]:
    """As they were."""
    return [Interval(*row) for row in rows]


@dataclass(frozen=True)
class Part:
    """A stretch of one GPU's time that belongs to one holder; `ratio` is below 1 where GPUs are shared."""

    interval: Interval
    start_s: float
    end_s: float
    ratio: float


def parts(intervals: Iterable[Interval]) -> list[Part]:
    """Cut overlaps so that no GPU's time is counted twice: jobs that share a GPU have equal parts of it."""
    per_gpu: dict[tuple[str, int], list[Interval]] = {}
    for interval in intervals:
        if interval.end_s > interval.start_s:
            per_gpu.setdefault(interval.gpu, []).append(interval)
    return [part for held in per_gpu.values() for part in _cut(held)]


def _cut(held: list[Interval]) -> Iterable[Part]:
    """Of one GPU."""
    held.sort(key=lambda interval: interval.start_s)
    moments = sorted({moment for interval in held for moment in (interval.start_s, interval.end_s)})
    present: list[Interval] = []
    following = 0
    for start_s, end_s in pairwise(moments):
        present = [interval for interval in present if interval.end_s > start_s]
        while following < len(held) and held[following].start_s <= start_s:
            present.append(held[following])
            following += 1
        for interval in present:
            yield Part(interval, start_s, end_s, 1.0 / len(present))


def mean_held(held: Sequence[Part], edges: Floats) -> Floats:
    """GPUs held on average between each two neighbouring edges, in seconds."""
    if not held:
        return np.zeros(len(edges) - 1)
    moments = np.array([moment for part in held for moment in (part.start_s, part.end_s)])
    slopes = np.array([slope for part in held for slope in (part.ratio, -part.ratio)])
    order = np.argsort(moments, kind="stable")
    moments, slopes = moments[order], np.cumsum(slopes[order])
    gpu_s = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(moments))])
    at_edges = np.interp(edges, moments, gpu_s)
    return np.asarray(np.diff(at_edges) / np.diff(edges), dtype=np.float64)


def held_by(intervals: Sequence[Interval], key: Callable[[Interval], str], edges: Floats) -> dict[str, Floats]:
    """{key: GPUs held on average in each bin}, in order of first appearance."""
    groups: dict[str, list[Part]] = {}
    for part in sorted(parts(intervals), key=lambda part: part.start_s):
        groups.setdefault(key(part.interval), []).append(part)
    return {name: mean_held(held, edges) for name, held in groups.items()}


def edges_of(intervals: Sequence[Interval], bins: int) -> Floats:
    """Equal bins from the first start to the last end."""
    start_s = min(interval.start_s for interval in intervals)
    end_s = max(interval.end_s for interval in intervals)
    return np.asarray(np.linspace(start_s, max(end_s, start_s + 1.0), bins + 1), dtype=np.float64)
