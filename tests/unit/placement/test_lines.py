"""What waiting jobs are told under a policy that queues: one of each line its cause, the others that it goes first."""

from collections.abc import Sequence

from libs.contracts.gateway import JobCancelRequested, JobPauseRequested, JobPriorityChanged, PolicyChanged
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import only
from tests.unit.placement.placement_case import PlacementCase

BEHIND, TOO_FEW = PendingReason.BEHIND, PendingReason.INSUFFICIENT_GPUS


def told(events: Sequence[object]) -> list[tuple[str, str, str, bool]]:
    """(job, cause, the job that it is behind, whether it leads its line) of each JobQueued."""
    return [(e.job_id, e.reason.code, e.behind, e.leads) for e in events if isinstance(e, JobQueued)]


def full(**policy: str) -> PlacementCase:
    """One GPU, which `first` has."""
    case = PlacementCase(n1=1)
    if policy:
        case.give(PolicyChanged(requested_by="op", **policy))
    case.submit("first")
    return case


def test_one_job_of_a_shape_leads_and_the_others_are_behind_it():
    case = full()
    assert told(case.submit("a")) == [("a", TOO_FEW, "", True)]
    said = case.submit("b")
    assert told(said) == [("b", BEHIND, "a", False)]
    assert only(said, JobQueued).line == case.decided(JobQueued)[0].line != ""


def test_an_end_costs_one_event_however_many_jobs_wait():
    case = full()
    for number in range(40):
        case.submit(f"j{number:02}")
    assert told(case.exit("first")) == [("j01", TOO_FEW, "", True)]
    assert case.placed[-1] == "j00"


def test_a_job_that_goes_first_from_now_on_takes_over_the_lead():
    case = full()
    case.submit("a")
    case.submit("b")
    assert told(case.submit("urgent", priority=5)) == [("urgent", TOO_FEW, "", True), ("a", BEHIND, "urgent", False)]
    lowered = case.give(JobPriorityChanged(job_id="urgent", priority=-1, requested_by="u"))
    assert told(lowered) == [("a", TOO_FEW, "", True), ("urgent", BEHIND, "a", False)]


def test_the_next_of_the_line_leads_when_its_leader_leaves():
    case = full()
    for job in ("a", "b", "c"):
        case.submit(job)
    paused = told(case.give(JobPauseRequested(job_id="a", requested_by="u")))
    assert paused == [("a", PendingReason.ON_HOLD, "", False), ("b", TOO_FEW, "", True)]
    assert told(case.give(JobCancelRequested(job_id="b", requested_by="u"))) == [("c", TOO_FEW, "", True)]


def test_where_no_job_passes_another_all_are_in_one_line():
    case = full(policy="strict_fifo")
    case.submit("gang", GpuRequest(count=1, types=["v100"]))
    assert told(case.submit("a")) == [("a", BEHIND, "gang", False)]
    assert {e.line for e in case.decided(JobQueued)} == {"all"}
    case.exit("first")
    assert told(case.decided(JobQueued))[2:] == [("a", TOO_FEW, "", True)]


def test_another_policy_says_its_causes_anew():
    case = full()
    case.submit("a")
    case.submit("b", GpuRequest(count=1, types=["v100"]))
    said = case.give(PolicyChanged(policy="strict_fifo", requested_by="op"))
    assert told(said) == [("a", TOO_FEW, "", True), ("b", BEHIND, "a", False)]


def test_what_a_job_is_told_holds_at_the_end_of_the_pass():
    """Two GPUs become free on two servers; when the gang is told why it waits, a later job has one of them."""
    case = PlacementCase(n1=1, n2=1, n3=2)
    case.submit("there", GpuRequest(count=2, max_nodes=1))
    case.submit("spread", GpuRequest(count=2, max_nodes=2))
    case.wake()
    while "spread" not in case.placed:
        case.wake()
    case.submit("gang", 2)
    case.submit("one")
    case.exit("spread")
    said = case.exit("spread", "n2")
    assert case.placed[-1] == "one"
    assert told(said) == [], "it was told that fewer GPUs are free than it needs, and so it is"
    case.exit("one")
    assert told(case.decided(JobQueued))[-1] == ("gang", PendingReason.LOCALITY_RELAXING, "", True)


def test_behind_a_gang_for_which_gpus_are_kept_the_gang_is_named():
    case = PlacementCase(n1=4)
    case.submit("a", 2)
    case.submit("gang", 4)
    case.wake()
    assert told(case.submit("small", 1)) == [("small", BEHIND, "gang", True)]
    assert told(case.submit("smaller", 1)) == [("smaller", BEHIND, "small", False)]
