"""Who was promised how much time, and who has had it.

The paper's mechanism gives a round to the rows with the highest X_opt / f, where f is the fraction of time received
since the allocation was last computed. Counting from zero at every reset starves small shares when resets are
frequent (the authors therefore recompute at most every 1,920 s). Here promises and receipts are carried over resets
as one number per row and GPU type, in seconds: the credit.
"""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.placement import Share
from services.placement.core.jobs import ACTIVE, Job
from services.placement.core.lifecycle.hearing import Listener
from services.placement.core.sharing.pairs import partner_of, together
from services.placement.core.sharing.rates import rates
from services.placement.core.state import Rounds, State


def row_key(jobs: Sequence[str]) -> str:
    """Names a row: a job alone, or a pair in any order."""
    if len(jobs) == 1:
        return jobs[0]
    return "+".join(sorted(jobs))


def booked(state: State, now_s: float) -> Rounds:
    """The books up to now.

    New ones begin with the first allocation of a policy: what jobs have had before is not charged to their shares.
    """
    if state.rounds is None:
        _charge_all(state, now_s)
        state.rounds = Rounds(shares=[], question="", computed_s=now_s, booked_s=now_s)
    book(state, now_s)
    return state.rounds


def book(state: State, now_s: float) -> None:
    """Turn the time since the last booking into credit, and charge what was received."""
    rounds = state.rounds
    if rounds is None or now_s <= rounds.booked_s:
        return
    passed_s, rounds.booked_s = now_s - rounds.booked_s, now_s
    for share, credit in zip(rounds.shares, rounds.credit.values(), strict=True):
        due_s = passed_s * rounds.crowded.get(share.jobs[0], 1.0)
        for gpu_type, fraction in share.time.items():
            credit[gpu_type] += fraction * due_s
    _charge_all(state, now_s)


def _charge_all(state: State, now_s: float) -> None:
    for job in state.jobs.values():
        if job.phase is ACTIVE:
            charge(state, job, now_s)


def charge(state: State, job: Job, now_s: float) -> None:
    """Book the time that the job has held its GPUs."""
    passed_s = now_s - job.charged_s
    if passed_s <= 0:
        return
    job.charged_s = now_s
    if job.suspended:
        return
    job.attained_s += passed_s
    job.steps_done += job.pace * passed_s
    rounds = state.rounds
    if rounds is None or job.job_id in rounds.beyond:
        return
    partner = rounds.packs.get(job.job_id)
    if partner is None:
        credit, part_s = rounds.credit.get(job.job_id), passed_s
    else:
        credit, part_s = rounds.credit.get(row_key([job.job_id, partner])), passed_s / 2
    if credit is not None and job.gpu_type in credit:
        credit[job.gpu_type] -= part_s


class Accounts(Listener):
    """Books what jobs have received, under any mechanism: rounds charge it to shares."""

    def placed(self, state: State, job: Job, now_s: float) -> None:
        job.charged_s = now_s
        _takes(state, job)

    def moving(self, state: State, job: Job, now_s: float) -> None:
        charge(state, job, now_s)

    def resumed(self, state: State, job: Job, now_s: float) -> None:
        _takes(state, job)

    def moved(self, state: State, job: Job, now_s: float) -> None:
        settle(state, job)

    def suspending(self, state: State, job: Job, now_s: float) -> None:
        _leaves(state, job, now_s)

    def leaving(self, state: State, job: Job, now_s: float) -> None:
        _leaves(state, job, now_s)

    def withdrawn(self, state: State, job: Job) -> None:
        if state.rounds is not None:
            state.rounds.plan.pop(job.job_id, None)

    def policy_changing(self, state: State, policy: str, now_s: float) -> None:
        state.rounds, state.asked = None, ""


def _takes(state: State, job: Job) -> None:
    """The job holds GPUs now: those that the round keeps for it, else such as no share claims."""
    if state.rounds is not None and state.rounds.plan.pop(job.job_id, None) is None:
        state.rounds.beyond[job.job_id] = None
    settle(state, job)


def _leaves(state: State, job: Job, now_s: float) -> None:
    """The job holds none any more."""
    if job.phase is ACTIVE:
        charge(state, job, now_s)
    if state.rounds is not None and job.job_id not in state.rounds.plan:
        state.rounds.beyond.pop(job.job_id, None)


def settle(state: State, job: Job) -> None:
    """The job has new GPUs, or somebody new on them: how fast it is from now on."""
    task = job.gang[0]
    job.gpu_type = state.nodes[task.node_id].gpus[task.gpu_indices[0]].gpu_type
    partner = partner_of(state, job)
    if partner is not None:
        both = together(state, job, partner, [job.gpu_type]).get(job.gpu_type)
        if both is not None:
            job.pace = both[0]
            return
    job.pace = rates(state, job, [job.gpu_type]).get(job.gpu_type, 0.0)


def keep_credit(rounds: Rounds, shares: list[Share]) -> None:
    """Only what the new shares still promise is owed: a row or a type without a share has no claim."""
    kept: dict[str, dict[str, float]] = {}
    for share in shares:
        key = row_key(share.jobs)
        before = rounds.credit.get(key, {})
        kept[key] = {gpu_type: before.get(gpu_type, 0.0) for gpu_type in share.time}
    rounds.credit = kept
