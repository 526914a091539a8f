"""The mechanism: allocation, rounds, leases, and idle GPUs given away at once."""

from __future__ import annotations

from libs.contracts.placement import AllocationComputed, AllocationRequested, Lease, RoundStarted, Share
from libs.contracts.reasons import Number, PendingReason, Reason
from libs.kernel.machine import Turn
from services.placement.core import gangs
from services.placement.core.placing import place, preempt, tell
from services.placement.core.policies.allocation.problem import SolverFailed
from services.placement.core.policies.allocation.solve import solve
from services.placement.core.policies.baselines.isolated import isolated
from services.placement.core.rounds import ledger
from services.placement.core.rounds.places import assign
from services.placement.core.rounds.question import INDIVIDUAL, competitors, fingerprint, pools, question
from services.placement.core.rounds.rates import rates
from services.placement.core.rounds.selection import RENEWAL_BONUS, Claim, Wish, fill, select
from services.placement.core.state import Job, Node, Phase, Rounds, State
from services.placement.core.table import machine


def go_on(state: State, turn: Turn[State]) -> None:
    """After any event: begin a round when one is due, place whom the round waits for, give idle GPUs away."""
    if _round_is_due(state, turn.now_s):
        jobs = competitors(state)
        if state.asked or not jobs:
            return
        gpus = pools(state)
        mark = fingerprint(state, jobs, gpus)
        if _must_compute(state, mark, turn.now_s):
            _ask(state, mark, jobs, gpus, turn)
            return
        _begin_round(state, jobs, gpus, turn)
    _go_on_with_round(state, turn)


def _go_on_with_round(state: State, turn: Turn[State]) -> None:
    rounds = state.rounds
    assert rounds is not None
    _place_planned(state, rounds, turn)
    _give_idle_away(state, rounds, turn)
    for job in _waiting(state, rounds):
        if not job.wait_code:
            tell(state, job, _why_it_waits(rounds, job), turn)
    state.wakeup_s = rounds.ends_s if state.jobs else None


def _waiting(state: State, rounds: Rounds) -> list[Job]:
    """Jobs on the queue that no place is kept for, in order of arrival."""
    orders = [order for orders in state.queue.values() for order in orders if order[2] not in rounds.plan]
    return sorted((state.jobs[job_id] for _, _, job_id in orders), key=lambda job: job.seq)


def _round_is_due(state: State, now_s: float) -> bool:
    return state.rounds is None or now_s >= state.rounds.ends_s


def _must_compute(state: State, mark: str, now_s: float) -> bool:
    """After a reset event; and at intervals where the answer depends on how far each job is."""
    rounds = state.rounds
    if rounds is None or rounds.question != mark:
        return True
    return state.policy in INDIVIDUAL and now_s - rounds.computed_s >= state.recompute_s


def _ask(state: State, mark: str, jobs: list[Job], gpus: dict[str, int], turn: Turn[State]) -> None:
    numbers: dict[str, Number] = {"jobs": len(jobs), **{f"gpus.{t}": count for t, count in gpus.items()}}
    message = f"{len(jobs)} jobs compete for {sum(gpus.values())} GPUs"
    reason = Reason(code="RoundIsDue", message=message, numbers=numbers)
    turn.emit(AllocationRequested(policy=state.policy, question=mark, reason=reason))
    problem = question(state, jobs, gpus, turn.now_s)
    note = ""
    try:
        solution = solve(problem)
    except SolverFailed as error:
        solution, note = isolated(problem), f"every job gets its part of the cluster: {error}"
    turn.emit(
        AllocationComputed(
            policy=state.policy,
            question=mark,
            objective=solution.objective,
            shares=[Share(jobs=list(row.jobs), time=row.time) for row in solution.allocation],
            infeasible=solution.infeasible,
            jobs=len(jobs),
            iterations=solution.iterations,
            note=note,
        )
    )


def _begin_round(state: State, jobs: list[Job], gpus: dict[str, int], turn: Turn[State]) -> None:
    rounds = state.rounds
    assert rounds is not None
    types = list(gpus)
    chosen = select(_claims(state, rounds, jobs), gpus)
    seated = {job_id: None for seat in chosen for job_id in seat.jobs}
    beyond = fill([_wish(state, job, types) for job in _by_debt(rounds, jobs) if job.job_id not in seated], gpus)
    plan = assign(state, [*chosen, *beyond])
    turn.emit(
        RoundStarted(
            policy=state.policy,
            number=rounds.number + 1,
            ends_s=turn.now_s + state.round_s,
            renewed=plan.renewed,
            leases=plan.leases,
            packs=[list(seat.jobs) for seat in chosen if len(seat.jobs) > 1],
            beyond=[job_id for seat in beyond for job_id in seat.jobs],
        )
    )
    renewed = dict.fromkeys(plan.renewed)
    for job in jobs:
        if job.phase is Phase.ACTIVE and job.job_id not in renewed and job.leaving is None and not job.stopping:
            preempt(state, job, _why_it_leaves(rounds, job), turn)


