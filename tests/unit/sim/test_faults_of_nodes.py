"""What befalls nodes under a lease, as the log and the tasks' own record show it."""

from __future__ import annotations

import pytest

from libs.contracts.agent import JobExited, JobStarted, NodeJoined
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import JobSucceeded
from libs.sim.leases import Lease
from libs.sim.options import FaultKind
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, events
from services.roster import SERVICES

DEFAULT = Lease()
SILENT = (FaultKind.SILENCE, FaultKind.FREEZE, FaultKind.AGENT_RESTART, FaultKind.REFUSED_TOKEN, FaultKind.JOURNAL_LOST)
"""Kinds in which the tasks live."""


def befallen(kind: FaultKind, for_s: float, *, lease: Lease = DEFAULT, at: float = 30.0, **more: float) -> Simulation:
    """A job of 100 s on one of two nodes, to which something happens; then time until nothing is under way any more."""
    scenario = Scenario().servers(1, v100=2).options(lease=lease).job("a", runs_s=100.0)
    scenario.fault(kind, "v100-000", at=at, for_s=for_s, **more).tenant("t", None, at=1000.0)
    return scenario.run(SERVICES)


def stretches(simulation: Simulation) -> list[tuple[int, float, float]]:
    return [(each.attempt, each.from_s, each.to_s) for each in simulation.world.witness().of("a")]


@pytest.mark.parametrize("kind", SILENT)
def test_a_short_silence_stops_nothing(kind: FaultKind):
    simulation = befallen(kind, 10.0)
    assert stretches(simulation) == [(1, 0.0, 100.0)]
    assert events(simulation, NodeLost) == []


@pytest.mark.parametrize("kind", SILENT)
def test_tasks_stop_before_their_node_is_lost_and_go_on_when_it_is_not(kind: FaultKind):
    simulation = befallen(kind, 18.0)
    assert stretches(simulation) == [(1, 0.0, 46.0), (1, 48.0, 102.0)]
    assert events(simulation, NodeLost) == []


@pytest.mark.parametrize("kind", SILENT)
def test_the_tasks_of_a_lost_node_never_go_on(kind: FaultKind):
    simulation = befallen(kind, 60.0)
    assert stretches(simulation) == [(1, 0.0, 46.0), (2, 54.0, 154.0)]
    assert [lost.node_id for lost in events(simulation, NodeLost)] == ["v100-000"]


def test_without_a_fence_both_attempts_go_on():
    witness = befallen(FaultKind.FREEZE, 60.0, lease=Lease(fenced=False)).world.witness()
    assert len(witness.overlaps()) == 1


def test_tasks_that_stand_still_for_too_long_are_killed():
    simulation = befallen(FaultKind.SILENCE, 60.0, lease=Lease(grace_s=5.0))
    ended = [exited for exited in events(simulation, JobExited) if exited.attempt == 1]
    assert [exited.outcome for exited in ended] == ["interrupted"]


def test_while_the_disk_is_full_an_end_is_kept_and_nothing_runs_twice():
    simulation = befallen(FaultKind.DISK_FULL, 200.0)
    assert stretches(simulation) == [(1, 0.0, 100.0)]
    (exited,) = [e for e in simulation.log.control if isinstance(e.event, JobExited)]
    assert exited.time_s == 230.0
    assert len(events(simulation, JobSucceeded)) == len(events(simulation, JobStarted)) == 1


def test_a_journal_that_is_lost_after_an_end_does_not_have_the_job_run_again():
    simulation = befallen(FaultKind.JOURNAL_LOST, 15.0, at=90.0)
    assert stretches(simulation) == [(1, 0.0, 100.0)]
    assert len(events(simulation, JobExited)) == 1


def test_facts_come_late_in_their_order_and_twice_under_two_ids():
    late = befallen(FaultKind.LATE, 100.0, at=0.0, delay_s=7.0)
    first = next(e for e in late.log.control if e.source == "agent/v100-000")
    assert isinstance(first.event, NodeJoined)
    started = next(e for e in late.log.control if isinstance(e.event, JobStarted))
    assert started.time_s <= 7.0
    twice = befallen(FaultKind.DOUBLED, 500.0)
    exits = [e for e in twice.log.control if isinstance(e.event, JobExited)]
    assert len(exits) == len({e.id for e in exits}) == 2 and exits[0].event == exits[1].event
    assert len(events(twice, JobSucceeded)) == 1


def test_limits_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="a lease margin of 20 s with a node time-out of 10 s"):
        Lease(node_timeout_s=10, margin_s=20)
    with pytest.raises(ValueError, match="does not renew a lease"):
        Lease(node_timeout_s=10, margin_s=8, heartbeat_s=3)


def test_a_lost_node_that_cannot_join_anew_is_not_lost_again():
    scenario = Scenario().servers(1, v100=2).options(lease=DEFAULT).job("a", runs_s=100.0)
    scenario.fault(FaultKind.DISK_FULL, "v100-000", at=40.0, for_s=300.0)
    scenario.fault(FaultKind.FREEZE, "v100-000", at=30.0, for_s=60.0)
    scenario.fault(FaultKind.REFUSED_TOKEN, "v100-000", at=150.0, for_s=60.0)
    assert [lost.incarnation for lost in events(scenario.run(SERVICES), NodeLost)] == [1]
