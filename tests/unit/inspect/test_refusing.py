"""An impossible event is shown with what came before it."""

from __future__ import annotations

import pytest

from libs.contracts.admission import JobAdmitted
from libs.contracts.gateway import JobPriorityChanged
from libs.contracts.reasons import Reason
from libs.inspect.refusing import TOLD
from libs.kernel.replica import ImpossibleEvent
from libs.sim.simulation import Simulation
from libs.sim.workloads import Planned, Workload
from libs.testing.builders import Scenario
from libs.testing.core_case import CoreCase, arrival
from libs.testing.toy import TOY
from services.roster import SERVICES


def simulated(*, keep_log: bool = True) -> Simulation:
    """Admission speaks of a job for a second time, while it runs; another job waits meanwhile."""
    built = (
        Scenario()
        .servers(v100=1)
        .job("a", at=10, runs_s=100)
        .job("other", at=20)
        .options(keep_log=keep_log)
        .build(SERVICES)
    )
    twice = Planned(50.0, JobAdmitted(job_id="a", reason=Reason(code="Fine", message="again")))
    workload = built.workload + Workload((twice,))
    return Simulation(SERVICES, built.cluster, workload, options=built.options)


def test_a_simulation_ends_with_the_story_of_the_job():
    with pytest.raises(ImpossibleEvent) as raised:
        simulated().run()
    first, title, *story = str(raised.value).splitlines()
    assert "JobAdmitted cannot be said of job a, which is running, attempt 1; expected: arrived" in first
    assert title == "the last events about a:"
    assert "gateway: ada submits" in story[0]
    assert "again" in story[-1], "the impossible event itself is the last line"
    assert any("placement: " in line for line in story)
    assert not any("other" in line for line in story)


def test_without_a_log_there_is_no_story_and_the_message_says_so():
    with pytest.raises(ImpossibleEvent, match=r"expected: arrived.*\n.*says nothing about a, or was not kept"):
        simulated(keep_log=False).run()


def test_a_service_that_was_restarted_tells_the_same():
    simulation = simulated()
    while simulation.now_s < 50:
        simulation.restart("placement")
        simulation.advance()
    with pytest.raises(ImpossibleEvent, match="the last events about a:"):
        simulation.run()


def test_a_core_in_a_test_tells_its_story_and_only_the_end_of_a_long_one():
    case = CoreCase(TOY)
    case.give(arrival("a"), at=1.0)
    for number in range(2 * TOLD):
        case.give(JobPriorityChanged(job_id="a", priority=number, requested_by="ada"))
    with pytest.raises(ImpossibleEvent) as raised:
        case.give(arrival("a"), at=2.0)
    first, title, *story = str(raised.value).splitlines()
    assert first.endswith("JobArrived cannot be said of job a, which has arrived; expected: an unknown job")
    assert title == "the last events about a:"
    assert len(story) == TOLD
    assert "test submits" in story[-1] and f"{2 * TOLD - 1}" in story[-2]
