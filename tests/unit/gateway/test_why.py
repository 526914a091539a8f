"""Which service is the cause, by what stands on the log."""

from __future__ import annotations

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned
from libs.contracts.gateway import JobPauseRequested, JobResumeRequested
from libs.contracts.placement import AttemptFailed, JobQueued, JobSucceeded
from libs.contracts.quota import QuotaDeferred
from libs.contracts.read_models import EventRow
from libs.testing.core_case import arrival
from services.gateway.core.records import records_of
from services.gateway.core.why import Check, checks
from tests.unit.projection.story import Story, exited, grant, placed, reason, started


def of(story: Story) -> dict[str, Check]:
    events = [row for row in story.rows.all(EventRow) if row.job_id == "j"]
    return {check.check: check for check in checks(story.job(), events)}


def causes(story: Story) -> list[str]:
    return [name for name, check in of(story).items() if check.verdict == "the cause"]


def test_each_service_in_turn_is_waited_for() -> None:
    story = Story().says(arrival("j", 2, tenant="vision"))
    assert causes(story) == ["admission"]
    assert [check.verdict for check in of(story).values()] == ["the cause", "not asked yet", "not asked yet"]
    story.says(JobAdmitted(job_id="j", reason=reason("Fits", "it fits")))
    assert causes(story) == ["quota"]
    assert (of(story)["admission"].code, of(story)["admission"].message) == ("Fits", "it fits")
    story.says(QuotaDeferred(job_id="j", attempt=1, reason=reason("ExceedsQuota")))
    assert causes(story) == ["quota"]
    assert of(story)["quota"].code == "ExceedsQuota"
    story.says(grant())
    assert causes(story) == ["placement"]
    story.says(JobQueued(job_id="j", attempt=1, reason=reason("InsufficientGpus")))
    assert (causes(story), of(story)["placement"].code) == (["placement"], "InsufficientGpus")


def test_a_later_grant_waits_for_placement_although_that_has_spoken_before() -> None:
    story = (
        Story().granted().says(JobQueued(job_id="j", attempt=1, reason=reason("InsufficientGpus")), grant(attempt=2))
    )
    assert causes(story) == ["placement"]


def test_a_released_job_waits_for_placement() -> None:
    story = (
        Story()
        .granted()
        .says(JobPauseRequested(job_id="j", requested_by="bob"), JobResumeRequested(job_id="j", requested_by="bob"))
    )
    assert causes(story) == ["placement"]


def test_where_a_job_runs_is_placements_doing() -> None:
    story = Story().running()
    assert causes(story) == ["placement"]
    check = of(story)["placement"]
    assert (check.event, check.code, check.offset) == ("job.placed.v1", "Consolidated", 4)


def test_the_end_names_the_service_that_has_decided_it() -> None:
    rejected = Story().says(arrival("j", 2), JobRejected(job_id="j", reason=reason("NeverFits")))
    assert causes(rejected) == ["admission"]
    failed = Story().two_nodes().granted().says(placed(), started("n1"), exited("n1", 1), exited("n2", 1))
    failed.says(
        AttemptFailed(
            job_id="j", attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=reason("Bad")
        ),
        FailureClassified(
            job_id="j", attempt=1, failure="oom", category="user", retry_can_help=False, deciding_line="Killed"
        ),
    )
    assert causes(failed) == ["placement"]
    assert of(failed)["failure_analysis"].message == "oom (user): Killed; a retry cannot help"
    failed.says(JobAbandoned(job_id="j", attempt=1, exit_code=1, signal=None, reason=reason("NoRetries")))
    assert causes(failed) == ["failure_analysis"]
    done = Story().running().says(exited("n1"), exited("n2"), JobSucceeded(job_id="j", attempt=1))
    assert (causes(done), of(done)["placement"].message) == (["placement"], "every task exited with code 0")


def test_rows_become_the_records_that_they_were_made_of() -> None:
    story = Story().running()
    again = list(records_of(story.rows.all(EventRow)))
    assert [record.envelope.event for record in again] == [record.envelope.event for record in story.records]
