"""Each mechanism alone; and a fourth one, which is all that it takes to have another."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import (
    AllocationComputed,
    GangReleased,
    GangReserved,
    JobPlaced,
    JobPreempted,
    JobSucceeded,
    RoundStarted,
    TimeSliceStarted,
)
from libs.contracts.reasons import Reason
from libs.inspect.verify import verify
from libs.policies.policy import Policy
from libs.policies.table import POLICIES
from libs.testing.builders import Scenario, events, log_of
from libs.testing.core_case import only
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.lifecycle.placing import placed
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import HeadsInOrder
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.mechanisms.queueing.mechanism import QueueingMechanism
from services.placement.core.mechanisms.rounds.mechanism import RoundsMechanism
from services.placement.core.mechanisms.slicing.mechanism import SlicingMechanism
from services.placement.core.mechanisms.table import MECHANISMS
from services.roster import SERVICES
from tests.unit.placement.mechanism_alone import Alone


def test_queueing_places_what_fits_and_keeps_nodes_for_a_gang_that_has_waited():
    alone = Alone(QueueingMechanism(), "backfill", n1=2, n2=2)
    for job_id, gpus in (("a", 2), ("b", 1), ("gang", 4)):
        alone.queue(job_id, gpus)
    assert [event.job_id for event in alone.step() if isinstance(event, JobPlaced)] == ["a", "b"]
    due_s = alone.cell.settings.reserve_after_s
    assert due_s in list(alone.mechanism.moments(alone.cell))
    assert only(alone.step(after_s=due_s), GangReserved).job_id == "gang"
    alone.queue("small")
    assert not [event for event in alone.step() if isinstance(event, JobPlaced)]
    alone.end("a")
    alone.end("b")
    said = alone.step()
    assert only(said, GangReleased).job_id == "gang" and only(said, JobPlaced).job_id == "gang"


def test_rounds_ask_for_shares_and_give_each_round_to_the_jobs_that_are_owed_most():
    alone = Alone(RoundsMechanism(), "max_min_fairness", n1=1)
    alone.queue("a", restartable=True)
    alone.queue("b", restartable=True)
    computed = only(alone.step(), AllocationComputed)
    assert {share.jobs: share.time for share in computed.shares} == {("a",): {"v100": 0.5}, ("b",): {"v100": 0.5}}
    first = alone.step()
    assert only(first, RoundStarted).number == 1 and alone.running == ["a"]
    [end_s] = alone.mechanism.moments(alone.cell)
    assert only(alone.step(after_s=end_s), RoundStarted).renewed == ["a"], "b is owed a round, and one is not more"
    last = alone.step(after_s=end_s)
    assert only(last, JobPreempted).job_id == "a"
    assert [lease.job_id for lease in only(last, RoundStarted).leases] == ["b"]
    alone.end("a")
    assert only(alone.step(), JobPlaced).job_id == "b"


def test_slices_let_jobs_take_turns_and_charge_them_for_what_they_have_had():
    alone = Alone(SlicingMechanism(), "gandiva", n1=1)
    alone.queue("a")
    assert only(alone.step(), JobPlaced).job_id == "a"
    alone.queue("b")
    turns = [alone.running]
    for _ in range(4):
        said = alone.step(after_s=alone.cell.settings.slice_s)
        assert only(said, TimeSliceStarted).ends_s in list(alone.mechanism.moments(alone.cell))
        turns.append(alone.running)
    assert turns == [["a"], ["b"], ["a"], ["b"], ["a"]]


def test_a_mechanism_that_is_not_in_force_ends_what_it_has_left():
    alone = Alone(QueueingMechanism(), "backfill", n1=2)
    alone.queue("a", 1)
    alone.queue("gang", 2)
    alone.step()
    only(alone.step(after_s=alone.cell.settings.reserve_after_s), GangReserved)
    alone.cell.policy = "gandiva"
    [end] = alone.mechanism.wind_down(alone.cell, SlicingMechanism(), Moment(alone.now_s, "cause"))
    assert isinstance(end, GangReleased) and end.job_id == "gang"


class OneAtATime(Mechanism):
    """The whole cluster is one job's until it ends; the next one is the first of the queue that fits."""

    kind = "one_at_a_time"

    def step(self, cell: Cell, moment: Moment) -> Plan:
        if any(job.gang for job in cell.jobs.values()):
            return
        for job in HeadsInOrder(cell):
            fit = gangs.best_fit(job.spec.gpus, cell.servers())
            if fit is not None:
                yield placed(job, fit.gang, Reason(code="ItsTurn", message="no other job runs"))
                return


@pytest.fixture
def fourth(monkeypatch: pytest.MonkeyPatch) -> str:
    policy = Policy(name="solo", kind=OneAtATime.kind, describes="One job at a time.")
    monkeypatch.setitem(POLICIES, policy.name, policy)
    monkeypatch.setitem(MECHANISMS, OneAtATime.kind, OneAtATime())
    return policy.name


def test_a_fourth_mechanism_is_selected_runs_and_replays(fourth: str):
    scenario = Scenario().servers(v100=8).plan(0.0, PolicyChanged(policy=fourth, requested_by="op"))
    for number in range(12):
        scenario.job(f"j{number}", gpus=1 + number % 3, runs_s=30, at=1.0)
    simulation = scenario.run(SERVICES)
    order = [type(event) for event in events(simulation, JobPlaced, JobSucceeded)]
    assert order == [JobPlaced, JobSucceeded] * 12
    assert verify(log_of(simulation), SERVICES).ok


@pytest.mark.parametrize("policy", ["backfill", "max_min_fairness", "gandiva"])
@pytest.mark.parametrize("back", [False, True])
def test_a_fourth_mechanism_takes_over_under_way_and_gives_back(fourth: str, policy: str, *, back: bool):
    before, after = (fourth, policy) if back else (policy, fourth)
    scenario = Scenario().servers(v100=4)
    scenario.plan(0.0, PolicyChanged(policy=before, requested_by="op"))
    scenario.plan(100.0, PolicyChanged(policy=after, requested_by="op"))
    for number in range(12):
        scenario.job(f"j{number}", gpus=1 + number % 3, runs_s=200, at=1.0, restartable=number % 2 == 0)
    simulation = scenario.run(SERVICES)
    assert len(events(simulation, JobSucceeded)) == 12
    preempted = {event.job_id for event in events(simulation, JobPreempted)}
    assert preempted <= ({f"j{number}" for number in range(0, 12, 2)} if policy == "max_min_fairness" else set())
    assert verify(log_of(simulation), SERVICES).ok
