"""Each cause of a wait has what takes it away; what is said is no more than is needed."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import IsolatedRate, JobArrived, PolicyChanged, SettingChanged, ThroughputsProvided
from libs.contracts.groups import Condition, Dependency
from libs.forecast.branch import Branch, Spare
from libs.forecast.changes import Kind, later
from libs.forecast.remedies import PASSED, Way
from libs.forecast.search import Option, apply, options
from libs.sim.options import FaultKind
from libs.testing.builders import OPERATOR, Scenario, Spec
from tests.unit.forecast.crowded_cell import stopped_at


def found_for(scenario: Scenario, job_id: str, at: float = 20.0) -> list[Option]:
    simulation = stopped_at(at, scenario)
    return options(Spare(lambda: Branch(simulation.replicas, simulation.now_s)), job_id).options


def said(found: list[Option]) -> list[str]:
    return [option.message for option in found]


def kinds(found: list[Option]) -> list[list[Kind]]:
    return [[change.kind for change in option.changes] for option in found]


def test_gpus_that_are_in_use_are_freed_where_the_fewest_have_to_be():
    scenario = Scenario().servers(4, v100=8).job("a", 4, runs_s=500).job("b", 2, runs_s=500).job("c", 1, runs_s=500)
    found = found_for(scenario.job("waits", 3, at=10.0), "waits")
    assert said(found)[0] == "b ends, and frees 2 GPUs (v100-001:0-1)"


def test_one_job_that_frees_enough_goes_before_two():
    scenario = Scenario().servers(4, v100=4).job("a", 1, runs_s=500).job("b", 3, runs_s=500)
    found = found_for(scenario.job("waits", 2, at=10.0), "waits")
    assert said(found)[0] == "b ends, and frees 3 GPUs (v100-000:1-3)"
    assert "one more server like v100-000 joins (4 GPUs)" in said(found)


def test_a_job_behind_others_is_first_with_a_higher_priority():
    scenario = Scenario().servers(4, v100=4).job("a", 4, runs_s=500)
    for number in range(4):
        scenario.job(f"before-{number}", 4, at=1.0 + number)
    found = found_for(scenario.job("waits", 4, at=10.0), "waits")
    first = "its priority is 1; a ends, and frees 4 GPUs (v100-000:0-3)"
    assert first in said(found)
    assert "its priority is 1; one more server like v100-000 joins (4 GPUs)" in said(found)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ({"gpu_limit": 2}, "the limit of tenant lab is 4 GPUs"),
        ({"gpu_limit": None, "limits": {"v100": 3}}, "the limit of tenant lab is 4 v100 GPUs"),
        ({"gpu_limit": None, "per_user": {"v100": 2}}, "the limit of each user of tenant lab is 4 v100 GPUs"),
    ],
)
def test_a_limit_is_raised_to_what_leaves_room(share: dict[str, object], expected: str):
    limit = share.pop("gpu_limit")
    assert limit is None or isinstance(limit, int)
    scenario = Scenario().servers(8, v100=8).tenant("lab", limit, **share)
    scenario.job("a", 2, at=1.0, runs_s=500, tenant="lab")
    found = found_for(scenario.job("waits", 2, at=10.0, tenant="lab"), "waits")
    assert said(found)[0] == expected
    assert "a ends, and frees 2 GPUs (v100-000:0-1)" in said(found)


def test_what_is_borrowed_is_given_back_for_a_guarantee():
    scenario = Scenario().servers(4, v100=4)
    scenario.tenant("lender", None, guarantees={"v100": 2}).tenant("borrower", None, guarantees={"v100": 2})
    scenario.setting("quota", "reclaim_above", 1.0)
    scenario.job("own", 2, at=1.0, runs_s=500, tenant="borrower").job("lent", 2, at=2.0, runs_s=500, tenant="borrower")
    found = found_for(scenario.job("waits", 1, at=10.0, tenant="borrower"), "waits")
    assert "lent ends, and frees 2 GPUs (v100-000:2-3)" in said(found)


def test_a_paused_job_is_resumed():
    scenario = Scenario().servers(4, v100=4).job("waits", 2, at=10.0).pause("waits", at=10.0, until=400.0)
    scenario.job("a", 4, runs_s=15.0)
    assert said(found_for(scenario, "waits")) == ["waits is resumed"]


def test_a_drained_node_is_used_again():
    scenario = Scenario().servers(4, v100=4).drain("v100-000", at=5.0, until=400.0)
    assert said(found_for(scenario.job("waits", 2, at=10.0), "waits")) == ["node v100-000 is undrained"]


def test_a_job_that_runs_after_another_starts_when_that_ends_or_without_it():
    scenario = Scenario().servers(4, v100=4).job("first", 1, runs_s=500)
    spec = Spec("second").gpus(1).build()
    after = [Dependency(on="first", condition=Condition.OK)]
    scenario.plan(10.0, JobArrived(job_id="waits", spec=spec, submitted_by="ada", after=after))
    assert said(found_for(scenario, "waits")) == [
        "it is submitted anew without waiting for other jobs",
        "first ends, and frees 1 GPU (v100-000:0)",
    ]


def spread() -> Scenario:
    """One GPU is free on each of two servers."""
    scenario = Scenario().servers(4, v100=8).setting("placement", "locality_relax_s", 300.0)
    return scenario.job("long-0", 3, runs_s=500.0).job("long-1", 3, runs_s=500.0)


def test_a_gang_that_fits_spread_waits_or_accepts_more_servers():
    found = found_for(spread().job("waits", 2, at=10.0), "waits")
    assert kinds(found)[:2] == [[Kind.SERVERS], [Kind.TIME]]
    assert found[1].changes[0].numbers == {"after_s": 300.0}


def test_a_gang_that_waits_for_what_it_gains_takes_what_it_fits():
    scenario = Scenario().servers(4, v100=8).plan(0.0, PolicyChanged(policy="philly", requested_by="op"))
    for name, value in (("wait_for_locality_s", 900.0), ("relax_after", 1.0), ("acquire_s", 2.0), ("backoff_s", 1.0)):
        scenario.setting("placement", name, value)
    rates = IsolatedRate(
        model="m", batch_size=None, gpus=4, steps_per_s={"v100": 1.0}, spread_steps_per_s={"v100": 0.5}
    )
    scenario.plan(0.0, ThroughputsProvided(provided_by="op", isolated=[rates]))
    work = {"total_steps": 500.0, "throughputs": {"v100": 1.0}}
    scenario.setting("placement", "emptiest_above_gpus", 1.0)
    scenario.job("a", 2, runs_s=500.0, **work).job("b", 2, runs_s=500.0, **work)
    found = found_for(scenario.job("waits", 4, at=10.0, model="m", **work), "waits")
    assert said(found)[0] == "gangs wait for no gain by fewer servers (wait_for_locality_s = 0)"


def test_a_gang_with_too_few_servers_is_submitted_anew_without_that_limit():
    scenario = spread().job("waits", at=10.0, spec=Spec("waits").gpus(2, max_nodes=1))
    assert [Kind.SERVERS, Kind.RESUBMIT] in kinds(found_for(scenario, "waits"))


def test_the_cell_itself_is_not_changed():
    simulation = stopped_at(60.0)
    before = {name: replica.state_bytes for name, replica in simulation.replicas.items()}
    options(Spare(lambda: Branch(simulation.replicas, simulation.now_s)), "job-6")
    assert {name: replica.state_bytes for name, replica in simulation.replicas.items()} == before


def test_a_back_off_ends_by_itself():
    scenario = Scenario().servers(4, v100=4).job("waits", 2, runs_s=100.0, spec=Spec("waits").gpus(2).retries(3))
    scenario.fault(FaultKind.CRASH, "v100-000", at=5.0, for_s=1.0)
    simulation = stopped_at(6.0, scenario)
    life = simulation.lives.jobs["waits"]
    while life.books.wait.present != "Backoff" and simulation.advance():
        pass
    simulation.dispatcher.settle()
    found = options(Spare(lambda: Branch(simulation.replicas, simulation.now_s)), "waits").options
    assert kinds(found)[0] == [Kind.TIME]


def test_no_timer_is_fired_when_the_time_is_over():
    simulation = stopped_at(20.0, Scenario().servers(4, v100=4).job("a", 4, runs_s=500).job("waits", 4, at=10.0))
    branch = Branch(simulation.replicas, simulation.now_s)
    assert branch.next_timer is not None
    apply(branch, later(5000.0, 4980.0), lambda: True)
    assert branch.is_untouched
    apply(branch, later(5000.0, 4980.0))
    assert not branch.is_untouched


def test_what_the_pool_for_trials_has_is_no_way_for_other_jobs():
    scenario = Scenario().servers(4, v100=4, k80=8).trial_pool(2).job("a", 4, runs_s=500).job("waits", 2, at=10.0)
    found = found_for(scenario, "waits")
    assert said(found)[0].startswith("a ends")
    assert "one more server like v100-000 joins (4 GPUs)" in said(found)


def test_a_trial_that_waits_for_its_pool_is_told_what_would_make_room_there():
    scenario = Scenario().servers(4, v100=4, k80=1).trial_pool(1)
    for name, value in (("trial_above_gpus", 1.0), ("trial_steps", 1000.0)):
        scenario.plan(0.0, SettingChanged(service="admission", name=name, value=value, requested_by="op"))
    found = found_for(scenario.job("a", 2, at=1.0, runs_s=9000).job("waits", 2, at=10.0), "waits")
    assert said(found)[0] == "a ends, and frees 1 GPU (k80-000:0)"
    assert "one more server like k80-000 joins (1 GPU)" in said(found)


@pytest.mark.parametrize(("small", "tried"), [(40, 1 + PASSED), (0, 4)])
def test_servers_that_go_to_jobs_behind_a_gang_are_not_added_on_and_on(small: int, tried: int):
    scenario = Scenario().servers(4, v100=8).job("a", 4, runs_s=500).job("b", 4, runs_s=500)
    scenario.job("before", 4, at=1.0).job("waits", 8, at=2.0).plan(
        0.0, PolicyChanged(policy="backfill", requested_by=OPERATOR)
    )
    for number in range(small):
        scenario.job(f"small-{number}", 1, at=3.0)
    simulation = stopped_at(20.0, scenario)
    spare = Spare(lambda: Branch(simulation.replicas, simulation.now_s))
    found = options(spare, "waits", [Way.GROW], most=tried)
    assert found.is_complete
    assert kinds(found.options) == ([] if small else [[Kind.PRIORITY, Kind.SERVER, Kind.SERVER, Kind.SERVER]])
    assert not options(spare, "waits", [Way.GROW], most=tried - 1).is_complete
