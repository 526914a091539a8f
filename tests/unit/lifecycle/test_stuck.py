"""Which jobs are left standing, by the events alone: with whom it is, since when, and when it is over."""

from __future__ import annotations

import pytest

from libs.contracts.admission import JobAdmitted, JobHeldBack
from libs.contracts.agent import (
    JobExited,
    JobResumed,
    JobSettingUp,
    JobStarted,
    JobSuspended,
    NodeLeft,
)
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.gateway import JobCancelRequested, JobPauseRequested, JobResumeRequested
from libs.contracts.introspection import JobRecovered, JobStuck, NodeLost
from libs.contracts.placement import (
    AttemptFailed,
    GangReserved,
    JobCancelled,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    ReservedPart,
    ResumedJob,
    Role,
    TimeSliceStarted,
)
from libs.contracts.quota import QuotaDeferred, QuotaGranted
from libs.contracts.reasons import Number, PendingReason, Reason
from libs.lifecycle.awaited import Books
from libs.lifecycle.stuck import Watch
from libs.testing.core_case import arrival, node

BOUND_S = 100.0
SAID = Reason(code="Test", message="said by the test")


class Case:
    """The books and the watch, at a virtual time; facts are read back at once."""

    def __init__(self, **nodes: int) -> None:
        self.books, self.watch, self.now_s = Books(), Watch(BOUND_S), 0.0
        self.say(*(node(node_id, gpus) for node_id, gpus in nodes.items()))

    def say(self, *events: Event) -> None:
        for event in events:
            self.books.take(event, self.now_s)
        self.look()

    def look(self, *, after_s: float = 0.0) -> list[JobStuck | JobRecovered]:
        self.now_s += after_s
        facts = [fact for _, fact in self.watch.look(self.books, self.now_s)]
        for fact in facts:
            self.books.take(fact, self.now_s)
        return facts

    def stuck(self) -> tuple[str, list[str]] | None:
        """What is awaited when the bound is over, and of whom; None: nothing stands."""
        assert self.look(after_s=BOUND_S - 1.0) == []
        found = self.look(after_s=1.0)
        return (found[0].awaited, found[0].owed_by) if found and isinstance(found[0], JobStuck) else None

    def queue(self, job_id: str, gpus: int = 1, cause: str = "", until_s: float | None = None, **line: object) -> None:
        """Up to what placement says of it."""
        self.say(
            arrival(job_id, gpus),
            JobAdmitted(job_id=job_id, reason=SAID),
            QuotaGranted(job_id=job_id, attempt=1, tenant="default", gpus=gpus, reason=SAID),
        )
        if cause:
            self.say(queued(job_id, cause, until_s, **line))

    def place(self, job_id: str, *places: tuple[str, int], role: str = Role.OWNER, start: bool = True) -> None:
        self.queue(job_id, len(places))
        self.say(JobPlaced(job_id=job_id, attempt=1, gang=gang(*places), reason=SAID, role=role))
        if start:
            self.say(*(JobStarted(job_id=job_id, attempt=1, node_id=node_id, pid=1) for node_id, _ in places))


def queued(job_id: str, cause: str, until_s: float | None = None, attempt: int = 1, **line: object) -> JobQueued:
    numbers: dict[str, Number] = {} if until_s is None else {"until_s": until_s}
    reason = Reason(code=cause, message="", numbers=numbers)
    return JobQueued(job_id=job_id, attempt=attempt, reason=reason, **line)  # type: ignore[arg-type]


def gang(*places: tuple[str, int]) -> list[TaskPlacement]:
    return [
        TaskPlacement(node_id=node_id, gpu_indices=[index], first_rank=rank)
        for rank, (node_id, index) in enumerate(places)
    ]


def turns(
    suspended: tuple[str, ...] = (), resumed: tuple[tuple[str, list[TaskPlacement]], ...] = ()
) -> TimeSliceStarted:
    return TimeSliceStarted(
        server="n1",
        nodes=["n1"],
        number=1,
        ends_s=0.0,
        running=[],
        resumed=[ResumedJob(job_id=job_id, gang=there) for job_id, there in resumed],
        suspended=list(suspended),
        started=[],
        reason=SAID,
    )


FAILED = AttemptFailed(job_id="j", attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=SAID)


def ended(job_id: str = "j", node_id: str = "n1", code: int = 0) -> JobExited:
    return JobExited(job_id=job_id, attempt=1, node_id=node_id, exit_code=code, signal=None, outcome="exited")


def stands_still(job_id: str = "j", node_id: str = "n1") -> JobSuspended:
    return JobSuspended(job_id=job_id, attempt=1, node_id=node_id, parked=True)


