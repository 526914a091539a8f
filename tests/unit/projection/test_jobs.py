"""What users see of a job, from its arrival to its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.agent import JobResumed, JobSuspended
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import (
    JobCancelRequested,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
)
from libs.contracts.introspection import (
    GpuIdle,
    JobProfiled,
    JobRecovered,
    JobStalled,
    JobStuck,
    LossDiverged,
    NodeLost,
)
from libs.contracts.migration import MigrationCompleted, MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    GangReleased,
    GangReserved,
    JobCancelled,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    ResumedJob,
    TimeSliceStarted,
)
from libs.contracts.quota import QuotaDeferred
from libs.contracts.read_models import AttemptRow, HoldingRow, JobState, LabelRow, ProfileRow
from libs.contracts.reasons import Reason, Rejected
from libs.testing.core_case import arrival, node
from tests.unit.projection.story import Story, exited, grant, placed, reason, started


def failed(attempt: int = 1, code: int = 3) -> AttemptFailed:
    return AttemptFailed(
        job_id="j",
        attempt=attempt,
        node_id="n1",
        exit_code=code,
        signal=None,
        outcome="exited",
        reason=reason("TaskEndedBadly"),
    )


def test_a_job_is_queued_from_its_arrival_on_and_says_what_for() -> None:
    story = Story().says(arrival("j", 2, tenant="vision", labels={"team": "a"}, user="bob"))
    job = story.job()
    assert (job.state, job.reason, job.attempt) == (JobState.QUEUED, "NotYetEvaluated", 0)
    assert (job.name, job.user_name, job.gpus, job.version) == (job.spec["name"], "bob", 2, 0)
    assert [(label.name, label.value) for label in story.rows.all(LabelRow)] == [("team", "a")]
    story.says(JobAdmitted(job_id="j", reason=reason("Fits")))
    assert (job.state, job.message) == (JobState.QUEUED, "admitted; quota looks at it next")
    story.says(QuotaDeferred(job_id="j", attempt=1, reason=reason("ExceedsQuota", "8 of 8")))
    assert (job.reason, job.message, job.reason_source) == ("ExceedsQuota", "8 of 8", "quota")


def test_a_reason_keeps_its_numbers_and_the_rejected_alternatives() -> None:
    why = Reason(
        code="GangFragmented",
        message="2 free, not together",
        numbers={"free": 2},
        rejected=[Rejected(what="n1", code="TooFew", numbers={"free": 1})],
    )
    job = Story().granted().says(JobQueued(job_id="j", attempt=1, reason=why)).job()
    assert (job.state, job.numbers) == (JobState.QUEUED, {"free": 2})
    assert job.rejected == [{"what": "n1", "code": "TooFew", "numbers": {"free": 1}}]
    assert job.reason_offset == job.version == 2


def test_a_gang_runs_when_its_last_task_has_started() -> None:
    story = Story().two_nodes().granted().says(placed(), started("n1"))
    job = story.job()
    assert (job.state, job.started_s) == (JobState.STARTING, None)
    assert story.held_by() == ["n1:0", "n2:0"]
    story.says(started("n2"))
    assert (job.state, job.placed_s, job.started_s) == (JobState.RUNNING, 4.0, 6.0)


def test_gpus_are_held_until_the_last_task_has_exited() -> None:
    story = Story().running().says(exited("n1"))
    assert (story.job().state, story.held_by()) == (JobState.RUNNING, ["n1:0", "n2:0"])
    story.says(exited("n2"))
    assert (story.job().state, story.held_by()) == (JobState.STOPPING, [])
    story.says(JobSucceeded(job_id="j", attempt=1))
    job = story.job()
    assert (job.state, job.reason, job.exit_code, job.finished_s) == (JobState.SUCCEEDED, "Succeeded", 0, 9.0)
    assert [task["node_id"] for task in job.placement] == ["n1", "n2"], "where it ran is kept"


def test_a_grant_counts_until_its_attempt_ends() -> None:
    story = Story().running()
    assert story.tenant().granted_gpus == 2
    story.says(failed())
    assert story.tenant().granted_gpus == 0
    story.says(RetryScheduled(job_id="j", attempt=2, not_before_s=99.0, reason=reason("Backoff")), grant(attempt=2))
    assert (story.tenant().granted_gpus, story.job().attempt, story.job().not_before_s) == (2, 2, None)
    story.says(JobCancelled(job_id="j", attempt=2, reason=reason()))
    assert story.tenant().granted_gpus == 0


def test_a_failure_that_is_not_followed_by_another_attempt_is_no_retry() -> None:
    story = Story().running().says(exited("n1", 3), exited("n2", 143), failed())
    story.says(JobAbandoned(job_id="j", attempt=1, exit_code=3, signal=None, reason=reason("RetryCannotHelp")))
    job = story.job()
    assert (job.state, job.failed_attempts, job.retries_used) == (JobState.FAILED, 1, 0)


def test_an_attempt_that_was_interrupted_uses_up_no_retry() -> None:
    story = Story().running().says(exited("n1", 3), exited("n2", 143), failed())
    why = reason("Interrupted")
    story.says(RetryScheduled(job_id="j", attempt=2, not_before_s=99.0, reason=why, retries_used=0))
    assert story.job().retries_used == 0


def test_a_failed_attempt_is_classified_and_tried_again() -> None:
    story = Story().running().says(exited("n1", 3), exited("n2", 143), failed())
    job = story.job()
    assert (job.state, job.reason, job.exit_code, job.failed_attempts) == (JobState.STOPPING, "TaskEndedBadly", 3, 1)
    story.says(
        FailureClassified(
            job_id="j",
            attempt=1,
            failure="traceback_from_crash",
            category="user",
            retry_can_help=True,
            deciding_line="ValueError: 3",
        ),
        RetryScheduled(job_id="j", attempt=2, not_before_s=99.0, reason=reason("Backoff")),
    )
    assert (job.state, job.reason, job.not_before_s, job.queued_s) == (JobState.QUEUED, "Backoff", 99.0, 11.0)
    assert job.retries_used == 1, "as of logs that do not say how many are"
    assert (job.failure, job.deciding_line, job.placement) == ("traceback_from_crash", "ValueError: 3", [])
    story.says(grant(attempt=2), placed(attempt=2))
    assert (job.state, job.exit_code) == (JobState.STARTING, None)
    outcomes = {row.attempt: (row.outcome, row.failure, row.exit_code) for row in story.rows.all(AttemptRow)}
    assert outcomes == {1: ("failed", "traceback_from_crash", 3), 2: ("", None, None)}


def test_an_abandoned_job_has_failed_with_its_exit_code() -> None:
    story = Story().running().says(exited("n1", 3), exited("n2", 143), failed())
    story.says(JobAbandoned(job_id="j", attempt=1, exit_code=3, signal=None, reason=reason("RetriesUsedUp")))
    job = story.job()
    assert (job.state, job.reason, job.exit_code) == (JobState.FAILED, "RetriesUsedUp", 3)


def test_a_rejected_job_keeps_the_reason() -> None:
    job = Story().says(arrival("j", 2), JobRejected(job_id="j", reason=reason("NeverFits"))).job()
    assert (job.state, job.reason, job.finished_s) == (JobState.REJECTED, "NeverFits", 1.0)


def test_a_cancelled_job_stops_first() -> None:
    story = Story().running().says(JobCancelRequested(job_id="j", requested_by="bob", note="wrong data"))
    job = story.job()
    assert (job.state, job.reason) == (JobState.STOPPING, "CancelRequested")
    assert job.message == "bob wants it cancelled: wrong data"
    story.says(exited("n1", None), exited("n2", None))
    assert (job.state, story.held_by()) == (JobState.STOPPING, [])
    story.says(JobCancelled(job_id="j", attempt=1, reason=reason("CancelRequested")))
    assert (job.state, story.rows.all(AttemptRow)[0].outcome) == (JobState.CANCELLED, "cancelled")


def test_a_paused_job_is_suspended_when_all_of_it_is() -> None:
    def suspended(node_id: str) -> JobSuspended:
        return JobSuspended(job_id="j", attempt=1, node_id=node_id)

    story = Story().running().says(JobPauseRequested(job_id="j", requested_by="bob"), suspended("n1"))
    job = story.job()
    assert (job.state, job.held, job.reason) == (JobState.RUNNING, True, "OnHold")
    story.says(suspended("n2"))
    assert (job.state, story.held_by()) == (JobState.SUSPENDED, ["n1:0", "n2:0"])
    story.says(JobResumeRequested(job_id="j", requested_by="bob"))
    story.says(*(JobResumed(job_id="j", attempt=1, node_id=n) for n in ("n1", "n2")))
    assert (job.state, job.held, job.reason) == (JobState.RUNNING, False, "Resumed")


def test_a_paused_job_has_no_gpus_and_is_told_why_it_does_not_go_on() -> None:
    story = Story().running().says(JobPauseRequested(job_id="j", requested_by="bob"))
    story.says(*(JobSuspended(job_id="j", attempt=1, node_id=n, parked=True) for n in ("n1", "n2")))
    job = story.job()
    assert (job.state, job.message) == (JobState.SUSPENDED, "bob has paused it")
    story.says(turn(suspended=["j"], reason=reason("OnHold", "its GPUs are given away")))
    assert (job.state, job.reason, job.message) == (JobState.SUSPENDED, "OnHold", "its GPUs are given away")
    assert story.held_by() == []
    story.says(
        JobResumeRequested(job_id="j", requested_by="bob"),
        JobQueued(job_id="j", attempt=1, reason=reason("InsufficientGpus", "0 are free")),
    )
    assert (job.state, job.held, job.reason, job.attempt) == (JobState.SUSPENDED, False, "InsufficientGpus", 1)
    assert [row.outcome for row in story.rows.all(AttemptRow)] == [""]
    story.says(turn(resumed=[ResumedJob(job_id="j", gang=placed().gang)], reason=reason("GpusBecameFree")))
    story.says(*(JobResumed(job_id="j", attempt=1, node_id=n) for n in ("n1", "n2")))
    assert (job.state, story.held_by()) == (JobState.RUNNING, ["n1:0", "n2:0"])


def test_a_paused_job_that_could_not_be_parked_says_why_it_has_its_gpus_still() -> None:
    still = JobSuspended(job_id="j", attempt=1, node_id="n1", note="no room")
    story = Story().running().says(JobPauseRequested(job_id="j", requested_by="bob"), still)
    assert story.job().reason == "OnHold"
    assert story.job().message == (
        "paused, and stands still with its memory on the GPUs of n1, which stay its own unless rounds or time slices "
        "need them: no room"
    )
    story = Story().running().says(still)
    assert story.job().reason == "Consolidated", "the end of a turn is no pause"


def turn(*, reason: Reason, suspended: Sequence[str] = (), resumed: Sequence[ResumedJob] = ()) -> TimeSliceStarted:
    return TimeSliceStarted(
        server="n1",
        nodes=["n1", "n2"],
        number=1,
        ends_s=0.0,
        running=[],
        resumed=list(resumed),
        suspended=list(suspended),
        started=[],
        reason=reason,
    )


def test_a_drained_job_migrates_and_comes_back_with_the_next_attempt() -> None:
    story = Story().running()
    job = story.job()
    story.says(
        MigrationStarted(migration_id="m", job_id="j", attempt=1, from_nodes=["n1"], reason=reason("NodeDrained")),
        JobPreempted(job_id="j", attempt=1, reason=reason("NodeDrained")),
        exited("n1", None),
    )
    assert (job.state, job.preemptions, story.held_by()) == (JobState.MIGRATING, 1, ["n1:0", "n2:0"])
    story.says(exited("n2", None), JobQueued(job_id="j", attempt=2, reason=reason("NodeDrained")))
    assert (job.state, job.attempt, story.tenant().granted_gpus) == (JobState.QUEUED, 2, 2)
    story.says(placed(attempt=2), MigrationCompleted(migration_id="m", job_id="j", attempt=2, to_nodes=["n1", "n2"]))
    story.says(started("n1", attempt=2), started("n2", attempt=2))
    assert (job.state, job.first_started_s, job.started_s) == (JobState.RUNNING, 6.0, 15.0)
    assert [row.outcome for row in story.rows.all(AttemptRow)] == ["preempted", ""]


def test_a_job_of_a_lost_node_gives_its_gpus_back_when_the_rest_has_stopped() -> None:
    story = Story().running().says(NodeLost(node_id="n1", silent_s=30.0, incarnation=1))
    story.says(JobPreempted(job_id="j", attempt=1, reason=reason("NodeLost")))
    assert (story.job().state, story.held_by()) == (JobState.STOPPING, ["n1:0", "n2:0"])
    story.says(exited("n2", None))
    assert story.held_by() == []
    story.says(JobQueued(job_id="j", attempt=2, reason=reason("NodeLost")))
    assert story.job().state is JobState.QUEUED


@pytest.mark.parametrize(("kept", "held"), [([TaskRef(job_id="j", attempt=1)], True), ([], False)])
def test_an_agent_that_restarts_says_which_tasks_it_still_has(kept: list[TaskRef], held: bool) -> None:
    story = Story().running().says(exited("n2"))
    story.says(node("n1", 2, incarnation=2, tasks=kept))
    assert (story.held_by() != []) is held


def test_an_order_on_its_way_survives_the_restart_of_its_agent() -> None:
    story = Story().two_nodes().granted().says(placed(), node("n1", 2, incarnation=2))
    assert (story.job().state, story.held_by()) == (JobState.STARTING, ["n1:0", "n2:0"])


def test_what_belongs_to_an_older_attempt_changes_nothing() -> None:
    story = Story().running().says(JobPreempted(job_id="j", attempt=1, reason=reason()))
    story.says(exited("n1"), exited("n2"), JobQueued(job_id="j", attempt=2, reason=reason()), placed(attempt=2))
    before = story.job().state
    late: list[Event] = [exited("n1"), started("n2"), JobPreempted(job_id="j", attempt=1, reason=reason()), placed()]
    story.says(*late)
    assert (story.job().state, before, story.job().attempt) == (JobState.STARTING, JobState.STARTING, 2)


def test_nothing_changes_a_job_that_has_ended() -> None:
    story = Story().running().says(exited("n1"), exited("n2"), JobSucceeded(job_id="j", attempt=1))
    version = story.job().version
    story.says(
        JobCancelRequested(job_id="j", requested_by="bob"),
        grant(attempt=2),
        JobQueued(job_id="j", attempt=2, reason=reason()),
        JobAbandoned(job_id="j", attempt=1, exit_code=1, signal=None, reason=reason()),
    )
    assert (story.job().state, story.job().version) == (JobState.SUCCEEDED, version)
    assert story.tenant().granted_gpus == 0


def test_measurements_become_points_and_the_latest_figures() -> None:
    story = Story().running()
    for total, loss, word in ((10, 2.0, ""), (30, None, ""), (50, None, "nan")):
        story.says(
            JobProfiled(
                job_id="j",
                attempt=1,
                window_start_s=float(total),
                window_s=10.0,
                minibatches_total=total,
                rate_per_s=2.0,
                loss=loss,
                loss_nonfinite=word,
                memory_peak_bytes=total,
                memory_min_bytes=1,
            )
        )
        if not word:
            assert (story.job().loss, story.job().loss_nonfinite) == (2.0, "")
    job = story.job()
    assert (job.minibatches, job.rate_per_s, job.loss, job.memory_peak_bytes) == (50, 2.0, None, 50)
    assert (job.loss_nonfinite, job.measured_until_s) == ("nan", 60.0)
    assert [(p.minibatches_total, p.loss) for p in story.rows.all(ProfileRow)] == [(10, 2.0), (30, None), (50, None)]


def test_what_is_wrong_with_a_job_is_noted_until_it_recovers_or_starts_anew() -> None:
    story = Story().running()
    story.says(
        JobStalled(
            job_id="j", attempt=1, quiet_s=70, limit_s=60, p99_s=0.1, minibatches_total=9, reason=reason("JobStalled")
        ),
        GpuIdle(job_id="j", attempt=1, idle_s=900, limit_s=900, gpus=2, reason=reason("GpuIdle")),
    )
    assert list(story.job().notices) == ["JobStalled", "GpuIdle"]
    assert (story.job().state, story.job().reason) == (JobState.RUNNING, "GpuIdle")
    story.says(
        JobRecovered(job_id="j", attempt=1, alarm="stalled", minibatches_total=10, reason=reason("Recovered")),
        LossDiverged(
            job_id="j",
            attempt=1,
            rank=0,
            loss_nonfinite="nan",
            in_a_row=5,
            minibatches_total=15,
            reason=reason("LossDiverged"),
        ),
    )
    assert list(story.job().notices) == ["GpuIdle", "LossDiverged"]
    story.says(JobPreempted(job_id="j", attempt=1, reason=reason("Test")), *(exited(n) for n in ("n1", "n2")))
    story.says(JobQueued(job_id="j", attempt=2, reason=reason("Test")), placed("j", attempt=2))
    assert story.job().notices == {}


def test_a_job_that_is_left_standing_is_noticed_until_something_has_brought_it_on() -> None:
    story = Story().granted()
    stuck = JobStuck(
        job_id="j",
        attempt=1,
        awaited="word",
        owed_by=["placement"],
        stood_s=300.0,
        limit_s=300.0,
        gpus=0,
        reason=reason("JobStuck"),
    )
    story.says(stuck)
    assert list(story.job().notices) == ["JobStuck"]
    assert (story.job().state, story.job().reason) == (JobState.QUEUED, "JobStuck")
    story.says(
        JobQueued(job_id="j", attempt=1, reason=reason("InsufficientGpus")),
        JobRecovered(job_id="j", attempt=1, alarm="stuck", minibatches_total=0, reason=reason("Recovered")),
    )
    assert (story.job().notices, story.job().reason) == ({}, "InsufficientGpus")


def test_a_reservation_is_shown_while_it_lasts() -> None:
    story = Story().granted()
    story.says(GangReserved(job_id="j", attempt=1, node_ids=["n1"], gpus_held=2, reason=reason()))
    assert story.job().reserved_nodes == ["n1"]
    story.says(GangReleased(job_id="j", attempt=1, reason=reason()))
    assert story.job().reserved_nodes == []


def test_a_priority_changes_while_the_job_lives() -> None:
    story = Story().granted().says(JobPriorityChanged(job_id="j", priority=7, requested_by="bob"))
    assert (story.job().priority, story.job().version) == (7, 2)


def test_gpu_time_is_the_time_between_a_place_and_its_last_exit() -> None:
    story = Story().running()  # placed at 4 s, one GPU on each of two nodes
    held = story.rows.all(HoldingRow)
    assert [(row.gpu_type, row.gpus, row.begin_s, row.end_s) for row in held] == [("v100", 2, 4.0, None)]
    still = (JobSuspended(job_id="j", attempt=1, node_id=n, parked=True) for n in ("n1", "n2"))
    story.says(*still, turn(suspended=["j"], reason=reason()))
    assert [(row.end_s, story.job().gpu_s) for row in held] == [(9.0, 10.0)]
    story.says(turn(resumed=[ResumedJob(job_id="j", gang=placed().gang)], reason=reason()))
    story.says(exited("n1"), exited("n2"), JobSucceeded(job_id="j", attempt=1))
    assert [(row.begin_s, row.end_s) for row in story.rows.all(HoldingRow)] == [(4.0, 9.0), (10.0, 12.0)]
    assert (story.job().gpu_s, story.job().holding_offset) == (14.0, None)
