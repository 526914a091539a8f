"""What holds for tenants with guarantees, whatever is submitted, on the whole system in simulation.

A *reclaim delay* is the time from QuotaReclaimed until the last victim has left its GPUs: its tasks are told to stop
and do so `stop_delay_s` later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import ANY_TYPE, JobArrived, PolicyChanged, TenantConfigured
from libs.contracts.placement import AttemptFailed, JobPlaced, JobPreempted, JobQueued
from libs.contracts.quota import QuotaGranted, QuotaReclaimed
from libs.contracts.reasons import Reason
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario, events, log_of
from libs.testing.effort import searching
from libs.testing.standing import none_is_left_standing
from libs.testing.strategies import HORIZON_S, crowded_cells, scenarios, times
from services.quota.core import shares
from services.quota.core.nouns import Claim
from services.quota.core.state import State
from services.roster import SERVICES
from tests.properties.test_whole_system import WATCHED, check_books_and_decisions, checked_run

GPUS_PER_SERVER = 4
LONGEST_S = 120
SAID = Reason(code="Test", message="said by the test")
ONE_CELL = searching(by_default=10, thorough=500)


@dataclass(frozen=True)
class Drawn:
    """A cell, and what its tenants were promised."""

    scenario: Scenario
    gpus: int
    guarantees: dict[str, int]
    stop_delay_s: float
    rest_s: float
    jobs: int
    policy: str
    lags: bool
    """Services read the log late, at random: an event may take effect any time after it."""


@st.composite
def clusters(draw: st.DrawFn, *, policies: tuple[str, ...] = ("backfill",)) -> Drawn:
    """Two or three tenants that share 8 to 16 GPUs, and up to 14 jobs of theirs and of a tenant without a guarantee."""
    servers = draw(st.integers(2, 4))
    gpus = servers * GPUS_PER_SERVER
    stop_delay_s = draw(st.sampled_from([0.0, 0.5, 7.0]))
    rest_s = draw(st.sampled_from([0.0, 20.0, 200.0]))
    scenario = Scenario(seed=draw(st.integers(0, 3))).servers(GPUS_PER_SERVER, v100=gpus)
    interleaving = draw(st.one_of(st.none(), st.integers(0, 5)))
    scenario.options(stop_delay_s=stop_delay_s, interleaving=interleaving)
    scenario.setting("quota", "reclaim_above", draw(st.sampled_from([0.0, 0.5, 0.9])))
    scenario.setting("quota", "reclaim_rest_s", rest_s)
    policy = draw(st.sampled_from(policies))
    if policy != policies[0]:
        scenario.plan(0.0, PolicyChanged(policy=policy, requested_by=OPERATOR))
    guarantees = _draw_tenants(draw, scenario, gpus)
    times = st.integers(0, 300).map(float)
    jobs = draw(st.integers(4, 14))
    for number in range(jobs):
        scenario.job(
            f"job-{number}",
            draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8])),
            at=draw(times),
            runs_s=float(draw(st.integers(5, LONGEST_S))),
            tenant=draw(st.sampled_from([*guarantees, "guest"])),
            user=draw(st.sampled_from(["ann", "bob"])),
            restartable=draw(st.booleans()),
        )
    return Drawn(scenario, gpus, guarantees, stop_delay_s, rest_s, jobs, policy, lags=interleaving is not None)


def _draw_tenants(draw: st.DrawFn, scenario: Scenario, gpus: int) -> dict[str, int]:
    left, guarantees = gpus, dict[str, int]()
    above = draw(st.sampled_from(["", "above"]))
    for name in ("a", "b", "c")[: draw(st.integers(2, 3))]:
        guarantees[name] = draw(st.integers(0 if guarantees else 1, left))
        left -= guarantees[name]
    if above:
        total = sum(guarantees.values()) + draw(st.integers(0, left))
        scenario.tenant(above, None, guarantees={"v100": total})
    for name, guaranteed in guarantees.items():
        key = draw(st.sampled_from(["v100", ANY_TYPE])) if not above else "v100"
        scenario.tenant(
            name,
            None,
            parent=above,
            guarantees={key: guaranteed} if guaranteed else {},
            weight=draw(st.sampled_from([1.0, 3.0])),
            per_user=draw(st.sampled_from([{}, {"v100": 8}, {ANY_TYPE: 9}])),
        )
    return guarantees


class Ledger:
    """Claims on quota, from the log alone: what each job was granted, and from which share."""

    def __init__(self) -> None:
        self.granted: dict[str, QuotaGranted] = {}
        self.specs: dict[str, JobArrived] = {}
        self.tenants: dict[str, TenantConfigured] = {}
        self.ended: dict[str, float] = {}
        """{job: latest attempt that is over}: a grant of it has crossed with its end."""

    def take(self, event: Event) -> None:
        if isinstance(event, JobArrived):
            self.specs[event.job_id] = event
        elif isinstance(event, TenantConfigured):
            self.tenants[event.tenant] = event
        elif isinstance(event, QuotaGranted):
            if event.attempt > self.ended.get(event.job_id, 0):
                self.granted[event.job_id] = event
        elif isinstance(event, (*TERMINAL, AttemptFailed)):
            self.granted.pop(event.subject, None)
            self.ended[event.subject] = event.attempt if isinstance(event, AttemptFailed) else math.inf
        elif isinstance(event, JobQueued) and event.returns_to_quota:
            self.granted.pop(event.job_id, None)
            self.ended[event.job_id] = event.attempt - 1

    def used(self, tenant: str, user: str | None = None) -> int:
        return sum(
            event.gpus
            for job_id, event in self.granted.items()
            if event.tenant == tenant and user in (None, self.specs[job_id].spec.user)
        )


def check_limits(drawn: Drawn, control: list[Envelope]) -> None:
    """No more is granted than the cell has, and no user has more than the tenant allows."""
    ledger = Ledger()
    for envelope in control:
        ledger.take(envelope.event)
        if not isinstance(envelope.event, QuotaGranted) or envelope.event.job_id not in ledger.granted:
            continue
        assert sum(event.gpus for event in ledger.granted.values()) <= drawn.gpus
        spec = ledger.specs[envelope.event.job_id].spec
        tenant = ledger.tenants.get(spec.tenant)
        for limit in (tenant.per_user if tenant is not None else {}).values():
            assert ledger.used(spec.tenant, spec.user) <= limit


def check_victims(drawn: Drawn, control: list[Envelope]) -> None:
    """No job is a victim before it has rested."""
    before = dict[str, float]()
    for envelope in control:
        for victim in envelope.event.victims if isinstance(envelope.event, QuotaReclaimed) else ():
            assert envelope.time_s - before.get(victim.job_id, -1e9) >= drawn.rest_s
            before[victim.job_id] = envelope.time_s


def check_books(simulation: Simulation, drawn: Drawn) -> None:
    """Every job ends, those that were victims too, and nothing was granted or taken that must not be."""
    ended = [event.job_id for event in events(simulation, *TERMINAL)]
    assert len(ended) == len(set(ended)) == drawn.jobs
    books = conservation(simulation.records())
    assert books.violations == []
    assert books.gpus_held == 0
    none_is_left_standing(simulation)
    check_limits(drawn, simulation.log.control)
    check_victims(drawn, simulation.log.control)


def none_below_its_guarantee(running: Simulation) -> None:
    """A job that has borrowed, and may so become a victim, is in no guarantee's room: those keep all that they back."""
    for replica in running.replicas.values():
        replica.check()
    state = running.replicas["quota"].state
    assert isinstance(state, State)
    for claim in state.claims.values():
        if claim.granted and not claim.guarantee_of:
            assert claim.is_victim or shares.backing(state, claim, [claim.gpu_type], shares.Drafted()) is None
        assert not (claim.is_victim and claim.guarantee_of), "a victim is within a guarantee"


