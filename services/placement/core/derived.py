"""What a cell keeps of its jobs by a property of each: sets that are asked for often, and not searched each time."""

from __future__ import annotations

from collections.abc import Callable

from services.placement.core.jobs import Job


def _is_suspended(job: Job) -> bool:
    return job.suspended and not job.guest


def _is_elastic(job: Job) -> bool:
    return bool(job.gang) and job.spec.elastic is not None and not job.guest


def _is_guest(job: Job) -> bool:
    return bool(job.gang) and job.guest


def _stands_still(job: Job) -> bool:
    return _is_guest(job) and job.suspended


def _is_upgradable(job: Job) -> bool:
    return _is_guest(job) and job.wants_quota


DERIVED: dict[str, Callable[[Job], bool]] = {
    "suspended": _is_suspended,
    "elastic": _is_elastic,
    "guests": _is_guest,
    "still": _stands_still,
    "upgradable": _is_upgradable,
}
"""{cached property of `Cell`: what its jobs have in common}."""
