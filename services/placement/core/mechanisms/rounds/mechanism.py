"""The mechanism: allocation, rounds, leases, and idle GPUs given away at once."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.placement import AllocationComputed, AllocationRequested, RoundStarted
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.policies.allocation.solve import solve
from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.baselines.isolated import isolated
from libs.policies.problem import SolverFailed
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.table import machine
from services.placement.core.mechanisms.rounds import ledger
from services.placement.core.mechanisms.rounds.claims import by_debt, claims, wish
from services.placement.core.mechanisms.rounds.giving import give
from services.placement.core.mechanisms.rounds.homes import crowded, host_rooms, resting, rooms
from services.placement.core.mechanisms.rounds.leaving import make_way
from services.placement.core.mechanisms.rounds.places import Plan, Present, assign
from services.placement.core.mechanisms.rounds.question import (
    Offered,
    competitors,
    fingerprint,
    offered,
    question,
    totals,
)
from services.placement.core.mechanisms.rounds.selection import Claim, Seat, fill, select
from services.placement.core.sharing.estimates import missing
from services.placement.core.state import Rounds, State


def go_on(state: State, turn: Turn[State]) -> None:
    """After any event: begin a round when one is due, place whom the round waits for, give idle GPUs away."""
    if _round_is_due(state, turn.now_s):
        jobs = competitors(state)
        if state.asked or not jobs:
            return
        gpus = offered(state)
        counts = totals(gpus)
        mark = fingerprint(state, jobs, counts)
        if _must_compute(state, mark, turn.now_s):
            _ask(state, mark, jobs, counts, turn)
            return
        _begin_round(state, jobs, gpus, turn)
    _go_on_with_round(state, turn)


def _go_on_with_round(state: State, turn: Turn[State]) -> None:
    assert state.rounds is not None
    give(state, state.rounds, turn)


def moments(state: State) -> Iterator[float]:
    """When the round is over, unless an allocation is awaited: the next one begins with that."""
    if state.rounds is not None and state.jobs and not state.asked:
        yield state.rounds.ends_s


def _round_is_due(state: State, now_s: float) -> bool:
    return state.rounds is None or now_s >= state.rounds.ends_s


def _must_compute(state: State, mark: str, now_s: float) -> bool:
    """After a reset event; and at intervals where the answer depends on how far each job is."""
    rounds = state.rounds
    if rounds is None or rounds.question != mark:
        return True
    return ALLOCATION_POLICIES[state.policy].sees_work and now_s - rounds.computed_s >= state.recompute_s


def _ask(state: State, mark: str, jobs: list[Job], gpus: dict[str, int], turn: Turn[State]) -> None:
    numbers: dict[str, Number] = {"jobs": len(jobs), **{f"gpus.{t}": count for t, count in gpus.items()}}
    message = f"{len(jobs)} jobs compete for {sum(gpus.values())} GPUs"
    reason = Reason(code="RoundIsDue", message=message, numbers=numbers)
    turn.emit(AllocationRequested(policy=state.policy, question=mark, reason=reason))
    if state.options.space_sharing and gpus:
        for estimate in missing(state, jobs, list(gpus)):
            turn.emit(estimate)
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
            shares=solution.allocation,
            infeasible=solution.infeasible,
            jobs=len(jobs),
            iterations=solution.iterations,
            note=note,
        )
    )


def _begin_round(state: State, jobs: list[Job], gpus: Offered, turn: Turn[State]) -> None:
    rounds = state.rounds
    assert rounds is not None
    present = Present(
        running={job.job_id: job for job in jobs if job.stays},
        suspended={job.job_id: job for job in resting(state)},
    )
    chosen, beyond, plan = _planned(state, rounds, jobs, present, gpus)
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
    make_way(state, rounds, present, plan, turn)


def _planned(
    state: State, rounds: Rounds, jobs: list[Job], present: Present, gpus: Offered
) -> tuple[list[Claim], list[Seat], Plan]:
    """Who runs by its share, who on what is left, and where.

    A job that was to begin where no server takes it gives its seat back, before others have left for it.
    """
    types, claimed = list(gpus), claims(state, rounds, jobs, present.running)
    hosts = host_rooms(state)
    most: dict[str, int] = {}
    while True:
        left, left_rooms = totals(gpus), rooms(gpus, hosts, most) if hosts else {}
        chosen = select(claimed, left, left_rooms)
        seated = {job_id: None for seat in chosen for job_id in seat.jobs}
        others = by_debt(rounds, [job for job in jobs if job.job_id not in seated])
        beyond = fill([wish(state, job, types) for job in others], left, left_rooms)
        plan = assign(state, [*chosen, *beyond], present, gpus, hosts)
        if not plan.refused:
            return chosen, beyond, plan
        most |= {gpu_type: plan.begun.get(gpu_type, 0) for gpu_type in plan.refused}


machine.hears(AllocationComputed)


@machine.evolves(AllocationRequested)
def allocation_requested(state: State, event: AllocationRequested, now_s: float) -> None:
    state.asked = event.question


@machine.evolves(AllocationComputed)
def allocation_computed(state: State, event: AllocationComputed, now_s: float) -> None:
    if event.question != state.asked:
        return
    state.asked = ""
    rounds = ledger.booked(state, now_s)
    rounds.shares, rounds.question, rounds.computed_s = event.shares, event.question, now_s
    rounds.rows = {}
    for row, share in enumerate(event.shares):
        for job_id in share.jobs:
            rounds.rows.setdefault(job_id, []).append(row)
    ledger.keep_credit(rounds, event.shares)


@machine.decides(AllocationComputed)
def begin_with_new_shares(state: State, event: AllocationComputed, turn: Turn[State]) -> None:
    """Whatever has happened since the question: the round begins with these shares, the next one asks again."""
    jobs = competitors(state)
    if state.rounds is None or state.rounds.question != event.question or not jobs:
        return
    if _round_is_due(state, turn.now_s):
        _begin_round(state, jobs, offered(state), turn)
    _go_on_with_round(state, turn)


@machine.evolves(RoundStarted)
def round_started(state: State, event: RoundStarted, now_s: float) -> None:
    ledger.book(state, now_s)
    if state.rounds is not None:
        state.rounds.crowded = crowded(state, state.rounds)
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
