"""Attempts end, fail, are cancelled, paused, and lose their nodes."""

from libs.contracts import settings
from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.agent import JobExited
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.gateway import (
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
)
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import (
    OWNER,
    AttemptFailed,
    JobCancelled,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    LaunchTask,
    ResumeTask,
    StopTask,
    SuspendTask,
    TimeSliceStarted,
)
from libs.contracts.reasons import PendingReason
from libs.contracts.runtime import TimerFired
from libs.node.advance import advance
from libs.node.seen import Seen
from libs.node.task import Task, apply_order
from libs.testing.core_case import arrival, only
from tests.unit.placement.placement_case import SAID, PlacementCase

TIMER = TimerFired(service="placement", due_s=0.0)
CANCEL = JobCancelRequested(job_id="a", requested_by="u")


def test_a_job_succeeds_when_all_its_tasks_have():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    assert case.exit("a", "n1") == []
    assert case.exit("a", "n2") == [JobSucceeded(job_id="a", attempt=1)]
    assert case.replica.state.jobs == {}


def test_a_task_that_ends_badly_takes_its_peers_along_and_is_blamed():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    stop = only(case.exit("a", "n2", code=3), StopTask)
    assert (stop.node_id, stop.reason.code) == ("n1", "PeerFailed")
    failed = only(case.exit("a", "n1", code=None, signal=15, outcome="stopped"), AttemptFailed)
    assert (failed.node_id, failed.exit_code) == ("n2", 3)


def test_the_gpus_of_a_failed_attempt_go_to_the_next_job_in_the_same_turn():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.submit("b")
    assert [type(e) for e in case.exit("a", code=1)] == [AttemptFailed, JobPlaced, LaunchTask]


def test_a_retry_is_placed_when_quota_grants_it():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.exit("a", code=1)
    case.give(RetryScheduled(job_id="a", attempt=2, not_before_s=5.0, reason=SAID))
    assert only(case.grant("a", 2), JobPlaced).attempt == 2


def test_an_abandoned_job_is_forgotten():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.exit("a", code=1)
    case.give(JobAbandoned(job_id="a", attempt=1, exit_code=1, signal=None, reason=SAID))
    assert case.replica.state.jobs == {}
    assert case.grant("a", 2) == []


def test_cancelling_a_queued_job_ends_it_at_once():
    case = PlacementCase(n1=1)
    case.submit("b")
    case.submit("a")
    assert [type(e) for e in case.give(CANCEL)] == [JobCancelled]


def test_cancelling_a_running_job_stops_it_first():
    case = PlacementCase(n1=1)
    case.submit("a")
    assert [type(e) for e in case.give(CANCEL)] == [StopTask]
    assert case.give(CANCEL) == []
    assert [type(e) for e in case.exit("a", code=None, signal=15, outcome="stopped")] == [JobCancelled]


def test_a_job_that_finishes_before_the_stop_arrives_has_succeeded():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.give(CANCEL)
    assert [type(e) for e in case.exit("a")] == [JobSucceeded]


def test_a_cancellation_before_the_verdict_of_admission_never_ends_the_job_twice():
    for verdict, end in (
        (JobAdmitted(job_id="a", reason=SAID), [JobCancelled]),
        (JobRejected(job_id="a", reason=SAID), []),
    ):
        case = PlacementCase(n1=1)
        case.give(arrival("a"))
        assert case.give(CANCEL) == []
        assert [type(e) for e in case.give(verdict)] == end
        assert case.replica.state.jobs == {}


def test_a_cancellation_while_failure_analysis_has_the_word_takes_effect_after_it():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.exit("a", code=1)
    assert case.give(CANCEL) == []
    retry = RetryScheduled(job_id="a", attempt=2, not_before_s=5.0, reason=SAID)
    assert [type(e) for e in case.give(retry)] == [JobCancelled]


def test_pause_and_resume_of_a_queued_job():
    case = PlacementCase(n1=1)
    case.submit("b")
    case.submit("a")
    held = only(case.give(JobPauseRequested(job_id="a", requested_by="u")), JobQueued)
    assert held.reason.code == PendingReason.ON_HOLD
    assert [type(e) for e in case.exit("b")] == [JobSucceeded]
    assert [type(e) for e in case.give(JobResumeRequested(job_id="a", requested_by="u"))] == [JobPlaced, LaunchTask]


