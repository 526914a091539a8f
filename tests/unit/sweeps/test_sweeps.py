"""A sweep from its arrival to its end, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs.contracts.agent import MetricsReported
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import (
    JobArrived,
    JobCancelRequested,
    JobPriorityChanged,
    SweepArrived,
    SweepCancelRequested,
)
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import JobCancelled, JobSucceeded
from libs.contracts.reasons import Reason
from libs.contracts.searching import Objective, Parameter, Pruner, Sampler, Scale, SweepSpec
from libs.contracts.sweeps import SweepEnded, TrialDemoted, TrialEnded, TrialPromoted, TrialPruned, TrialStarted
from libs.testing.core_case import CoreCase, only
from services.sweeps.service import SERVICE

SPACE = {
    "lr": Parameter(scale=Scale.FLOAT, low=1e-4, high=1.0, log=True),
    "hidden": Parameter(scale=Scale.INT, low=16.0, high=128.0, step=16.0),
    "optimizer": Parameter(scale=Scale.CHOICE, choices=["sgd", "adam"]),
}
TRIAL = JobSpec(name="t", command=["python", "train.py", "--lr={lr}", "{other}"], gpus=GpuRequest(count=1), priority=3)
NOTHING = Reason(code="Test", message="", numbers={})


def spec(**changes: Any) -> SweepSpec:
    wanted: dict[str, Any] = {
        "name": "search",
        "trial": TRIAL,
        "space": SPACE,
        "objective": Objective(metric="accuracy"),
        "trials": 4,
        "sampler": Sampler.RANDOM,
        "pruner": Pruner.NONE,
        "last_step": 10.0,
    }
    return SweepSpec(**wanted | changes)


class Search:
    """A sweep that a core runs."""

    def __init__(self, **changes: Any) -> None:
        self.case = CoreCase(SERVICE)
        self.first = self.case.give(SweepArrived(sweep_id="s-1", spec=spec(**changes), submitted_by="ada"))

    @property
    def jobs(self) -> list[str]:
        return [started.job_id for started in self.case.decided(TrialStarted)]

    def report(self, number: int, step: float, value: float, metric: str = "accuracy") -> list[Event]:
        told = MetricsReported(
            job_id=self.jobs[number], attempt=1, node_id="n1", step=float(step), values={metric: value}
        )
        return self.case.give(told)

    def curve(self, number: int, *values: float) -> list[Event]:
        """Reports from step 1 on; what the last one leads to."""
        return [self.report(number, step, value) for step, value in enumerate(values, 1)][-1]

    def succeeds(self, number: int) -> list[Event]:
        return self.case.give(JobSucceeded(job_id=self.jobs[number], attempt=1))

    def cancelled(self, number: int) -> list[Event]:
        return self.case.give(JobCancelled(job_id=self.jobs[number], attempt=1, reason=NOTHING))


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_all_trials_become_jobs_at_once_with_their_parameters():
    search = Search()
    assert names(search.first) == ["TrialStarted", "JobArrived"] * 4
    started, arrived = search.case.decided(TrialStarted)[2], search.case.decided(JobArrived)[2]
    assert arrived.job_id == started.job_id and arrived.submitted_by == "ada"
    assert arrived.spec.name == "search-2" and arrived.spec.labels == {"sweep": "s-1", "trial": "2"}
    assert arrived.spec.command == ["python", "train.py", f"--lr={started.parameters['lr']}", "{other}"]
    assert json.loads(arrived.spec.env["SANJAYA_TRIAL_PARAMS"]) == started.parameters


@pytest.mark.parametrize("sampler", list(Sampler))
def test_parameters_are_of_the_space_and_differ(sampler: Sampler):
    found = [started.parameters for started in Search(sampler=sampler, trials=20).case.decided(TrialStarted)]
    for parameters in found:
        assert 1e-4 <= float(parameters["lr"]) <= 1.0
        assert parameters["hidden"] in range(16, 129, 16)
        assert parameters["optimizer"] in ("sgd", "adam")
    assert len({json.dumps(parameters) for parameters in found}) == 20


def test_the_same_seed_draws_the_same_trials_however_they_come():
    at_once, one_by_one = Search(seed=7), Search(seed=7, at_once=1)
    for number in range(3):
        one_by_one.succeeds(number)
    other = Search(seed=8)
    drawn = [[s.parameters for s in search.case.decided(TrialStarted)] for search in (at_once, one_by_one, other)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_tpe_learns_from_trials_that_are_over():
    """Good values lie at small rates: what is drawn after many trials is smaller than what was drawn before."""
    search = Search(sampler=Sampler.TPE, trials=60, at_once=1, space={"lr": SPACE["lr"]})
    for number in range(60):
        rate = float(search.case.decided(TrialStarted)[number].parameters["lr"])
        search.report(number, 1, -rate)
        search.succeeds(number)
    rates = [float(started.parameters["lr"]) for started in search.case.decided(TrialStarted)]
    assert sorted(rates[40:])[10] < sorted(rates[:10])[5] / 3


def test_no_more_than_wanted_are_under_way_together():
    search = Search(at_once=2)
    assert len(search.jobs) == 2
    assert names(search.succeeds(0)) == ["TrialEnded", "TrialStarted", "JobArrived"]


def test_a_trial_that_reaches_the_target_ends_the_sweep_and_goes_on_itself():
    search = Search(objective=Objective(metric="accuracy", target=0.9), trials=3)
    assert search.report(0, 1, 0.5) == []
    said = search.report(1, 1, 0.93)
    ended = only(said, SweepEnded)
    assert (ended.outcome, ended.best_trial, ended.best_value) == ("target_reached", 1, 0.93)
    assert ended.best_parameters == search.case.decided(TrialStarted)[1].parameters
    assert [e.job_id for e in said if isinstance(e, JobCancelRequested)] == [search.jobs[0], search.jobs[2]]
    assert only(search.cancelled(0), TrialEnded).outcome == "stopped"
    search.cancelled(2)
    assert only(search.succeeds(1), TrialEnded).outcome == "completed"
    assert search.case.replica.state.sweeps == {} and search.case.replica.state.jobs == {}


def test_a_smaller_loss_can_be_the_target():
    search = Search(objective=Objective(metric="loss", maximize=False, target=0.1), trials=2)
    assert search.report(0, 1, 0.5, "loss") == []
    assert only(search.report(0, 2, 0.05, "loss"), SweepEnded).best_value == 0.05


def test_a_sweep_ends_when_all_trials_are_over_and_names_the_best():
    search = Search(trials=2)
    search.curve(0, 0.5, 0.7, 0.6)
    search.curve(1, 0.6, 0.65)
    assert only(search.succeeds(0), TrialEnded).value == 0.7
    failed = JobAbandoned(job_id=search.jobs[1], attempt=1, exit_code=1, signal=None, reason=NOTHING)
    said = search.case.give(failed)
    assert only(said, TrialEnded).outcome == "failed"
    ended = only(said, SweepEnded)
    assert (ended.outcome, ended.best_trial, ended.best_value) == ("exhausted", 0, 0.7)


def test_a_sweep_of_which_nothing_was_reported_has_no_best():
    search = Search(trials=1)
    ended = only(search.succeeds(0), SweepEnded)
    assert (ended.best_trial, ended.best_value, ended.best_parameters) == (None, None, {})


def test_steps_told_twice_and_other_metrics_change_nothing():
    search = Search()
    search.curve(0, 0.5, 0.6)
    before = search.case.replica.state_hash
    search.report(0, 2, 0.9)
    search.report(0, 3, 0.9, "loss")
    assert search.case.replica.state_hash == before


def test_a_curve_that_will_not_reach_the_target_is_given_up():
    search = Search(pruner=Pruner.CURVE, objective=Objective(metric="accuracy", target=0.9))
    search.curve(0, 0.5, 0.65, 0.72)
    said = search.curve(1, 0.10, 0.11, 0.11)
    assert names(said) == ["TrialPruned", "JobCancelRequested"]
    assert only(said, TrialPruned).step == 3 and "0.9" in only(said, TrialPruned).reason.message
    assert search.report(1, 4, 0.11) == [], "said once"
    assert only(search.cancelled(1), TrialEnded).outcome == "pruned"


def test_less_than_the_target_can_be_wanted_of_a_curve():
    search = Search(pruner=Pruner.CURVE, objective=Objective(metric="accuracy", target=0.9), give_up_below=0.3)
    search.curve(0, 0.5, 0.65, 0.72)
    assert search.curve(1, 0.50, 0.51, 0.51) == [], "it will not reach the target, and is good enough"
    said = search.curve(2, 0.10, 0.11, 0.11)
    assert names(said) == ["TrialPruned", "JobCancelRequested"]
    assert "0.3" in only(said, TrialPruned).reason.message


def test_the_best_so_far_is_not_given_up():
    search = Search(pruner=Pruner.CURVE, objective=Objective(metric="accuracy", target=0.9))
    search.report(1, 1, 0.05)
    assert search.curve(0, 0.10, 0.11, 0.11) == []


@pytest.mark.parametrize("pruner", [Pruner.MEDIAN, Pruner.ASHA, Pruner.HYPERBAND])
def test_optunas_pruners_give_up_the_worst_and_not_the_best(pruner: Pruner):
    search = Search(pruner=pruner, trials=12, last_step=9.0, warmup_reports=1)
    for step in range(1, 10):
        for number in range(11, -1, -1):
            search.report(number, step, 0.05 * number + 0.01 * step)
    given_up = {pruned.number for pruned in search.case.decided(TrialPruned)}
    assert 11 not in given_up
    assert given_up and min(given_up) < 3


def test_the_most_promising_go_first_until_others_promise_more():
    search = Search(favourites=1, trials=3)
    assert names(search.curve(0, 0.3, 0.4, 0.45)) == ["TrialPromoted", "JobPriorityChanged"]
    assert search.case.decided(JobPriorityChanged)[0].priority == 4
    assert search.curve(1, 0.2, 0.3, 0.35) == []
    said = search.curve(2, 0.5, 0.7, 0.8)
    assert names(said) == ["TrialDemoted", "JobPriorityChanged", "TrialPromoted", "JobPriorityChanged"]
    assert (only(said, TrialDemoted).number, only(said, TrialPromoted).number) == (0, 2)
    assert only(search.succeeds(2), TrialPromoted).number == 0, "the next best follows"


def test_a_sweep_can_be_cancelled():
    search = Search(trials=3)
    search.succeeds(0)
    said = search.case.give(SweepCancelRequested(sweep_id="s-1", requested_by="ada", note="wrong data"))
    assert names(said) == ["SweepEnded", "JobCancelRequested", "JobCancelRequested"]
    assert only(said, SweepEnded).outcome == "cancelled"
    search.cancelled(1)
    assert names(search.cancelled(2)) == ["TrialEnded"]
    assert search.case.replica.state.sweeps == {}


def test_a_snapshot_in_the_middle_changes_nothing():
    search = Search(pruner=Pruner.ASHA, trials=6, warmup_reports=1, sampler=Sampler.TPE, at_once=3)
    for number in range(3):
        search.curve(number, 0.1 * number, 0.2 * number)
    replica = search.case.replica
    search.case.replica = type(replica).restore(SERVICE, replica.snapshot())
    again = search.case.replica
    assert again.state_bytes == replica.state_bytes
    for number in range(3):
        search.succeeds(number)
    assert len(search.jobs) == 6