def test_each_service_owes_its_word():
    case = Case(n1=1)
    case.say(arrival("j"))
    assert case.stuck() == ("word", ["admission"])
    case = Case()
    case.say(arrival("j"), JobAdmitted(job_id="j", reason=SAID))
    assert case.stuck() == ("word", ["quota"])
    case = Case()
    case.queue("j")
    assert case.stuck() == ("word", ["placement"])
    case = Case(n1=1)
    case.place("j", ("n1", 0))
    case.say(
        ended(code=1),
        FAILED,
    )
    assert case.stuck() == ("word", ["failure_analysis"])


def test_admission_owes_no_word_while_there_is_no_node_and_has_its_full_time_when_one_joins():
    case = Case(n1=1)
    case.say(NodeLeft(node_id="n1", incarnation=1), arrival("j"))
    assert case.stuck() is None
    case.say(node("n2", 1))
    assert case.stuck() == ("word", ["admission"])


def test_what_waits_for_other_jobs_or_people_is_not_stuck():
    case = Case(n1=4)
    case.say(arrival("held back"), JobHeldBack(job_id="held back", reason=SAID))
    case.say(
        arrival("over quota"),
        JobAdmitted(job_id="over quota", reason=SAID),
        QuotaDeferred(job_id="over quota", attempt=1, reason=Reason(code=PendingReason.EXCEEDS_QUOTA, message="")),
    )
    case.queue("too wide", 5, PendingReason.INSUFFICIENT_GPUS, line="5", leads=True)
    case.queue("paused", 1, PendingReason.INSUFFICIENT_GPUS)
    case.say(JobPauseRequested(job_id="paused", requested_by="ada"))
    assert case.stuck() is None


def test_a_job_that_would_fit_on_gpus_that_have_been_free_for_as_long_is_left_standing():
    case = Case(n1=2)
    case.place("other", ("n1", 0))
    case.queue("j", 1, PendingReason.INSUFFICIENT_GPUS)
    assert case.stuck() == ("place", ["placement"])


def test_gpus_that_are_reserved_held_sick_or_not_of_its_type_are_not_free_for_it():
    case = Case(n1=2)
    case.queue("gang", 2, PendingReason.INSUFFICIENT_GPUS, line="2", leads=True)
    case.place("other", ("n1", 0))
    reserved = GangReserved(
        job_id="gang",
        attempt=1,
        node_ids=["n1"],
        gpus_held=1,
        reason=SAID,
        gpu_type="v100",
        parts=[ReservedPart(node_id="n1", gpus=2, kept=[1])],
    )
    case.say(reserved)
    case.queue("j", 1, PendingReason.INSUFFICIENT_GPUS)
    assert case.stuck() is None


def test_gpus_that_become_free_now_and_then_make_nobody_stuck():
    case = Case(n1=1)
    case.queue("j", 1, PendingReason.INSUFFICIENT_GPUS)
    for number in range(5):
        case.place(f"other-{number}", ("n1", 0))
        assert case.look(after_s=60.0) == []
        case.say(ended(f"other-{number}"), JobSucceeded(job_id=f"other-{number}", attempt=1))
        assert case.look(after_s=60.0) == []


def test_a_gang_that_waits_for_fewer_servers_is_stuck_the_bound_after_the_moment_that_it_was_told():
    case = Case(n1=1, n2=1)
    case.queue("gang", 2, PendingReason.LOCALITY_RELAXING, until_s=60.0)
    assert case.look(after_s=60.0 + BOUND_S - 1.0) == []
    [found] = case.look(after_s=1.0)
    assert isinstance(found, JobStuck) and found.awaited == "place"
    assert (found.stood_s, found.limit_s, found.gpus) == (160.0, 160.0, 0)


def test_behind_a_job_that_waits_itself_nobody_is_stuck_and_behind_none_it_is():
    case = Case(n1=4)
    case.queue("wide", 5, PendingReason.INSUFFICIENT_GPUS, line="all", leads=True)
    case.queue("j", 1, PendingReason.BEHIND, line="all", behind="wide")
    assert case.stuck() is None
    case.say(JobCancelRequested(job_id="wide", requested_by="ada"), JobCancelled(job_id="wide", attempt=1, reason=SAID))
    assert case.look() == [], "it is about to be looked at"
    assert case.stuck() == ("place", ["placement"])


def test_a_lost_launch_order_is_noticed_and_a_preparation_has_its_own_time():
    case = Case(n1=1)
    case.place("j", ("n1", 0), start=False)
    assert case.stuck() == ("start", ["agent of n1"])
    case = Case(n1=1)
    case.place("j", ("n1", 0), start=False)
    case.say(JobSettingUp(job_id="j", attempt=1, node_id="n1", limit_s=1000.0, reason=SAID))
    assert case.look(after_s=1000.0 + BOUND_S - 1.0) == []
    assert len(case.look(after_s=1.0)) == 1