def _claims(state: State, rounds: Rounds, jobs: list[Job]) -> list[Claim]:
    """What each row will be owed on each type at the end of this round, running rows a little more."""
    competing = {job.job_id: job for job in jobs}
    claims = []
    for share in rounds.shares:
        members = [competing[job_id] for job_id in share.jobs if job_id in competing]
        if len(members) != len(share.jobs):
            continue
        credit = rounds.credit[ledger.row_key(share.jobs)]
        for gpu_type, fraction in share.time.items():
            owed_s = credit[gpu_type] + fraction * state.round_s
            if owed_s <= 0:
                continue
            if all(_runs_on(job, gpu_type) for job in members):
                owed_s += RENEWAL_BONUS * state.round_s
            claims.append(
                Claim(
                    jobs=tuple(share.jobs),
                    gpu_type=gpu_type,
                    width=members[0].spec.gpus.count,
                    owed_s=owed_s,
                    order=members[0].seq,
                )
            )
    return claims


def _runs_on(job: Job, gpu_type: str) -> bool:
    return job.phase is Phase.ACTIVE and job.leaving is None and job.gpu_type == gpu_type


def _by_debt(rounds: Rounds, jobs: list[Job]) -> list[Job]:
    """Who is owed most first, then in queue order."""
    return sorted(jobs, key=lambda job: (-sum(rounds.credit.get(job.job_id, {}).values()), job.order))


def _wish(state: State, job: Job, types: list[str]) -> Wish:
    active = job.phase is Phase.ACTIVE and job.leaving is None and not job.stopping
    return Wish(
        job_id=job.job_id,
        width=job.spec.gpus.count,
        rates=_seen(state, job, types),
        running_on=job.gpu_type if active else "",
    )


def _seen(state: State, job: Job, types: list[str]) -> dict[str, float]:
    """The job's rates as the policy sees them: an agnostic one sees no difference between types."""
    known = rates(state, job, types)
    return known if state.options.heterogeneity_aware else dict.fromkeys(known, 1.0)


def _place_planned(state: State, rounds: Rounds, turn: Turn[State]) -> None:
    for job_id, lease in list(rounds.plan.items()):
        job = state.jobs[job_id]
        if job.phase is Phase.QUEUED and not job.held and _is_free(state, lease):
            place(state, job, lease.gang, _why_here(rounds, job, lease), turn, lease.packed_with)


def _is_free(state: State, lease: Lease) -> bool:
    for task in lease.gang:
        node = state.nodes[task.node_id]
        if not node.usable:
            return False
        for gpu in (node.gpus[index] for index in task.gpu_indices):
            if not gpu.healthy or any(holder not in lease.packed_with for holder in gpu.holders):
                return False
    return True


def _give_idle_away(state: State, rounds: Rounds, turn: Turn[State]) -> None:
    """A GPU that became free, or a job that arrived, does not wait for the end of the round."""
    waiting = _waiting(state, rounds)
    free = _idle(state, rounds) if waiting else {}
    if not free:
        return
    for job in _by_debt(rounds, waiting):
        known = _seen(state, job, list(free))
        idle = {t: sum(len(indices) for _, indices in free[t]) for t in free}
        for gpu_type in sorted(known, key=lambda t: (-known[t], -idle[t], t)):
            fits = gangs.fits_of_type(job.spec.gpus, gpu_type, free[gpu_type])
            fit = min(fits, key=lambda f: (f.nodes, f.racks), default=None)
            if fit is not None:
                place(state, job, fit.gang, _why_idle(job, gpu_type), turn)
                free = _idle(state, rounds)
                break


