"""What was lent comes back (Philly study, ATC'19, section 2.3): which jobs give GPUs up for one within a guarantee.

Victims are borrowers alone, whole gangs, of the same tenant only those that stand behind the job. They are chosen in
this order:

1. those that have no GPUs yet, and those that are suspended where the policy suspends: they go on where they were,
2. those that are stopped and go on from what they have saved (`restartable`),
3. the others, which begin anew.

Of each the one that loses least first (GPU seconds), then the youngest. Jobs are taken off their GPUs
only while more than `reclaim_above` of them are in use; else, and where all borrowers together have too little, the
job waits until some end. A borrower that has no GPUs yet gives its turn back at any time. A job that was a victim is
none again for `reclaim_rest_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from libs.contracts.placement import JobQueued
from libs.contracts.quota import QuotaReclaimed, Victim
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from libs.policies.policy import Way
from services.quota.core.holdings import held
from services.quota.core.nouns import Claim
from services.quota.core.shares import back_what_can_be
from services.quota.core.state import State
from services.quota.core.table import machine


class Wanting(NamedTuple):
    """A job within a guarantee, and the GPUs that it is to have."""

    job_id: str
    gpu_type: str
    gpus: int


def reclaim(
    state: State, total: Mapping[str, int], free: Mapping[str, int], wanting: Sequence[Wanting], turn: Turn[State]
) -> None:
    """Reclaim what is missing for the jobs within guarantees, behind what is being given back already.

    Args:
        total: {GPU type: GPUs of the cell}.
        free: the same that nothing was granted of before the jobs.
        wanting: the jobs in order, also those for which there was enough.
    """
    left = dict(free)
    for gpu_type, of_type in state.holdings.by_type().items():
        left[gpu_type] = left.get(gpu_type, 0) + of_type.victims_gpus
    for wants in [*_displaced(state, left), *wanting]:
        left[wants.gpu_type] = left.get(wants.gpu_type, 0) - wants.gpus
        short = -left[wants.gpu_type]
        if short <= 0:
            continue
        in_use = state.holdings.placed_gpus(wants.gpu_type) / max(1, total.get(wants.gpu_type, 0))
        victims = _victims(state, wants, short, turn.now_s, running=in_use > state.reclaim_above)
        if victims:
            left[wants.gpu_type] += sum(held(state.nodes, state.claims[victim.job_id]) for victim in victims)
            turn.emit(_reclaimed(state, wants, short, in_use, victims))


def _displaced(state: State, left: Mapping[str, int]) -> list[Wanting]:
    """Of each type of which more is granted than there is: a job within a guarantee that has lost its GPUs, or has not
    got any. What it is to have is counted as granted already."""
    found: dict[str, Wanting] = {}
    for tenant in state.tenants.values() if any(gpus < 0 for gpus in left.values()) else ():
        for job_id in tenant.granted:
            claim = state.claims[job_id]
            if claim.guarantee_of and not claim.gang and left.get(claim.gpu_type, 0) < 0:
                found.setdefault(claim.gpu_type, Wanting(job_id, claim.gpu_type, 0))
    return list(found.values())


def _victims(state: State, wants: Wanting, short: int, now_s: float, *, running: bool) -> list[Victim]:
    """The jobs that give back so many GPUs; none if all that may be victims have fewer."""
    chosen, given = [], 0
    for job_id, claim in _candidates(state, wants, now_s, running=running):
        if given >= short:
            break
        chosen.append((job_id, claim))
        given += held(state.nodes, claim)
    if given < short:
        return []
    for place in reversed(range(len(chosen))):
        gpus = held(state.nodes, chosen[place][1])
        if given - gpus >= short:
            del chosen[place]
            given -= gpus
    return [_victim(state, job_id, claim, now_s) for job_id, claim in chosen]


def _candidates(state: State, wants: Wanting, now_s: float, *, running: bool) -> list[tuple[str, Claim]]:
    owner = state.claims[wants.job_id]
    found = [
        (job_id, claim)
        for tenant in state.tenants.values()
        if tenant.borrowed_gpus
        for job_id in tenant.granted
        if _may_be_victim(state, claim := state.claims[job_id], wants.gpu_type, now_s)
        and (running or not claim.gang)
        and not _goes_first(job_id, claim, wants.job_id, owner)
    ]
    return sorted(found, key=lambda place: _order(state, place[1], now_s))


def _may_be_victim(state: State, claim: Claim, gpu_type: str, now_s: float) -> bool:
    borrows = not claim.guarantee_of and not claim.is_victim and claim.gpu_type == gpu_type
    return borrows and held(state.nodes, claim) > 0 and now_s >= rests_until(state, claim)


def _goes_first(job_id: str, claim: Claim, owner_id: str, owner: Claim) -> bool:
    """Whether the job is of the same tenant and stands before the other one: it would be granted first again."""
    return claim.tenant == owner.tenant and claim.turnstile(job_id) < owner.turnstile(owner_id)


def rests_until(state: State, claim: Claim) -> float:
    """From when on the job may be a victim again."""
    return float("-inf") if claim.victim_s is None else claim.victim_s + state.reclaim_rest_s


def _order(state: State, claim: Claim, now_s: float) -> tuple[int, float, float, int]:
    """Those to which least happens first, then least loss, then youngest."""
    age_s = now_s - claim.placed_s if claim.placed_s is not None else -1.0
    return _FIRST.index(_way(state, claim)), _loss(state, claim, now_s), age_s, -claim.seq


_FIRST: tuple[Way | None, ...] = (None, Way.SUSPEND, Way.RESTART, Way.PREEMPT)


def _way(state: State, claim: Claim) -> Way | None:
    """How the job is expected to leave its GPUs; None: it has none. What becomes of it placement decides."""
    if claim.placed_s is None:
        return None
    stopped = Way.RESTART if claim.restartable else Way.PREEMPT
    if Way.SUSPEND not in state.ways or not claim.as_granted:
        return stopped
    return Way.RESTART if claim.restartable and Way.RESTART in state.ways else Way.SUSPEND


def _loss(state: State, claim: Claim, now_s: float) -> float:
    """GPU seconds of work that it would have to do again."""
    if claim.placed_s is None or _way(state, claim) is not Way.PREEMPT:
        return 0.0
    return claim.gpus * max(0.0, now_s - claim.placed_s)


def _victim(state: State, job_id: str, claim: Claim, now_s: float) -> Victim:
    return Victim(
        job_id=job_id,
        attempt=claim.attempt,
        tenant=claim.tenant,
        gpus=claim.gpus,
        lost_gpu_s=round(_loss(state, claim, now_s), 3),
        way=_way(state, claim) or "",
        placed_s=claim.placed_s,
    )


def _reclaimed(state: State, wants: Wanting, short: int, in_use: float, victims: Sequence[Victim]) -> QuotaReclaimed:
    claim = state.claims[wants.job_id]
    lost = round(sum(victim.lost_gpu_s for victim in victims), 3)
    given = ", ".join(f"{victim.job_id} of tenant {victim.tenant} ({victim.gpus})" for victim in victims)
    of_type = f" of type {wants.gpu_type}" if wants.gpu_type else ""
    reason = Reason(
        code="Reclaimed",
        message=(
            f"{counted(short, 'GPU')}{of_type} missing for {wants.job_id}, which is within a guarantee of tenant "
            f"{claim.tenant}; {given} borrowed and lose least: {lost:.0f} GPU seconds; {in_use:.0%} are in use"
        ),
        numbers={"short_gpus": short, "lost_gpu_s": lost, "in_use_ratio": round(in_use, 4)},
    )
    return QuotaReclaimed(
        job_id=wants.job_id,
        tenant=claim.tenant,
        gpu_type=wants.gpu_type,
        short_gpus=short,
        in_use_ratio=round(in_use, 4),
        victims=list(victims),
        lost_gpu_s=lost,
        reason=reason,
    )


@machine.evolves(QuotaReclaimed)
def reclaimed(state: State, event: QuotaReclaimed, now_s: float) -> None:
    for victim in event.victims:
        state.ask_back(state.claims[victim.job_id], now_s)


@machine.evolves(JobQueued)
def lost_its_gpus(state: State, event: JobQueued, now_s: float) -> bool:
    """A higher attempt number says that the job has left its GPUs. A victim's claim has ended with that, or, where it
    was suspended, with the word that it stands still.

    Returns:
        Whether that is so.
    """
    claim = state.claims.get(event.job_id)
    if claim is None or not (event.suspended or event.attempt > claim.attempt):
        return False
    if not event.suspended:
        state.put(claim, {})
        claim.placed_s = None
    if event.returns_to_quota:
        _gives_back(state, event, claim, now_s)
    return True


def _gives_back(state: State, event: JobQueued, claim: Claim, now_s: float) -> None:
    """It waits for quota from now on; one that stood still and has lost its place since goes on waiting."""
    if not claim.granted:
        claim.attempt, claim.run, claim.gpu_type = event.attempt, None, ""
        return
    if event.suspended:
        state.stand_still(event.job_id)
    else:
        state.end_attempt(event.job_id, now_s)
    claim.attempt = event.attempt
    state.wait(event.job_id, now_s)
    back_what_can_be(state)


def next_rest_s(state: State) -> float | None:
    """When a job may be a victim again for which another waits; None: none waits for that."""
    if not state.told[PendingReason.INSUFFICIENT_GPUS]:
        return None
    ends = (rests_until(state, claim) for claim in state.holdings.were_victims())
    return min((end_s for end_s in ends if end_s > state.looked_s), default=None)