def works(state: State, node_id: str, index: int) -> bool:
    """Whether a job may be placed on the GPU."""
    node = state.nodes[node_id]
    return node.present and not node.draining and index not in node.sick and index not in node.cordoned


def has(state: State, claim: Claim) -> int:
    """GPUs of the job that another one could be placed on, once they are free."""
    return claim.gpus - sum(not works(state, node_id, i) for node_id, gpus in claim.gang.items() for i in gpus)


def next_owed(state: State, gpus: int) -> Claim | None:
    """The first job that a guarantee owes so many GPUs as can be used: by arrival, by weight where they are too few."""
    owed: list[tuple[float, int, Claim]] = []
    few = gpus < sum(sum(state.tree.net(name).values()) for name in state.tenants)
    for name in state.tenants:
        head, found = head_owed(state, name, gpus)
        if head is not None and found is not None:
            used = sum(claim.gpus for claim in state.claims.values() if claim.guarantee_of == found.tenant)
            owed.append((used / state.tenants[found.tenant].weight if few else 0.0, head.seq, head))
    return min(owed, key=lambda each: each[:2])[2] if owed else None


def head_owed(state: State, name: str, gpus: int) -> tuple[Claim | None, shares.Backing | None]:
    """The tenant's first job that none of its others holds up, and what backs it.

    A job holds the others up, unless it is larger than all that can be used, or than any guarantee that it could be
    within, or waits for a limit of its user.
    """
    for _, _, job_id in state.tenant(name).waiting:
        claim = state.claims[job_id]
        stop = shares.blocked(state, claim, "v100", shares.Drafted())
        if claim.gpus > gpus or not shares.can_be_backed(state, claim) or (stop is not None and stop.user):
            continue
        return (None, None) if stop is not None else (claim, shares.backing(state, claim, ["v100"], shares.Drafted()))
    return None, None


