"""A whole simulated cell with a bug put in by hand: the watch finds the job that is left standing by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from libs.contracts.base import Event
from libs.contracts.gateway import PolicyChanged
from libs.contracts.introspection import JobStuck
from libs.contracts.jobs import JobClass
from libs.contracts.placement import LaunchTask, ResumeTask
from libs.sim.world import World
from libs.testing.builders import Scenario
from libs.testing.standing import left_standing
from services.placement.core.lifecycle import waiting
from services.roster import SERVICES


def stuck_in(scenario: Scenario) -> list[JobStuck]:
    return left_standing(scenario.run(SERVICES).log.control)


def two_gangs_beside_free_gpus() -> Scenario:
    """Of two servers one GPU each is free; the gang that comes first is of the tenant that uses more of its quota."""
    scenario = Scenario().servers(2, v100=4).plan(0.0, PolicyChanged(policy="antman", requested_by="op"))
    for number, runs_s in enumerate((5.0, 3000.0, 5.0, 3000.0)):
        scenario.job(f"single-{number}", at=0.1 * number, runs_s=runs_s, tenant="a")
    scenario.job("of-a", 2, at=10.0, runs_s=100.0, tenant="a")
    return scenario.job("of-b", 2, at=50.0, runs_s=100.0, tenant="b")


def test_a_gang_without_its_timer_is_found(monkeypatch: pytest.MonkeyPatch):
    assert stuck_in(two_gangs_beside_free_gpus()) == []

    def no_moments(cell: Any) -> Iterator[float]:
        return iter(())

    monkeypatch.setattr(waiting, "moments", no_moments)
    found = stuck_in(two_gangs_beside_free_gpus())
    assert ("of-b", "place", ["placement"]) in [(each.job_id, each.awaited, each.owed_by) for each in found]


def lose(monkeypatch: pytest.MonkeyPatch, order_type: type[Event], job_id: str) -> None:
    """No agent gets an order of this type about the job."""
    carried_out = World.order

    def order(world: World, event: Event) -> None:
        if not (isinstance(event, order_type) and getattr(event, "job_id", "") == job_id):
            carried_out(world, event)

    monkeypatch.setattr(World, "order", order)


def a_guest_that_comes_back() -> Scenario:
    """An owner takes the GPU of a guest, which goes on when it has ended."""
    scenario = (
        Scenario().servers(1, v100=1).plan(0.0, PolicyChanged(policy="backfill", guests="antman", requested_by="op"))
    )
    scenario.job("guest", runs_s=2000.0, job_class=JobClass.OPPORTUNISTIC)
    scenario.job("owner", at=100.0, runs_s=50.0, job_class=JobClass.GUARANTEED)
    return scenario.cancel("guest", at=4000.0)


def test_a_guest_that_its_agent_never_lets_go_on_is_found(monkeypatch: pytest.MonkeyPatch):
    assert stuck_in(a_guest_that_comes_back()) == []
    lose(monkeypatch, ResumeTask, "guest")
    [found] = stuck_in(a_guest_that_comes_back())
    assert (found.job_id, found.awaited, found.owed_by) == ("guest", "resumption", ["agent of v100-000"])


def test_a_lost_launch_order_is_found(monkeypatch: pytest.MonkeyPatch):
    scenario = Scenario().servers(2, v100=2).job("a", runs_s=50.0).job("b", runs_s=50.0, max_retries=0)
    assert stuck_in(scenario) == []
    lose(monkeypatch, LaunchTask, "b")
    found = stuck_in(scenario.cancel("b", at=4000.0))
    assert (found[0].job_id, found[0].awaited, found[0].owed_by) == ("b", "start", ["agent of v100-000"])
    assert found[0].gpus == 1
