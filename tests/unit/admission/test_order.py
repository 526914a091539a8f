"""What waits for other jobs, or for its turn in its array, is let through in order, or told that it never will be."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.admission import JobAdmitted, JobHeldBack, JobRejected
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import (
    ArrayArrived,
    JobArrived,
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
)
from libs.contracts.groups import Condition, Dependency, GroupPlace
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import JobCancelled, JobSucceeded
from libs.contracts.reasons import DEPENDENCY_NEVER_MET, PendingReason, Reason
from libs.testing.core_case import CoreCase, node, only
from services.admission.core.state import REMEMBERED_ENDS, State
from services.admission.service import SERVICE

OK, ANY, FAIL = Condition.OK, Condition.ANY, Condition.FAIL
NOTHING = Reason(code="Test", message="")


def spec(name: str) -> JobSpec:
    return JobSpec(name=name, command=["true"], gpus=GpuRequest(count=1))


class Case(CoreCase):
    """Admission of a cell with one node."""

    def __init__(self) -> None:
        super().__init__(SERVICE)
        self.give(node("n1", 4))

    def submit(self, job_id: str, *after: str | Dependency, **fields: Any) -> list[Event]:
        waits = [Dependency(on=on) if isinstance(on, str) else on for on in after]
        return self.give(JobArrived(job_id=job_id, spec=spec(job_id), submitted_by="ada", after=waits, **fields))

    def array(self, group_id: str, size: int, at_once: int | None, *after: str) -> list[Event]:
        waits, indices = [Dependency(on=on) for on in after], list(range(size))
        said = self.give(
            ArrayArrived(group_id=group_id, spec=spec("t"), indices=indices, at_once=at_once, submitted_by="ada")
        )
        for index in indices:
            place = GroupPlace(group_id=group_id, index=index)
            event = JobArrived(
                job_id=f"{group_id}{index}", spec=spec("t"), submitted_by="ada", after=waits, group=place
            )
            said += self.give(event)
        return said

    def succeeds(self, job_id: str) -> list[Event]:
        return self.give(JobSucceeded(job_id=job_id, attempt=1))

    def fails(self, job_id: str) -> list[Event]:
        return self.give(JobAbandoned(job_id=job_id, attempt=1, exit_code=1, signal=None, reason=NOTHING))

    def is_cancelled(self, job_id: str) -> list[Event]:
        return self.give(JobCancelled(job_id=job_id, attempt=1, reason=NOTHING))

    def through(self) -> list[str]:
        return [event.job_id for event in self.decided(JobAdmitted)]


def said(events: list[Event]) -> list[tuple[str, str]]:
    return [(type(event).__name__, event.subject) for event in events]


def on(job_id: str, condition: Condition, succeeded: bool | None = None) -> Dependency:
    return Dependency(on=job_id, condition=condition, succeeded=succeeded)


def test_a_job_waits_for_the_success_of_another_and_says_so():
    case = Case()
    case.submit("a")
    held = only(case.submit("b", "a"), JobHeldBack)
    assert held.reason.code == PendingReason.DEPENDENCY_NOT_MET and "a to succeed" in held.reason.message
    assert said(case.succeeds("a")) == [("JobAdmitted", "b")]


def test_what_is_left_is_said_when_one_of_several_is_met():
    case = Case()
    for job_id in "abcde":
        case.submit(job_id)
    held = only(case.submit("z", *"abcde"), JobHeldBack)
    assert held.reason.message.endswith("c to succeed and for 2 more")
    assert only(case.succeeds("b"), JobHeldBack).reason.numbers == {"missing": 4}
    for job_id in "acd":
        case.succeeds(job_id)
    assert said(case.succeeds("e")) == [("JobAdmitted", "z")]


@pytest.mark.parametrize("condition", list(Condition))
@pytest.mark.parametrize("end", ["succeeds", "fails", "is_cancelled"])
@pytest.mark.parametrize("ended_before", [False, True])
def test_the_condition_says_which_ends_will_do(condition: Condition, end: str, ended_before: bool):
    case = Case()
    case.submit("a")
    if ended_before:
        getattr(case, end)("a")
        verdict = case.submit("b", on("a", condition))
    else:
        case.submit("b", on("a", condition))
        verdict = getattr(case, end)("a")
    met = condition is ANY or (condition is OK) == (end == "succeeds")
    assert said(verdict) == [("JobAdmitted" if met else "JobRejected", "b")]
    if not met:
        assert only(verdict, JobRejected).reason.code == DEPENDENCY_NEVER_MET


def test_a_chain_that_can_never_run_is_rejected_to_its_end():
    case = Case()
    case.submit("a")
    case.submit("b", "a")
    case.submit("c", "b")
    case.submit("cleanup", on("c", FAIL))
    case.submit("report", on("c", ANY), "b")
    assert said(case.fails("a")) == [
        ("JobRejected", "b"),
        ("JobRejected", "c"),
        ("JobRejected", "report"),
        ("JobAdmitted", "cleanup"),
    ]


@pytest.mark.parametrize(("succeeded", "verdict"), [(True, JobAdmitted), (False, JobRejected)])
def test_the_end_of_what_ended_long_ago_is_taken_from_the_request(succeeded: bool, verdict: type[Event]):
    assert [type(event) for event in Case().submit("b", on("archived", OK, succeeded))] == [verdict]


def test_what_ended_while_the_request_was_on_its_way_is_known():
    case = Case()
    case.submit("a")
    case.fails("a")
    assert said(case.submit("b", on("a", OK))) == [("JobRejected", "b")]


def test_what_was_never_submitted_is_never_met():
    assert "not known" in only(Case().submit("b", "nothing"), JobRejected).reason.message


def test_a_job_that_does_not_fit_does_not_wait_in_vain():
    case = Case()
    case.submit("a")
    after = [Dependency(on="a")]
    large = JobSpec(name="b", command=["true"], gpus=GpuRequest(count=9))
    verdict = case.give(JobArrived(job_id="b", spec=large, submitted_by="ada", after=after))
    assert only(verdict, JobRejected).reason.code == PendingReason.NEVER_FITS


def test_a_cancelled_job_is_let_go_to_be_cancelled_and_what_waits_for_it_is_rejected():
    case = Case()
    case.submit("a")
    case.submit("b", "a")
    case.submit("c", "b")
    assert said(case.give(JobCancelRequested(job_id="b", requested_by="ada"))) == [("JobAdmitted", "b")]
    assert said(case.is_cancelled("b")) == [("JobRejected", "c")]


def test_no_more_of_an_array_than_allowed_are_let_through():
    case = Case()
    case.array("x", 5, 2)
    assert case.through() == ["x0", "x1"]
    held = case.decided(JobHeldBack)[0]
    assert held.reason.code == PendingReason.ARRAY_LIMIT and "2 jobs at once" in held.reason.message
    assert said(case.fails("x1")) == [("JobAdmitted", "x2")]
    assert said(case.succeeds("x0")) == [("JobAdmitted", "x3")]


def test_a_paused_job_of_an_array_lets_others_go_first():
    case = Case()
    case.array("x", 4, 1)
    case.give(JobPauseRequested(job_id="x1", requested_by="ada"))
    assert said(case.succeeds("x0")) == [("JobAdmitted", "x2")]
    assert said(case.give(JobResumeRequested(job_id="x1", requested_by="ada"))) == [("JobHeldBack", "x1")]
    assert said(case.succeeds("x2")) == [("JobAdmitted", "x1")]


def test_a_cancelled_job_of_an_array_takes_no_turn():
    case = Case()
    case.array("x", 4, 1)
    case.give(JobCancelRequested(job_id="x1", requested_by="ada"))
    case.is_cancelled("x1")
    assert case.through() == ["x0", "x1"]
    assert said(case.succeeds("x0")) == [("JobAdmitted", "x2")]


@pytest.mark.parametrize(
    ("condition", "fails", "verdict"),
    [
        (OK, False, JobAdmitted),
        (OK, True, JobRejected),
        (ANY, True, JobAdmitted),
        (FAIL, True, JobAdmitted),
        (FAIL, False, JobRejected),
    ],
)
def test_a_job_waits_for_a_whole_array(condition: Condition, fails: bool, verdict: type[Event]):
    case = Case()
    case.array("x", 3, None)
    case.submit("b", on("x", condition))
    case.succeeds("x0")
    early = (case.fails if fails else case.succeeds)("x1")
    late = case.succeeds("x2")
    assert [type(event) for event in early + late] == [verdict]
    assert bool(early) == (fails and condition is OK), "that all succeed can be told to be impossible at once"


def test_an_array_waits_as_a_whole_and_then_keeps_its_limit():
    case = Case()
    case.submit("a")
    case.array("x", 4, 2, "a")
    assert case.through() == ["a"]
    case.succeeds("a")
    assert case.through() == ["a", "x0", "x1"]
    assert said(case.succeeds("x0")) == [("JobAdmitted", "x2")]


def test_something_may_wait_for_an_array_of_which_no_job_has_arrived_yet():
    case = Case()
    case.give(ArrayArrived(group_id="x", spec=spec("t"), indices=[0], submitted_by="ada"))
    assert said(case.submit("b", "x")) == [("JobHeldBack", "b")]


def test_nothing_is_judged_while_there_is_no_node_and_all_of_it_when_one_joins():
    case = CoreCase(SERVICE)
    place = [GroupPlace(group_id="x", index=index) for index in range(3)]
    case.give(ArrayArrived(group_id="x", spec=spec("t"), indices=[0, 1, 2], at_once=2, submitted_by="ada"))
    for index in range(3):
        case.give(JobArrived(job_id=f"x{index}", spec=spec("t"), submitted_by="ada", group=place[index]))
    assert case.all == []
    assert said(case.give(node("n1", 1))) == [("JobAdmitted", "x0"), ("JobAdmitted", "x1"), ("JobHeldBack", "x2")]


def test_nothing_is_remembered_of_what_has_ended_but_its_latest_ends():
    case = Case()
    case.array("x", 3, 1)
    case.submit("b", "x")
    for index in range(3):
        case.succeeds(f"x{index}")
    case.succeeds("b")
    state: State = case.replica.state
    assert (state.jobs, state.pending, state.groups, state.waiters) == ({}, {}, {}, {})
    state.ends = {str(number): True for number in range(2 * REMEMBERED_ENDS - 1)}
    state.jobs["last"] = ""
    state.end("last", succeeded=True)
    assert len(state.ends) == REMEMBERED_ENDS and state.ends["last"]