def reclaims_what_it_can(running: Simulation) -> None:
    """The first job within a guarantee is granted if it fits, else has victims if borrowers have enough."""
    none_below_its_guarantee(running)
    state = running.replicas["quota"].state
    assert isinstance(state, State)
    gpus = sum(works(state, node_id, i) for node_id, node in state.nodes.items() for i in range(len(node.gpu_types)))
    first = next_owed(state, gpus) if state.has_guarantees else None
    if first is None:
        return
    granted = [claim for claim in state.claims.values() if claim.granted]
    short = first.gpus - gpus + sum(has(state, claim) for claim in granted if not claim.is_victim)
    assert short > 0 or any(claim.is_victim for claim in granted), "it fits, and is not granted"
    if short > 0 and sum(has(state, claim) for claim in granted if claim.gang) > state.reclaim_above * gpus:
        lent = [claim for claim in granted if not claim.guarantee_of and claim.victim_s is None]
        lent = [claim for claim in lent if claim.tenant != first.tenant or claim.seq > first.seq]
        assert sum(has(state, claim) for claim in lent) < short, "borrowers have enough, and none is a victim"


def waits_s(simulation: Simulation) -> dict[str, float]:
    """{job: seconds from QuotaReclaimed for it to its grant}."""
    asked: dict[str, float] = {}
    found: dict[str, float] = {}
    for envelope in simulation.log.control:
        event = envelope.event
        if isinstance(event, QuotaReclaimed):
            asked.setdefault(event.job_id, envelope.time_s)
        elif isinstance(event, QuotaGranted) and event.job_id in asked:
            found[event.job_id] = envelope.time_s - asked.pop(event.job_id)
    return found


@ONE_CELL
@given(clusters())
def test_guarantees_hold_and_what_was_lent_comes_back(drawn: Drawn):
    simulation = drawn.scenario.build(WATCHED)
    simulation.run(reclaims_what_it_can)
    check_books(simulation, drawn)
    for job_id, waited_s in waits_s(simulation).items() if not drawn.lags else ():
        assert waited_s <= drawn.stop_delay_s, f"{job_id} has waited longer than one reclaim delay"
    state = simulation.replicas["quota"].state
    assert isinstance(state, State)
    assert all(
        tenant.used_gpus == tenant.guaranteed_gpus == 0 and not tenant.taken for tenant in state.tenants.values()
    )


