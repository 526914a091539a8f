"""The fold of lives, event by event: what is booked when, and where two readers mean different things."""

from __future__ import annotations

from libs.contracts.admission import JobRejected
from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement, TaskRef
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import MigrationCompleted, MigrationStarted
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    ResumedJob,
    TimeSliceStarted,
)
from libs.contracts.quota import QuotaDeferred
from libs.contracts.read_models import JobState, TaskStatus
from libs.contracts.reasons import PendingReason, Reason
from libs.lifecycle import Attempt, Holding, Life, Lives
from libs.testing.core_case import arrival, node

WHY = Reason(code="Because", message="")


def gang(*nodes: str, gpus: int = 2) -> list[TaskPlacement]:
    return [TaskPlacement(node_id=n, gpu_indices=list(range(gpus)), first_rank=i * gpus) for i, n in enumerate(nodes)]


def placed(*nodes: str, attempt: int = 1, job_id: str = "j", gpus: int = 2) -> JobPlaced:
    return JobPlaced(job_id=job_id, attempt=attempt, gang=gang(*nodes, gpus=gpus), reason=WHY)


def queued(code: str = PendingReason.INSUFFICIENT_GPUS, attempt: int = 1) -> JobQueued:
    return JobQueued(job_id="j", attempt=attempt, reason=Reason(code=code, message=""))


def started(node_id: str = "n1", attempt: int = 1) -> JobStarted:
    return JobStarted(job_id="j", attempt=attempt, node_id=node_id, pid=1)


def exited(node_id: str = "n1", attempt: int = 1) -> JobExited:
    how = {"exit_code": 0, "signal": None, "outcome": "exited"}
    return JobExited(job_id="j", attempt=attempt, node_id=node_id, **how)  # type: ignore[arg-type]


def suspended(node_id: str = "n1", attempt: int = 1) -> JobSuspended:
    return JobSuspended(job_id="j", attempt=attempt, node_id=node_id, delay_s=0.5)


def turn(*, out: bool) -> TimeSliceStarted:
    resumed = [] if out else [ResumedJob(job_id="j", gang=gang("n1"))]
    about = {"server": "n1", "nodes": ["n1"], "number": 1, "ends_s": 99.0, "running": [], "started": []}
    return TimeSliceStarted(**about, suspended=["j"] if out else [], resumed=resumed, reason=WHY)  # type: ignore[arg-type]


class Told:
    """Lives after events that stand ten seconds apart."""

    def __init__(self, *events: Event) -> None:
        self.lives = Lives()
        self.ended: list[Attempt | Holding] = []
        self.says(node("n1", 4), arrival("j", 2), *events)

    def says(self, *events: Event) -> Told:
        for event in events:
            self.ended += self.lives.take(event, self.lives.events * 10.0)
        return self

    @property
    def life(self) -> Life:
        return self.lives.jobs["j"]


def test_a_wait_is_booked_under_the_cause_that_was_named_last():
    fair = QuotaDeferred(job_id="j", attempt=1, reason=Reason(code=PendingReason.EXCEEDS_QUOTA, message=""))
    books = Told(fair, queued(PendingReason.GANG_FRAGMENTED), queued(), placed("n1"), queued()).life.books
    # From 10 s on nothing is named, from 20 s quota, from 30 s fragmentation, from 40 s something else; 50 s: GPUs.
    assert books.queue_s == 40.0
    assert books.waits_s == {
        PendingReason.NOT_YET_EVALUATED: 10.0,
        PendingReason.EXCEEDS_QUOTA: 10.0,
        PendingReason.GANG_FRAGMENTED: 10.0,
        PendingReason.INSUFFICIENT_GPUS: 10.0,
    }


def test_gpu_time_is_booked_by_type_from_the_placement_to_placements_own_word():
    told = Told(placed("n1"), started(), exited())
    assert told.life.holds_gpus is False, "its last task has exited"
    assert told.life.books.holding is not None, "placement has not taken the GPUs back"
    books = told.says(JobSucceeded(job_id="j", attempt=1)).life.books
    assert (books.gpu_s, books.gpu_s_by_type) == (2 * 30.0, {"v100": 2 * 30.0})
    assert told.life.state is JobState.SUCCEEDED


def test_time_between_slices_is_neither_waiting_nor_gpu_time_and_the_attempt_lasts():
    told = Told(placed("n1"), started(), turn(out=True), turn(out=False), JobSucceeded(job_id="j", attempt=1))
    assert (told.life.books.gpu_s, told.life.books.queue_s) == (2 * 30.0, 10.0)
    attempt, *holdings = sorted(told.ended, key=lambda each: isinstance(each, Holding))
    assert isinstance(attempt, Attempt)
    assert (attempt.placed_s, attempt.released_s, attempt.released_by) == (20.0, 60.0, "JobSucceeded")
    assert [(each.begin_s, each.end_s) for each in holdings if isinstance(each, Holding)] == [
        (20.0, 40.0),
        (50.0, 60.0),
    ]


