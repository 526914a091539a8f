"""Trial runs: no gang starts before its trial is over, no job is lost by one, whatever goes wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.admission import TrialFailed, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.catalogue import TERMINAL
from libs.contracts.cluster import width_of
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import SettingChanged
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.testing.builders import Scenario, events, log_of
from libs.testing.standing import none_is_left_standing
from libs.testing.strategies import cells_with_guests, crowded_cells, scenarios
from services.roster import SERVICES
from tests.properties.effort import whole_system
from tests.properties.test_whole_system import checked_run


@st.composite
def cells_with_trials(draw: st.DrawFn) -> Scenario:
    """Any cell in which jobs of two GPUs and more run a trial, short or long, with little patience or much."""
    crowded = (crowded_cells(), crowded_cells(policy="max_min_fairness"))
    scenario = draw(st.one_of(scenarios(), scenarios(hosts=True), *crowded, cells_with_guests()))
    values = {
        "trial_above_gpus": 1.0,
        "trial_steps": draw(st.sampled_from([1.0, 3.0, 40.0])),
        "trial_patience_s": draw(st.sampled_from([0.0, 5.0, 60.0])),
        "trial_limit_s": draw(st.sampled_from([2.0, 600.0])),
    }
    for name, value in values.items():
        scenario.plan(0.0, SettingChanged(service="admission", name=name, value=value, requested_by="op"))
    return scenario


@whole_system
@given(cells_with_trials())
def test_no_gang_starts_before_its_trial_is_over_and_no_job_is_lost(scenario: Scenario):
    simulation = checked_run(scenario)
    pending: dict[str, int] = {}
    skipped: set[str] = set()
    for event in events(simulation, TrialOrdered, TrialPassed, TrialSkipped, JobPlaced):
        if isinstance(event, TrialOrdered):
            pending[event.job_id] = event.gpus
        elif isinstance(event, TrialPassed):
            assert pending.pop(event.job_id) == 1, "a trial passes once"
        elif isinstance(event, TrialSkipped):
            skipped.add(event.job_id)
        elif event.job_id in pending and event.job_id not in skipped:
            assert width_of(event.gang) == pending[event.job_id]
    ended = [event.job_id for event in events(simulation, *TERMINAL)]
    assert sorted(ended) == sorted(job.job_id for job in simulation.workload.jobs)
    books = conservation(simulation.records())
    assert books.violations == []
    assert books.gpus_held == 0
    none_is_left_standing(simulation)


@whole_system
@given(cells_with_trials())
def test_a_job_that_fails_in_its_trial_never_had_its_gang_and_none_succeeds_by_its_trial_alone(scenario: Scenario):
    simulation = checked_run(scenario)
    widths: dict[str, list[int]] = {}
    for placed in events(simulation, JobPlaced):
        widths.setdefault(placed.job_id, []).append(width_of(placed.gang))
    asked = {job.job_id: job.spec.gpus.count for job in simulation.workload.jobs}
    abandoned = {event.job_id for event in events(simulation, JobAbandoned)}
    for failed in events(simulation, TrialFailed):
        assert failed.job_id in abandoned
        assert set(widths[failed.job_id]) == {1}
    ordered = {event.job_id for event in events(simulation, TrialOrdered)}
    for succeeded in events(simulation, JobSucceeded):
        if succeeded.job_id in ordered:
            assert max(widths[succeeded.job_id]) > 1 or asked[succeeded.job_id] == 1


@whole_system
@given(cells_with_trials())
def test_every_decision_of_a_cell_with_trials_can_be_derived_again(scenario: Scenario):
    simulation = checked_run(scenario)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
    assert result.state_hashes == {name: replica.state_hash for name, replica in simulation.replicas.items()}