@ONE_CELL
@given(clusters(policies=("backfill", "gandiva", "max_min_fairness")))
def test_victims_are_suspended_where_the_policy_suspends(drawn: Drawn):
    """They go on where they were, and only with quota; the others are stopped, last those that begin anew."""
    simulation = checked_run(drawn.scenario, none_below_its_guarantee)
    check_books(simulation, drawn)
    told = {JobQueued: events(simulation, JobQueued), JobPreempted: events(simulation, JobPreempted)}
    still = {event.job_id for event in told[JobQueued] if event.suspended}
    assert not still or drawn.policy != "backfill"
    for reclaimed in events(simulation, QuotaReclaimed):
        ways = [victim.way for victim in reclaimed.victims]
        assert ways == sorted(ways, key=["", "suspend", "restart", "preempt"].index)
        assert all(victim.lost_gpu_s == 0 or victim.way == "preempt" for victim in reclaimed.victims)
        if drawn.policy == "gandiva":
            assert {"restart", "preempt"}.isdisjoint(ways)
    if drawn.policy == "max_min_fairness":
        restartable = {job.job_id for job in simulation.workload.jobs if job.spec.restartable}
        between = {event.job_id for event in told[JobQueued] if event.suspended and event.job_id in restartable}
        assert not between, "what saves its work is stopped"
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])


@ONE_CELL
@given(clusters())
def test_gangs_start_whole_and_within_a_bound(drawn: Drawn):
    """A job waits at most for all others to run once more than it was a victim, and for their reclaims and rests."""
    simulation = checked_run(drawn.scenario)
    wanted = {job.job_id: job.spec.gpus.count for job in simulation.workload.jobs}
    reclaims = len(events(simulation, QuotaReclaimed))
    runs = len(events(simulation, JobPlaced))
    bound_s = runs * (LONGEST_S + 60.0) + reclaims * (drawn.stop_delay_s + drawn.rest_s)
    for placed in events(simulation, JobPlaced):
        assert sum(len(task.gpu_indices) for task in placed.gang) == wanted[placed.job_id]
    for job_id, outcome in simulation.outcomes.items():
        assert outcome.first_start_s is not None
        assert drawn.lags or outcome.first_start_s - outcome.submit_s <= bound_s, job_id


@ONE_CELL
@given(clusters())
def test_every_decision_about_shares_can_be_derived_again(drawn: Drawn):
    simulation = checked_run(drawn.scenario)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])


@st.composite
def troubled_cells(draw: st.DrawFn) -> Scenario:
    """Cells with faults, drains, pauses, other policies and changing limits, whose tenants have guarantees too."""
    guarantees = st.sampled_from([{ANY_TYPE: 1}, {"v100": 2}, {"k80": 1, ANY_TYPE: 1}, {}])
    cells = (scenarios(), scenarios(policy="max_min_fairness"), scenarios(policy="gandiva"), crowded_cells())
    scenario = draw(st.one_of(*cells))
    scenario.setting("quota", "reclaim_above", draw(st.sampled_from([0.0, 0.9])))
    scenario.setting("quota", "reclaim_rest_s", draw(st.sampled_from([0.0, 60.0])))
    for tenant in ("research", "product"):
        for at in draw(st.lists(times, max_size=2)):
            scenario.tenant(tenant, None, at=at, guarantees=draw(guarantees), lend=draw(st.booleans()))
        # What is not lent at the end is lent then: jobs beyond the guarantees would otherwise wait for ever.
        scenario.tenant(tenant, None, at=HORIZON_S, guarantees=draw(guarantees))
    return scenario


@ONE_CELL
@given(troubled_cells())
def test_whatever_goes_wrong_every_job_ends_and_the_books_balance(scenario: Scenario):
    check_books_and_decisions(scenario)
