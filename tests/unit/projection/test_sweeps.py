"""What users see of a sweep, from its arrival to its end."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import SweepCancelRequested
from libs.contracts.read_models import ReportRow, SweepRow, SweepState, TrialRow, TrialState
from libs.contracts.sweeps import TrialDemoted
from tests.unit.projection.story import Story
from tests.unit.projection.sweep_story import (
    because,
    job_of,
    promoted,
    pruned,
    report,
    sweep_arrived,
    sweep_ended,
    trial,
    trial_ended,
)


def started(trials: int = 2, **fields: object) -> Story:
    story = Story().says(sweep_arrived(**fields))
    for number in range(trials):
        story.says(*trial(number))
    return story


def sweep(story: Story) -> SweepRow:
    row = story.rows.get(SweepRow, "s")
    assert row is not None
    return row


def trial_of(story: Story, number: int) -> TrialRow:
    row = story.rows.get(TrialRow, job_of(number))
    assert row is not None
    return row


def test_a_sweep_runs_from_its_arrival_on() -> None:
    row = sweep(Story().says(sweep_arrived(), sweep_arrived()))
    assert (row.state, row.name, row.submitted_by, row.version) == (SweepState.RUNNING, "digits", "ada", 0)
    assert (row.best_trial, row.best_value, row.ended_s) == (None, None, None)
    assert row.spec["objective"] == {"metric": "accuracy", "maximize": True, "target": 0.95}


def test_a_trial_learns_and_the_best_of_all_is_kept() -> None:
    story = started().says(report(0, 1, 0.5), report(1, 1, 0.7), report(0, 2, 0.6), report(1, 2, 0.65))
    first, second = trial_of(story, 0), trial_of(story, 1)
    assert (first.reports, first.best_value, first.last_step, first.last_value) == (2, 0.6, 2.0, 0.6)
    assert (second.reports, second.best_value, second.last_value) == (2, 0.7, 0.65)
    row = sweep(story)
    assert (row.best_trial, row.best_value, row.best_parameters) == (1, 0.7, {"lr": 0.2})


def test_less_is_better_where_the_objective_says_so() -> None:
    story = started(maximize=False, target=None).says(report(0, 1, 0.5), report(1, 1, 0.4), report(0, 2, 0.45))
    assert (trial_of(story, 0).best_value, sweep(story).best_value, sweep(story).best_trial) == (0.45, 0.4, 1)


def test_of_equal_values_the_first_trials_counts_as_best() -> None:
    story = started(trials=3).says(report(1, 1, 0.5), report(2, 1, 0.5))
    assert sweep(story).best_trial == 1
    story.says(report(0, 1, 0.5))
    assert (sweep(story).best_trial, sweep(story).best_parameters) == (0, {"lr": 0.1})


def test_a_report_that_is_appended_again_changes_nothing() -> None:
    story = started().says(report(0, 1, 0.5))
    before = trial_of(story, 0).version
    story.says(report(0, 1, 0.9))
    assert [row.value for row in story.rows.all(ReportRow)] == [0.5]
    assert (trial_of(story, 0).reports, trial_of(story, 0).best_value, trial_of(story, 0).version) == (1, 0.5, before)


def test_an_attempt_that_begins_anew_is_news_only_behind_the_step_that_was_reached() -> None:
    story = started().says(report(0, 1, 0.5), report(0, 4, 0.6), report(0, 2, 0.99, attempt=2))
    assert (trial_of(story, 0).reports, trial_of(story, 0).best_value) == (2, 0.6)
    story.says(report(0, 5, 0.7, attempt=2))
    assert (trial_of(story, 0).reports, trial_of(story, 0).last_step, sweep(story).best_value) == (3, 5.0, 0.7)
    assert [(row.attempt, row.step) for row in story.rows.all(ReportRow)] == [(1, 1), (1, 4), (2, 2), (2, 5)]


def test_every_metric_of_every_job_is_kept() -> None:
    story = started().says(report(0, 1, 0.5, loss=1.2), report(7, 1, 0.1))
    found = {(row.job_id, row.name): row.value for row in story.rows.all(ReportRow)}
    assert found == {
        (job_of(0), "accuracy"): 0.5,
        (job_of(0), "loss"): 1.2,
        (job_of(7), "accuracy"): 0.1,  # a trial of no sweep
    }
    assert sweep(story).best_value == 0.5


def test_a_trial_goes_first_until_others_promise_more() -> None:
    story = started().says(promoted(0))
    row = trial_of(story, 0)
    assert (row.favourite, row.reason, row.message) == (True, "MostPromising", "comes to 0.97 ± 0.01")
    why = because("OthersPromiseMore", "comes to 0.8 ± 0.1")
    story.says(TrialDemoted(sweep_id="s", number=0, job_id=job_of(0), priority=2, reason=why))
    assert (row.favourite, row.reason) == (False, "OthersPromiseMore")


def test_a_hopeless_trial_is_pruned_before_its_job_is_over() -> None:
    story = started().says(promoted(1), report(1, 3, 0.4), pruned(1))
    row = trial_of(story, 1)
    assert (row.state, row.favourite, row.message, row.ended_s) == (
        TrialState.PRUNED,
        False,
        "comes to 0.5 ± 0.1",
        None,
    )
    story.says(trial_ended(1, "pruned", 0.4, 1))
    assert (row.state, row.ended_s, row.best_value) == (TrialState.PRUNED, 8.0, 0.4)


@pytest.mark.parametrize("outcome", ["completed", "failed", "stopped"])
def test_a_trial_is_over_with_its_job(outcome: str) -> None:
    story = started().says(report(0, 1, 0.5), trial_ended(0, outcome, 0.5, 1), report(0, 2, 0.9))
    row = trial_of(story, 0)
    assert (row.state.value, row.best_value, row.reports) == (outcome.upper(), 0.5, 1)
    assert sweep(story).best_value == 0.5


@pytest.mark.parametrize("outcome", ["target_reached", "exhausted", "cancelled"])
def test_a_sweep_ends_with_its_best_trial(outcome: str) -> None:
    story = started().says(report(1, 1, 0.96), sweep_ended(outcome, 1, 0.96))
    row = sweep(story)
    assert (row.state.value, row.reason, row.message, row.ended_s) == (outcome.upper(), "Over", "it is over", 6.0)
    assert (row.best_trial, row.best_value, row.best_parameters) == (1, 0.96, {"lr": 0.2})


def test_the_trial_that_reached_the_target_may_become_better_still() -> None:
    story = started().says(report(1, 1, 0.96), sweep_ended("target_reached", 1, 0.96), report(1, 2, 0.98))
    assert (sweep(story).state, sweep(story).best_value) == (SweepState.TARGET_REACHED, 0.98)


def test_a_sweep_stops_when_a_user_asks_for_it() -> None:
    ask = SweepCancelRequested(sweep_id="s", requested_by="bob", note="wrong data")
    story = started().says(ask)
    assert (sweep(story).state, sweep(story).message) == (SweepState.STOPPING, "bob wants it to end: wrong data")
    story.says(sweep_ended("cancelled"), ask)
    assert (sweep(story).state, sweep(story).best_trial, sweep(story).best_parameters) == (
        SweepState.CANCELLED,
        None,
        {},
    )
