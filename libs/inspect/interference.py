"""What guests cost the owners of their GPUs: AntMan's table 5 (OSDI'20, section 5.3), for any log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

from libs.contracts.envelope import Envelope
from libs.contracts.introspection import JobProfiled
from libs.lifecycle.residents import Residents
from libs.policies.estimation.slowdown import slowdown

CLASSES = (0.01, 0.02, 0.03, 0.04)
"""Upper bounds of the table's classes behind the first, as parts of the mini-batch time alone."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was measured alone and beside guests."""

    job_id: str
    profiles_alone: int
    profiles_beside: int
    alone_s: float
    """Median time of a mini-batch without guests."""
    beside_s: float
    """Mean time of a mini-batch beside them."""
    slowed_ratio: float
    """How much longer it takes beside them, as a part of `alone_s`; may be negative."""
    by_absolute_rule: bool
    """By the paper's rule it is interfered with: more than 10 ms longer."""
    by_relative_rule: bool
    """By the relative rule: more than 3 % beyond the scatter."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One class of the table."""

    slowdown: str
    """`none`, `< 1 %`, … `>= 4 %`."""
    by_absolute_rule: int
    """Jobs, by the paper's rule: a job with which it does not count interference has none."""
    by_relative_rule: int


class _Measured(msgspec.Struct):
    alone_s: list[float] = []
    beside_s: list[float] = []


def owners_of(log: Iterable[Envelope], since_s: float = 0.0) -> list[Owner]:
    """The jobs of a control log that were measured in both ways; in the order of their first measurement.

    Args:
        log: from its beginning.
        since_s: measurements that began earlier do not count.
    """
    residents, found = Residents(), dict[str, _Measured]()
    for envelope in log:
        event = envelope.event
        if not isinstance(event, JobProfiled):
            residents.take(event, envelope.time_s)
        elif event.rate_per_s > 0 and event.window_start_s >= since_s:
            owner = residents.measured(event.job_id, event.window_start_s)
            if owner is not None and not owner.guest:
                of_job = found.setdefault(event.job_id, _Measured())
                times = of_job.beside_s if residents.guests_beside(owner) else of_job.alone_s
                times.append(1.0 / event.rate_per_s)
    return [_owner(job_id, each) for job_id, each in found.items() if each.alone_s and each.beside_s]


def table(owners: Sequence[Owner]) -> list[Row]:
    """The jobs by how much their guests slow them down; a slowdown that a rule does not count is none."""
    absolute = [_class_of(owner.slowed_ratio if owner.by_absolute_rule else 0.0) for owner in owners]
    relative = [_class_of(owner.slowed_ratio if owner.by_relative_rule else 0.0) for owner in owners]
    names = ["none", *(f"< {bound:.0%}".replace("%", " %") for bound in CLASSES), f">= {CLASSES[-1] * 100:.0f} %"]
    return [
        Row(slowdown=name, by_absolute_rule=absolute.count(number), by_relative_rule=relative.count(number))
        for number, name in enumerate(names)
    ]


def _owner(job_id: str, measured: _Measured) -> Owner:
    found = slowdown(measured.alone_s, fmean(measured.beside_s))
    return Owner(
        job_id=job_id,
        profiles_alone=len(measured.alone_s),
        profiles_beside=len(measured.beside_s),
        alone_s=found.alone_s,
        beside_s=found.beside_s,
        slowed_ratio=found.excess_ratio,
        by_absolute_rule=found.by_absolute_rule,
        by_relative_rule=found.by_relative_rule,
    )


def _class_of(slowed_ratio: float) -> int:
    """Number of the row; 0 for no slowdown."""
    if slowed_ratio <= 0:
        return 0
    return next((number for number, bound in enumerate(CLASSES, start=1) if slowed_ratio < bound), len(CLASSES) + 1)