def _idle(state: State, rounds: Rounds) -> dict[str, list[tuple[Node, list[int]]]]:
    """{GPU type: servers with their free GPUs}, without those that a lease waits for."""
    planned = {(t.node_id, i) for lease in rounds.plan.values() for t in lease.gang for i in t.gpu_indices}
    found: dict[str, list[tuple[Node, list[int]]]] = {}
    for node in state.nodes.values():
        if not node.usable:
            continue
        by_type: dict[str, list[int]] = {}
        for index, gpu in enumerate(node.gpus):
            if not gpu.holders and gpu.healthy and (node.node_id, index) not in planned:
                by_type.setdefault(gpu.gpu_type, []).append(index)
        for gpu_type, indices in by_type.items():
            found.setdefault(gpu_type, []).append((node, indices))
    return found


def _share_of(rounds: Rounds, job: Job) -> tuple[str, dict[str, Number]]:
    """The job's share, as words and as numbers."""
    time: dict[str, float] = {}
    for share in rounds.shares:
        if job.job_id in share.jobs:
            for gpu_type, fraction in share.time.items():
                time[gpu_type] = time.get(gpu_type, 0.0) + fraction
    words = " and ".join(f"{100 * fraction:.0f} % of the time on {gpu_type}" for gpu_type, fraction in time.items())
    return words or "no share", {f"share.{gpu_type}": round(fraction, 6) for gpu_type, fraction in time.items()}


def _why_here(rounds: Rounds, job: Job, lease: Lease) -> Reason:
    words, numbers = _share_of(rounds, job)
    if job.job_id in rounds.beyond:
        return Reason(code="IdleGpus", message=f"no share claims {lease.gpu_type} in this round", numbers=numbers)
    owed_s = rounds.credit.get(job.job_id, {}).get(lease.gpu_type, 0.0)
    return Reason(
        code="Lease",
        message=f"{words}; {max(0.0, owed_s):.0f} s on {lease.gpu_type} are owed",
        numbers={**numbers, "owed_s": owed_s, "round": rounds.number},
    )


def _why_idle(job: Job, gpu_type: str) -> Reason:
    numbers: dict[str, Number] = {"gpus": job.spec.gpus.count}
    return Reason(code="IdleGpus", message=f"{gpu_type} idles until the round ends", numbers=numbers)


def _why_it_leaves(rounds: Rounds, job: Job) -> Reason:
    words, numbers = _share_of(rounds, job)
    message = f"its lease has ended: {words}, and in round {rounds.number} others are owed more"
    return Reason(code=PendingReason.FAIR_SHARE, message=message, numbers=numbers)


def _why_it_waits(rounds: Rounds, job: Job) -> Reason:
    words, numbers = _share_of(rounds, job)
    known = any(job.job_id in share.jobs for share in rounds.shares)
    message = f"{words}; others are owed more in round {rounds.number}" if known else "its share begins with a round"
    return Reason(code=PendingReason.FAIR_SHARE, message=message, numbers=numbers)


machine.hears(AllocationComputed)


@machine.evolves(AllocationRequested)
def allocation_requested(state: State, event: AllocationRequested, now_s: float) -> None:
    state.asked = event.question


@machine.evolves(AllocationComputed)
def allocation_computed(state: State, event: AllocationComputed, now_s: float) -> None:
    if event.question != state.asked:
        return
    state.asked = ""
    ledger.book(state, now_s)
    if state.rounds is None:
        state.rounds = Rounds(shares=[], question="", computed_s=now_s, booked_s=now_s)
    state.rounds.shares, state.rounds.question, state.rounds.computed_s = event.shares, event.question, now_s
    ledger.keep_credit(state.rounds, event.shares)


@machine.decides(AllocationComputed)
def begin_with_new_shares(state: State, event: AllocationComputed, turn: Turn[State]) -> None:
    """Whatever has happened since the question: the round begins with these shares, the next one asks again."""
    jobs = competitors(state)
    if state.rounds is None or state.rounds.question != event.question or not jobs:
        return
    if _round_is_due(state, turn.now_s):
        _begin_round(state, jobs, pools(state), turn)
    _go_on_with_round(state, turn)


@machine.evolves(RoundStarted)
def round_started(state: State, event: RoundStarted, now_s: float) -> None:
    ledger.book(state, now_s)
    if state.rounds is not None:
        state.rounds.number, state.rounds.ends_s = event.number, event.ends_s
        state.rounds.plan = {lease.job_id: lease for lease in event.leases}
        state.rounds.beyond = dict.fromkeys(event.beyond)
        before, state.rounds.packs = (
            state.rounds.packs,
            {a: b for pack in event.packs for a, b in (pack, reversed(pack))},
        )
        for job_id in {**before, **state.rounds.packs}:
            job = state.jobs.get(job_id)
            if job is not None and job.phase is Phase.ACTIVE:
                ledger.settle(state, job)
