"""When a suspended job goes on, behind the end of a forward run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import TimeSliceStarted
from libs.forecast.branch import Branch
from libs.forecast.expected import POOL, expected_start
from libs.forecast.pool import from_pool
from libs.kernel.present import Present, PresentJob, PresentLength
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario
from services.roster import SERVICES
from tests.unit.forecast.crowded_cell import four_gpus, present_job


def there(job_id: str, gpus: int, *, runs: bool = False, since_s: float = 0.0) -> PresentJob:
    gang = [TaskPlacement(node_id="n1", gpu_indices=list(range(gpus)), first_rank=0)]
    return replace(present_job(job_id, True, since_s), gang=gang, is_placed=runs)


def goes_on(*jobs: PresentJob, turn_s: float = 0.0, lengths: dict[str, float] | None = None, **node: object) -> float:
    """When `waits` goes on, at 100 s."""
    server = replace(four_gpus(), **node)
    now = Present(jobs={job.job_id: job for job in jobs}, nodes={"n1": server}, turn_s=turn_s)
    known = {job_id: PresentLength(in_s=in_s, basis="") for job_id, in_s in (lengths or {}).items()}
    return from_pool(now, known, 100.0, 100.0, "waits")


def test_of_jobs_that_take_turns_the_one_that_stands_still_for_longest_is_next():
    waits = there("waits", 4, since_s=70.0)
    running = there("runs", 4, runs=True, since_s=80.0)
    assert goes_on(waits, running, turn_s=60.0) == 140.0, "when the slice is over"
    earlier, later = there("earlier", 4, since_s=60.0), there("later", 4, since_s=75.0)
    assert goes_on(waits, running, earlier, later, turn_s=60.0) == 200.0
    beside = there("beside", 2, since_s=60.0)
    assert goes_on(replace(waits, gang=beside.gang), running, beside, turn_s=60.0) == 140.0, "side by side"
    assert goes_on(waits, running, replace(earlier, held=True), turn_s=60.0) == 140.0, "a paused one has no turn"
    assert goes_on(waits, running, replace(later, priority=1), turn_s=60.0) == 200.0


def test_where_jobs_run_to_their_end_it_is_when_enough_has_become_free_there():
    waits, first, second = there("waits", 4), there("a", 3, runs=True), there("b", 1, runs=True, since_s=50.0)
    assert goes_on(waits, first, second, lengths={"a": 30.0, "b": 900.0}) == 1000.0
    assert goes_on(replace(waits, gang=there("", 3).gang), first, second, lengths={"a": 30.0, "b": 900.0}) == 130.0
    assert goes_on(there("waits", 2), first, free={"v100": 2}, lengths={"a": 30.0}) == 100.0


def test_on_a_server_that_is_away_or_drains_it_does_not_go_on():
    assert goes_on(there("waits", 4), turn_s=60.0, present=False) == float("inf")
    assert goes_on(there("waits", 4), turn_s=60.0, draining=True) == float("inf")
    assert goes_on(replace(there("waits", 4), held=True), turn_s=60.0) == float("inf")


def full(until_s: float = 1450.0) -> Simulation:
    """Four jobs that take turns on all GPUs of a server, each as often as the others."""
    scenario = Scenario().servers(4, v100=4).plan(0.0, PolicyChanged(policy="gandiva", requested_by=OPERATOR))
    for number in range(4):
        scenario.job(f"job-{number}", 4, at=float(number), runs_s=4000.0)
    simulation = scenario.build(SERVICES)
    while simulation.now_s < until_s and simulation.advance():
        simulation.dispatcher.settle()
    return simulation


def test_a_suspended_job_of_a_full_cell_is_expected_though_there_is_no_time_to_look():
    simulation = full()
    jobs = Branch(simulation.replicas, simulation.now_s).present("").jobs.values()
    suspended = [job.job_id for job in jobs if not job.is_placed]
    assert len(suspended) == 3
    for job_id in suspended:
        played = expected_start(Branch(simulation.replicas, simulation.now_s), job_id)
        guessed = expected_start(Branch(simulation.replicas, simulation.now_s), job_id, steps=0)
        assert guessed.how == POOL
        assert guessed.at_s == pytest.approx(played.at_s, abs=1.0)


def test_what_an_agent_has_not_reported_yet_it_reports_on_the_branch():
    simulation = full(310.0)
    jobs = Branch(simulation.replicas, simulation.now_s).present("").jobs
    assert jobs["job-0"].unreported == {"v100-000": "suspended"}
    expected = expected_start(Branch(simulation.replicas, simulation.now_s), "job-0")
    resumed: list[float] = []
    while not resumed and simulation.advance():
        simulation.dispatcher.settle()
        turns = [each.event for each in simulation.log.control if isinstance(each.event, TimeSliceStarted)]
        last = turns[-1]
        if simulation.now_s > 370.0 and any(job.job_id == "job-0" for job in last.resumed):
            resumed.append(simulation.now_s)
    assert expected.at_s == pytest.approx(resumed[0], abs=1.0)