@pytest.mark.parametrize("role", [Role.OWNER, Role.GUEST])
def test_an_agent_that_lets_a_resumed_task_stand_is_named(role: str):
    case = Case(n1=2)
    case.place("j", ("n1", 0), role=role)
    case.say(turns(suspended=("j",)), stands_still())
    case.say(turns(resumed=(("j", gang(("n1", 1))),)))
    assert case.stuck() == ("resumption", ["agent of n1"])
    case.say(JobResumed(job_id="j", attempt=1, node_id="n1"))
    assert case.look(after_s=10 * BOUND_S) == []


def test_a_task_that_is_told_to_stand_still_or_to_end_and_does_not_is_noticed():
    case = Case(n1=1)
    case.place("j", ("n1", 0))
    case.say(turns(suspended=("j",)))
    assert case.stuck() == ("suspension", ["agent of n1"])
    case = Case(n1=1)
    case.place("j", ("n1", 0))
    case.say(JobPreempted(job_id="j", attempt=1, reason=SAID))
    assert case.stuck() == ("end", ["agent of n1"])
    case.say(ended(code=1))
    assert case.stuck() == ("word", ["placement"]), "its GPUs are not taken back"


def test_a_suspended_job_with_nobody_on_its_gpus_is_left_standing():
    case = Case(n1=1)
    case.place("j", ("n1", 0))
    case.say(turns(suspended=("j",)), stands_still())
    assert case.stuck() == ("place", ["placement"])
    case = Case(n1=1)
    case.place("j", ("n1", 0))
    case.say(turns(suspended=("j",)), stands_still())
    case.place("other", ("n1", 0))
    assert case.stuck() is None


def test_what_runs_stands_for_nothing_however_long():
    case = Case(n1=1, n2=1)
    case.place("j", ("n1", 0), ("n2", 0))
    assert case.look(after_s=1e6) == []


def test_a_retry_that_is_not_due_is_not_stuck():
    case = Case(n1=1)
    case.place("j", ("n1", 0))
    case.say(ended(code=1), FAILED, RetryScheduled(job_id="j", attempt=2, not_before_s=250.0, reason=SAID))
    backoff = Reason(code=PendingReason.BACKOFF, message="", numbers={"not_before_s": 250.0})
    case.say(QuotaDeferred(job_id="j", attempt=2, reason=backoff))
    assert case.look(after_s=250.0 + BOUND_S - 1.0) == []
    assert len(case.look(after_s=1.0)) == 1


def test_a_lost_node_leaves_the_word_to_placement():
    case = Case(n1=1)
    case.place("j", ("n1", 0), start=False)
    case.say(NodeLost(node_id="n1", silent_s=20.0, incarnation=1))
    assert case.stuck() == ("word", ["placement"])


def test_it_is_said_once_and_taken_back_when_something_brings_the_job_on():
    case = Case(n1=1)
    case.place("j", ("n1", 0), start=False)
    assert case.stuck() is not None
    assert case.look(after_s=10 * BOUND_S) == []
    case.books.take(JobStarted(job_id="j", attempt=1, node_id="n1", pid=1), case.now_s)
    [over] = case.look()
    assert isinstance(over, JobRecovered) and over.alarm == "stuck"
    assert case.look(after_s=10 * BOUND_S) == []


def test_until_it_is_read_back_nothing_is_said_twice_and_a_restart_says_it_under_the_same_key():
    case = Case(n1=1)
    case.place("j", ("n1", 0), start=False)
    case.now_s += BOUND_S
    [(key, _)] = case.watch.look(case.books, case.now_s)
    assert case.watch.look(case.books, case.now_s + 1.0) == []
    again = Watch(BOUND_S)
    assert again.look(case.books, 0.0) == [], "its time begins anew"
    assert [found for found, _ in again.look(case.books, BOUND_S)] == [key]


def test_what_stood_while_the_log_was_away_has_its_time_again():
    case = Case(n1=1)
    case.place("j", ("n1", 0), start=False)
    case.look(after_s=BOUND_S - 1.0)
    case.watch.not_listening()
    assert case.look(after_s=BOUND_S - 1.0) == []
    assert case.look(after_s=BOUND_S) != []


def test_a_job_that_is_resumed_twice_was_answered_the_first_time():
    case = Case()
    case.queue("j", 1, PendingReason.HEALTHY_GPUS_MISSING)
    case.say(JobPauseRequested(job_id="j", requested_by="ada"), queued("j", PendingReason.ON_HOLD))
    again = JobResumeRequested(job_id="j", requested_by="ada")
    case.say(again, queued("j", PendingReason.HEALTHY_GPUS_MISSING), again)
    assert case.stuck() is None