def test_a_preempted_attempt_ends_when_that_is_decided_and_has_its_gpus_until_it_is_queued():
    told = Told(placed("n1"), JobPreempted(job_id="j", attempt=1, reason=WHY))
    assert (told.life.state, told.ended) == (JobState.STOPPING, [])
    [_, attempt] = told.says(exited(), queued(attempt=2)).ended
    assert isinstance(attempt, Attempt)
    assert (attempt.outcome, attempt.ended_s, attempt.released_s, attempt.released_by) == (
        "preempted",
        30.0,
        50.0,
        "JobQueued",
    )


def test_a_gang_of_which_one_task_never_began_has_started_and_was_never_whole():
    told = Told(node("n2", 4), placed("n1", "n2", gpus=1), exited("n1"), started("n2"))
    assert (told.life.started_s, told.life.books.whole_gang_s) == (50.0, None)


def test_a_start_that_is_told_twice_does_not_make_a_gang_whole():
    told = Told(node("n2", 4), placed("n1", "n2", gpus=1), started("n1"), started("n1"))
    assert (told.life.state, told.life.books.whole_gang_s) == (JobState.STARTING, None)
    assert told.says(started("n2")).life.books.whole_gang_s == 60.0


def test_what_belongs_to_an_earlier_attempt_changes_no_state():
    told = Told(placed("n1"), queued(attempt=2), placed("n1", attempt=2))
    before = (told.life.state, told.life.tasks, told.life.attempt)
    told.says(
        started(),
        exited(),
        AttemptFailed(job_id="j", attempt=1, node_id="n1", exit_code=1, signal=None, outcome="", reason=WHY),
    )
    assert (told.life.state, told.life.tasks, told.life.attempt) == before
    assert told.life.books.first_task_s == 50.0, "but a task has run"


def test_a_move_begins_an_attempt_that_stands_still_and_goes_on():
    move = JobMoved(migration_id="m", job_id="j", from_attempt=1, attempt=2, gang=gang("n1"), reason=WHY)
    begun = MigrationStarted(migration_id="m", job_id="j", attempt=1, from_nodes=["n1"], reason=WHY)
    told = Told(placed("n1"), started(), suspended(), begun, move)
    assert (told.life.state, told.life.tasks) == (JobState.MIGRATING, {"n1": TaskStatus.SUSPENDED})
    told.says(JobResumed(job_id="j", attempt=2, node_id="n1"))
    suspension = told.life.books.suspension
    assert suspension is not None and (suspension.begin_s, suspension.end_s) == (40.0, 70.0)
    over = MigrationCompleted(migration_id="m", job_id="j", attempt=2, to_nodes=["n1"])
    told.says(JobCancelled(job_id="j", attempt=2, reason=WHY), over)
    assert told.life.books.migrations == 1, "also behind the end of the job"
    assert [each.outcome for each in told.ended if isinstance(each, Attempt)] == ["moved", "cancelled"]


def test_tasks_end_with_their_node_unless_an_earlier_start_of_its_agent_is_meant():
    lost = NodeLost(node_id="n1", incarnation=1, silent_s=9.0)
    told = Told(placed("n1"), started())
    told.says(node("n1", 4, incarnation=2, tasks=[TaskRef(job_id="j", attempt=1)]), lost)
    assert told.life.state is JobState.RUNNING
    told.says(node("n1", 4, incarnation=3))
    assert told.life.tasks == {"n1": TaskStatus.EXITED}, "the agent does not know it any more"


def test_an_order_may_be_on_its_way_to_an_agent_that_starts_again():
    told = Told(placed("n1")).says(node("n1", 4, incarnation=2))
    assert told.life.state is JobState.STARTING


def test_the_first_arrival_and_the_end_count():
    told = Told(arrival("j", 4), JobRejected(job_id="j", reason=WHY), placed("n1"))
    assert (told.life.state, told.life.submitted_s, told.life.finished_s) == (JobState.REJECTED, 10.0, 30.0)
    assert told.life.books.holding is None and told.lives.open() == []


def test_what_is_open_is_told_in_the_order_in_which_it_began():
    told = Told(arrival("a"), placed("n1", job_id="a", gpus=1), placed("n1", gpus=1))
    assert [(each.job_id, type(each)) for each in told.lives.open()] == [
        ("a", Holding),
        ("a", Attempt),
        ("j", Holding),
        ("j", Attempt),
    ]
