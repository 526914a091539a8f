"""Expected lengths of jobs for which users state none: as long as others of the tenant held GPUs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from libs.contracts.gateway import JobArrived, PolicyChanged
from libs.contracts.groups import Dependency
from libs.forecast.branch import Branch
from libs.forecast.expected import FORWARD, expected_start
from libs.forecast.lengths import NEVER, Lengths, spread
from libs.kernel.present import Present, PresentJob
from libs.testing.builders import OPERATOR, Scenario, Spec
from tests.unit.forecast.crowded_cell import present_job, stopped_at

RAN_S = [400.0, 100.0, 300.0, 200.0]


def waits(job_id: str, tenant: str = "lab", attained_s: float = 0.0) -> PresentJob:
    return replace(present_job(job_id, False), spec=Spec(job_id).tenant(tenant).build(), attained_s=attained_s)


def lengths(*jobs: PresentJob) -> Lengths:
    return Lengths(Present(jobs={job.job_id: job for job in jobs}, ran_s={"lab": RAN_S}))


def test_jobs_run_as_long_as_others_of_the_tenant_each_as_another_one():
    found = lengths(*(waits(f"job-{number}") for number in range(4)))
    assert sorted({length.in_s for length in found.of.values()}) == [100.0, 200.0, 300.0]
    assert found.rests_on == {"residual_life": 4}
    found.expect("later", waits("").spec)
    assert found.of["later"].in_s == 400.0


@pytest.mark.parametrize("size", [1, 7, 64])
def test_any_that_follow_each_other_are_spread_about_as_all_are(size: int):
    ascending = [float(number) for number in range(size)]
    for first in (0, 5, 100):
        mean = sum(spread(ascending, first + number) for number in range(32)) / 32
        assert mean == pytest.approx(sum(ascending) / size, abs=0.06 * size)


def test_a_job_that_has_run_is_one_of_those_that_ran_for_longer():
    assert lengths(waits("a", attained_s=350.0)).of["a"].in_s == 50.0
    beyond = lengths(waits("a", attained_s=400.0)).of["a"]
    assert (beyond.in_s, beyond.basis) == (400.0, "time_so_far"), "none did: as long again"


def test_of_a_tenant_of_which_nothing_is_known_as_others_in_the_cell():
    found = lengths(waits("a", attained_s=350.0), waits("b", "new"))
    assert (found.of["b"].in_s, found.of["b"].basis) == (50.0, "other_jobs")
    assert lengths(waits("b", "new")).of["b"].in_s == NEVER


def test_the_time_between_turns_is_no_part_of_a_length():
    scenario = Scenario().servers(4, v100=4).plan(0.0, PolicyChanged(policy="gandiva", requested_by=OPERATOR))
    for number in range(3):
        scenario.job(f"job-{number}", 4, runs_s=300.0)
    simulation = stopped_at(500.0, scenario)
    now = Branch(simulation.replicas, simulation.now_s).present("")
    assert sum(job.attained_s for job in now.jobs.values()) == pytest.approx(simulation.now_s, abs=1.0)
    ended = stopped_at(2000.0, scenario.job("other", at=1900.0, runs_s=500.0))
    now = Branch(ended.replicas, ended.now_s).present("")
    assert now.ran_s == {"default": [pytest.approx(300.0, abs=1.0)] * 3}


@pytest.mark.parametrize("restartable", [True, False])
def test_a_job_that_is_stopped_for_others_goes_on_where_it_was(restartable: bool):
    scenario = Scenario().servers(4, v100=4).setting("placement", "round_s", 100.0)
    scenario.plan(0.0, PolicyChanged(policy="max_min_fairness", requested_by=OPERATOR))
    for number in range(3):
        spec = Spec("m").gpus(4).runs(450.0)
        spec.with_(total_steps=450.0, throughputs={"v100": 1.0}, restartable=restartable)
        scenario.job(f"job-{number}", at=float(number), spec=spec)
    event = JobArrived(job_id="last", spec=Spec("last").build(), submitted_by=OPERATOR, after=[Dependency(on="job-2")])
    simulation = stopped_at(160.0, scenario.plan(150.0, event))
    expected = expected_start(Branch(simulation.replicas, simulation.now_s), "last")
    while simulation.advance():
        pass
    assert expected.how == FORWARD
    assert expected.at_s == pytest.approx(simulation.outcomes["last"].first_start_s, abs=1.0)
