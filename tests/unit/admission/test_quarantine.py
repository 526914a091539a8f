"""A job that names an input in quarantine is held back until the input is released."""

from __future__ import annotations

from libs.contracts.admission import JobAdmitted, JobHeldBack
from libs.contracts.failure_analysis import InputQuarantined, InputReleased
from libs.contracts.gateway import JobCancelRequested
from libs.contracts.reasons import PendingReason, Reason
from libs.testing.core_case import CoreCase, arrival, node, only
from services.admission.service import SERVICE

WHY = Reason(code="Test", message="2 jobs failed of it")
X, Y = "/data/x.csv", "/data/y.csv"


def case_of() -> CoreCase:
    case = CoreCase(SERVICE)
    case.give(node("n1", 4))
    for name in (X, Y):
        case.give(InputQuarantined(input=name, jobs=[], users=[], causes=[], reason=WHY))
    return case


def test_it_is_held_until_all_inputs_that_it_names_are_released():
    case = case_of()
    told = only(case.give(arrival("a", data=[X, Y])), JobHeldBack).reason
    assert told.code == PendingReason.INPUT_QUARANTINED
    assert told.message.startswith(f"input {X} is in quarantine: 2 jobs failed of it; input {Y}")
    only(case.give(arrival("b", data=["/data/z.csv"])), JobAdmitted)
    assert only(case.give(InputReleased(input=X, reason=WHY)), JobHeldBack).reason.numbers == {"inputs": 1}
    assert only(case.give(InputReleased(input=Y, reason=WHY)), JobAdmitted).job_id == "a"
    only(case.give(arrival("c", data=[X])), JobAdmitted)


def test_one_that_is_cancelled_is_let_go():
    case = case_of()
    case.give(arrival("a", data=[X]))
    assert only(case.give(JobCancelRequested(job_id="a", requested_by="ada", grace_s=1.0)), JobAdmitted).job_id == "a"


def test_what_was_admitted_before_goes_on():
    case = CoreCase(SERVICE)
    case.give(node("n1", 4))
    only(case.give(arrival("a", data=[X])), JobAdmitted)
    assert case.give(InputQuarantined(input=X, jobs=[], users=[], causes=[], reason=WHY)) == []
