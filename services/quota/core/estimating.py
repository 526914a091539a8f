"""How long a tenant's waiting jobs wait for quota, as far as it can be known (AntMan, OSDI'20, section 3.3).

The tenant's granted jobs end one after another, earliest first, and what they give back goes to the waiting jobs in
their order. When a granted job ends follows from the best that is known of it:

- `remaining_work`: the steps that are left, at the rate that was measured;
- `time_limit`: the rest of its time limit;
- `residual_life`: the mean rest of those of the tenant's ended attempts that ran at least as long;
- `time_so_far`: it lasts as long again as it has.
"""

from __future__ import annotations

from typing import NamedTuple

from libs.kernel.runs import REMAINING_WORK, RESIDUAL_LIFE, TIME_LIMIT, TIME_SO_FAR
from services.quota.core.nouns import Claim, Tenant
from services.quota.core.state import State


class Expected(NamedTuple):
    """When something ends or begins, from now on."""

    in_s: float
    """Infinite: not as long as nothing changes."""
    basis: str
    """What it rests on; empty where it rests on nothing."""


NEVER = Expected(float("inf"), "")


def rest_of(claim: Claim, tenant: Tenant, now_s: float) -> Expected:
    """When the granted attempt ends."""
    if (known := known_rest_of(claim, now_s)) is not None:
        return known
    age_s = _age_s(claim, now_s)
    older = [ran_s for ran_s in tenant.ran_s if ran_s > age_s]
    if older:
        return Expected(sum(older) / len(older) - age_s, RESIDUAL_LIFE)
    return Expected(age_s, TIME_SO_FAR)


def known_rest_of(claim: Claim, now_s: float) -> Expected | None:
    """The same by what is known of the attempt itself, also of one that has no GPUs yet; None: nothing is."""
    run = claim.run
    if run is not None and run.rate_per_s > 0 and claim.total_steps is not None:
        left = max(0.0, claim.total_steps - run.done_minibatches)
        return Expected(left / run.rate_per_s, REMAINING_WORK)
    if claim.time_limit_s is not None:
        return Expected(max(0.0, claim.time_limit_s - _age_s(claim, now_s)), TIME_LIMIT)
    return None


def _age_s(claim: Claim, now_s: float) -> float:
    return now_s - claim.run.since_s if claim.run is not None else 0.0


class Line:
    """A tenant's quota as it becomes free: jobs that wait are served one after another.

    How long a job that waits will run is not known: what it is served, it keeps. So every estimate rests on jobs that
    run now.
    """

    def __init__(self, state: State, tenant: Tenant, now_s: float) -> None:
        claims = [state.claims[job_id] for job_id in tenant.granted]
        self._ends = sorted((rest_of(claim, tenant, now_s), claim.gpus) for claim in claims)
        self._free = tenant.planned_gpus - tenant.used_gpus
        self._ended = 0
        self._reached = Expected(0.0, "")

    def expected(self, gpus: int) -> Expected:
        """When there is room for so many GPUs behind the jobs that were served so far."""
        return self._look(gpus)[0]

    def serve(self, gpus: int) -> None:
        """The next job in line takes so many GPUs as soon as there is room for them."""
        self._reached, free, self._ended = self._look(gpus)
        self._free = free - gpus

    def _look(self, gpus: int) -> tuple[Expected, int, int]:
        """When there is room, GPUs that are free then, and how many of the granted jobs have ended by then."""
        reached, free, ended = self._reached, self._free, self._ended
        while free < gpus and ended < len(self._ends):
            end, given_back = self._ends[ended]
            reached, free, ended = max(reached, end), free + given_back, ended + 1
        return (reached if free >= gpus else NEVER), free, ended