def test_pause_and_resume_of_a_running_job():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2)
    for node_id in ("n1", "n2"):
        case.start("a", node_id)
    suspend = case.give(JobPauseRequested(job_id="a", requested_by="u"))
    assert [(type(e), e.node_id) for e in suspend] == [(SuspendTask, "n1"), (SuspendTask, "n2")]
    resume = case.give(JobResumeRequested(job_id="a", requested_by="u"))
    assert [(type(e), e.node_id) for e in resume] == [(ResumeTask, "n1"), (ResumeTask, "n2")]


def test_a_migrating_job_leaves_and_is_placed_elsewhere():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a")
    case.give(NodeDrainRequested(node_id="n1", note="ecc", requested_by="op"))
    started = MigrationStarted(migration_id="m-1", job_id="a", attempt=1, from_nodes=["n1"], reason=SAID)
    assert [type(e) for e in case.give(started)] == [JobPreempted, StopTask]
    outputs = case.exit("a", code=None, signal=15, outcome="stopped")
    assert [type(e) for e in outputs] == [JobQueued, JobPlaced, LaunchTask]
    assert only(outputs, JobPlaced).attempt == 2
    assert case.where("a") == {"n2": [0]}
    case.submit("b")
    assert "b" not in case.placed
    case.give(NodeUndrainRequested(node_id="n1", requested_by="op"))
    assert case.where("b") == {"n1": [0]}


def test_a_lost_node_takes_its_gang_off_and_the_job_is_placed_again():
    case = PlacementCase(n1=1, n2=1, n3=1)
    case.submit("a", 2)
    outputs = case.give(NodeLost(node_id="n2", silent_s=20.0, incarnation=1))
    assert [type(e) for e in outputs] == [JobPreempted, StopTask, StopTask]
    assert [order.node_id for order in outputs[1:]] == ["n1", "n2"]
    again = only(case.exit("a", "n1", code=None, signal=15, outcome="stopped"), JobPlaced)
    assert [task.node_id for task in again.gang] == ["n1", "n3"]


def test_an_agent_that_comes_back_finds_the_stop_of_an_attempt_behind_its_launch():
    """It has read neither when its node is lost: what it reads then launches nothing."""
    case = PlacementCase(n1=1, n2=1)
    launched = only(case.submit("a"), LaunchTask)
    stopped = only(case.give(NodeLost(node_id="n1", silent_s=20.0, incarnation=1)), StopTask)
    tasks: dict[str, Task] = {}
    for order in (launched, stopped):
        apply_order(tasks, order)
    step = advance(tasks["a.1"], Seen(), 0.0)
    assert step.actions == [] and [type(fact) for fact in step.facts] == [JobExited]


def test_a_report_about_a_former_life_of_the_agent_is_ignored():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    case.rejoin("n1", 1, tasks=[("a", 1)])
    assert case.give(NodeLost(node_id="n1", silent_s=20.0, incarnation=1)) == []


def test_a_node_that_returns_is_told_to_stop_what_it_should_not_run():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a")
    case.start("a")
    case.give(NodeLost(node_id="n1", silent_s=20.0, incarnation=1))
    assert case.where("a") == {"n2": [0]}
    stop = only(case.rejoin("n1", 1, tasks=[("a", 1)], incarnation=1), StopTask)
    assert (stop.node_id, stop.attempt, stop.reason.code) == ("n1", 1, "AttemptIsOver")
    assert case.exit("a", "n1", code=None, signal=15, outcome="stopped") == []


def test_an_agent_that_restarts_keeps_its_tasks():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    assert case.rejoin("n1", 1, tasks=[("a", 1)]) == []
    assert [type(e) for e in case.exit("a")] == [JobSucceeded]


