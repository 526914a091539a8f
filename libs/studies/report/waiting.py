"""How long GPUs wait for gangs that are not complete, and which part of that guests use (AntMan, OSDI'20, figure 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from libs.contracts.envelope import Envelope
from libs.contracts.placement import GangReserved, JobPlaced, Role
from libs.contracts.quota import JobUpgraded
from libs.studies.report.intervals import Interval

Gpu = tuple[str, int]


@dataclass(frozen=True)
class Waiting:
    """Of one gang that had to wait for some of its GPUs."""

    job_id: str
    gpus: int
    idle_s: float
    """GPU time between the moment at which each GPU was there for it and its start."""
    used_s: float
    """The part of it in which guests ran there."""


def waiting_of(log: Iterable[Envelope], intervals: Sequence[Interval]) -> list[Waiting]:
    """Of every gang for which GPUs were reserved before it was placed, in the order of their placements.

    Args:
        log: the control log.
        intervals: which job held which GPU when.
    """
    reserved_s: dict[str, float] = {}
    guests_until_s: dict[str, float] = {}
    placed: list[tuple[JobPlaced, float, float]] = []
    for envelope in log:
        event = envelope.event
        if isinstance(event, GangReserved):
            reserved_s.setdefault(event.job_id, envelope.time_s)
        elif isinstance(event, JobPlaced):
            since_s = reserved_s.pop(event.job_id, None)
            if event.role == Role.GUEST:
                guests_until_s[event.job_id] = float("inf")
            elif since_s is not None:
                placed.append((event, since_s, envelope.time_s))
        elif isinstance(event, JobUpgraded):
            guests_until_s[event.job_id] = envelope.time_s
    held: dict[Gpu, list[Interval]] = {}
    for interval in intervals:
        held.setdefault(interval.gpu, []).append(interval)
    return [_waiting(event, since_s, at_s, held, guests_until_s) for event, since_s, at_s in placed]


def _waiting(
    event: JobPlaced, since_s: float, at_s: float, held: dict[Gpu, list[Interval]], guests_until_s: dict[str, float]
) -> Waiting:
    idle_s = used_s = 0.0
    gpus = [(task.node_id, index) for task in event.gang for index in task.gpu_indices]
    for gpu in gpus:
        there = [each for each in held.get(gpu, ()) if each.start_s < at_s]
        owners = [each for each in there if guests_until_s.get(each.job_id, 0.0) < at_s]
        free_s = max([since_s, *(min(each.end_s, at_s) for each in owners)])
        idle_s += at_s - free_s
        used_s += _covered(free_s, at_s, [each for each in there if each not in owners])
    return Waiting(event.job_id, len(gpus), idle_s, used_s)


def _covered(from_s: float, to_s: float, intervals: Sequence[Interval]) -> float:
    """The part of a time in which at least one of these intervals lies."""
    covered, reached_s = 0.0, from_s
    for each in sorted(intervals, key=lambda interval: interval.start_s):
        begin_s, end_s = max(reached_s, each.start_s), min(to_s, each.end_s)
        if end_s > begin_s:
            covered += end_s - begin_s
            reached_s = end_s
    return covered


def to_rows(found: Iterable[Waiting]) -> list[list[Any]]:
    """As a result document keeps them."""
    return [list(astuple(each)) for each in found]


def from_rows(rows: Iterable[Sequence[Any]]) -> list[Waiting]:
    """As they were."""
    return [Waiting(*row) for row in rows]