def test_an_agent_that_restarts_without_a_started_task_has_lost_it():
    case = PlacementCase(n1=1)
    case.submit("a")
    case.start("a")
    assert [type(e) for e in case.rejoin("n1", 1, tasks=[])] == [JobPreempted, JobQueued, JobPlaced, LaunchTask]


def test_a_launch_that_has_not_reached_the_agent_yet_is_not_lost():
    case = PlacementCase(n1=1)
    case.submit("a")
    assert case.rejoin("n1", 1, tasks=[]) == []


def test_an_exit_from_a_node_outside_the_gang_is_ignored():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a")
    assert case.exit("a", "n2", code=1) == []


LIMIT_S = settings.default(OWNER, "start_limit_s")


def test_an_attempt_that_does_not_begin_in_time_is_stopped_and_fails_with_what_was_seen_last():
    case = PlacementCase(n1=1, n2=1)
    case.submit("a", 2, at=100.0)
    case.start("a", "n1")
    assert case.give(TIMER, at=99.0 + LIMIT_S) == []
    assert case.replica.next_wakeup == 100.0 + LIMIT_S
    stops = case.give(TIMER, at=100.0 + LIMIT_S)
    assert [(stop.node_id, stop.grace_s, stop.reason.code) for stop in stops if isinstance(stop, StopTask)] == [
        ("n1", 0.0, "StartTimedOut"),
        ("n2", 0.0, "StartTimedOut"),
    ]
    assert case.give(TIMER, at=101.0 + LIMIT_S) == []
    case.exit("a", "n1", code=None, signal=9, outcome="stopped")
    seen = JobExited(
        job_id="a",
        attempt=1,
        node_id="n2",
        exit_code=None,
        signal=None,
        outcome="stopped",
        stderr_tail="fetching and unpacking code c-1",
    )
    failed = only(case.give(seen), AttemptFailed)
    assert (failed.node_id, failed.outcome, failed.stderr_tail) == (
        "n2",
        "start_timed_out",
        "fetching and unpacking code c-1",
    )
    assert failed.reason.message == ("the task on n2 did not start in time; last seen: fetching and unpacking code c-1")


def test_a_job_that_has_begun_has_no_limit_to_its_start():
    case = PlacementCase(n1=1)
    case.submit("a", 1, at=100.0)
    case.start("a", "n1")
    assert case.replica.next_wakeup is None
    assert case.give(TIMER, at=200.0 + LIMIT_S) == []


def test_the_limit_of_a_start_is_a_setting_and_each_attempt_has_its_own():
    case = PlacementCase(n1=1)
    case.give(SettingChanged(service=OWNER, name="start_limit_s", value=5.0, requested_by="ada"))
    case.submit("a", 1, at=100.0)
    case.exit("a", code=None, outcome="node_failed", at=103.0)
    case.give(
        RetryScheduled(job_id="a", attempt=2, not_before_s=103.0, reason=SAID),
    )
    case.grant("a", 2)
    assert case.replica.next_wakeup == 108.0
    assert only(case.give(TIMER, at=108.0), StopTask).attempt == 2
    # What ends by itself meanwhile says why.
    failed = only(case.exit("a", attempt=2, code=None, outcome="launch_failed"), AttemptFailed)
    assert failed.outcome == "launch_failed"


def test_an_attempt_that_stood_still_when_its_time_to_begin_was_over_has_it_again_when_it_goes_on():
    """While it is suspended another task has its GPUs, so it could not begin."""
    case = PlacementCase(n1=1)
    case.give(PolicyChanged(policy="gandiva", requested_by="ada"))
    case.submit("a", 1, at=100.0)
    turn = only(case.submit("b", 1, at=101.0), TimeSliceStarted)
    assert (turn.suspended, turn.started) == (["a"], ["b"])
    case.start("b")
    turn = only(case.give(TIMER, at=100.0 + LIMIT_S), TimeSliceStarted)
    assert turn.resumed[0].job_id == "a" and case.decided(StopTask) == []
    case.exit("b", at=200.0 + LIMIT_S)
    assert case.replica.next_wakeup == 100.0 + 2 * LIMIT_S
    assert only(case.give(TIMER, at=100.0 + 2 * LIMIT_S), StopTask).job_id == "a"
