"""Which job is asked to move to be better off, and what comes of it."""

from __future__ import annotations

from typing import Any

from libs.contracts.agent import JobExited, JobMovable
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import TRIALS, pool
from libs.contracts.gateway import (
    JobMaxGpusChanged,
    JobPauseRequested,
    JobResumeRequested,
    NodeDrainRequested,
    PolicyChanged,
    SettingChanged,
)
from libs.contracts.introspection import JobProfiled
from libs.contracts.jobs import ElasticRange
from libs.contracts.migration import (
    MigrationAssessed,
    MigrationCompleted,
    MigrationFailed,
    MigrationStarted,
    NodeDrained,
)
from libs.contracts.placement import (
    DestinationReserved,
    JobMoved,
    JobPacked,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    MoveAbandoned,
    TimeSliceStarted,
)
from libs.contracts.reasons import PendingReason, Reason
from libs.testing.core_case import CoreCase, arrival, node, only
from services.migration.service import SERVICE

SAID = Reason(code="Test", message="said by the test")


def gang(**gpus: list[int]) -> list[TaskPlacement]:
    """`gang(n1=[0, 1])`."""
    tasks, rank = [], 0
    for node_id, indices in gpus.items():
        tasks.append(TaskPlacement(node_id=node_id, gpu_indices=indices, first_rank=rank))
        rank += len(indices)
    return tasks


class MigrationCase(CoreCase):
    """Servers of four GPUs under Gandiva's policy."""

    def __init__(self, *nodes: str, policy: str = "gandiva") -> None:
        super().__init__(SERVICE)
        for node_id in nodes:
            self.give(node(node_id, 4))
        self.give(PolicyChanged(policy=policy, requested_by="op"))

    def place(self, job_id: str, *, movable: bool = True, most: int = 0, **gpus: list[int]) -> None:
        """A job runs there; an elastic one if it may have so many GPUs."""
        if most:
            width = sum(map(len, gpus.values()))
            self.give(arrival(job_id, width, elastic=ElasticRange(min_gpus=1, max_gpus=most)))
        self.give(JobPlaced(job_id=job_id, attempt=1, gang=gang(**gpus), reason=SAID))
        for node_id in gpus if movable else ():
            self.give(JobMovable(job_id=job_id, attempt=1, node_id=node_id, resizable=most > 0))

    def suspend(self, *job_ids: str, code: str = SAID.code) -> None:
        """They wait for their turn; OnHold: they are paused."""
        self.give(
            TimeSliceStarted(
                server="n1",
                nodes=["n1"],
                number=1,
                ends_s=60.0,
                running=[],
                resumed=[],
                suspended=list(job_ids),
                started=[],
                reason=Reason(code=code, message=SAID.message),
            )
        )

    def profile(self, job_id: str, rate_per_s: float, attempt: int = 1) -> list[Event]:
        """The job is so fast."""
        numbers: dict[str, Any] = {"window_s": 5.0, "minibatches_total": 9, "memory_peak_bytes": 0}
        return self.give(
            JobProfiled(
                job_id=job_id,
                attempt=attempt,
                window_start_s=self.now_s,
                rate_per_s=rate_per_s,
                loss=None,
                memory_min_bytes=0,
                **numbers,
            )
        )

    def set(self, name: str, value: float) -> None:
        self.give(SettingChanged(service="migration", name=name, value=value, requested_by="op"))

    def asked(self) -> list[tuple[str, list[str], str]]:
        """(Job, where to, why) of the moves that the next look starts."""
        if self.replica.next_wakeup is None:
            return []
        return [(e.job_id, e.to_nodes, e.reason.code) for e in self.wake() if isinstance(e, MigrationStarted)]

    def moved(self, job_id: str, **gpus: list[int]) -> list[Event]:
        """Placement has carried the move out."""
        move = self.replica.state.moves[job_id]
        numbers: dict[str, Any] = {"migration_id": move.migration_id, "job_id": job_id, "from_attempt": 1}
        self.give(DestinationReserved(attempt=2, gang=gang(**gpus), reason=SAID, **numbers))
        return self.give(JobMoved(attempt=2, gang=gang(**gpus), reason=SAID, **numbers))


def test_a_job_that_waits_for_its_turn_goes_to_vacated_gpus_the_longest_waiting_first():
    case = MigrationCase("n1", "n2")
    for number, job_id in enumerate("abcd"):
        case.place(job_id, n1=[number])
    case.place("e", n1=[0])
    case.place("f", n1=[1])
    case.place("g", n2=[0, 1, 2])
    case.suspend("f")
    case.now_s = 10.0
    case.suspend("e")
    assert case.asked() == [("f", ["n2"], "GpusVacated")]


def test_a_spread_gang_comes_together():
    case = MigrationCase("n1", "n2", "n3")
    case.place("a", n1=[0], n2=[0])
    case.place("x", n3=[0, 1])
    assert ("a", ["n3"], "Spread") in case.asked()


def test_a_job_that_its_neighbour_slows_down_goes_to_an_empty_server():
    case = MigrationCase("n1", "n2")
    case.set("defrag_ratio", 0.0)
    case.place("a", n1=[0, 1])
    case.profile("a", 10.0)
    case.place("b", n1=[2, 3])
    assert case.asked() == []
    case.profile("a", 5.0)
    assert case.asked() == [("a", ["n2"], "Interference")]


def test_alone_on_its_server_a_slow_job_stays():
    case = MigrationCase("n1", "n2")
    case.place("a", n1=[0, 1])
    case.profile("a", 10.0)
    case.profile("a", 5.0)
    assert case.asked() == []


def test_an_almost_empty_server_is_emptied_into_a_fuller_one():
    case = MigrationCase("n1", "n2", "n3")
    case.place("a", n1=[0])
    case.place("b", n2=[0, 1])
    assert case.asked() == [("a", ["n2"], "Defragmentation")]


def test_of_two_almost_empty_servers_one_is_emptied_and_then_there_is_peace():
    case = MigrationCase("n1", "n2")
    case.set("move_rest_s", 0.0)
    case.place("a", n1=[0])
    case.place("b", n2=[0])
    ((job_id, to_nodes, _),) = case.asked()
    case.moved(job_id, **{to_nodes[0]: [1]})
    assert case.asked() == []


def test_threshold_zero_leaves_fragments_alone():
    case = MigrationCase("n1", "n2")
    case.set("defrag_ratio", 0.0)
    case.place("a", n1=[0])
    case.place("b", n2=[0])
    assert case.asked() == []


def test_only_so_many_move_at_once():
    case = MigrationCase("n1", "n2", "n3")
    case.set("moves_at_once", 2.0)
    for job_id in "abc":
        case.place(job_id, n1=[0])
    case.suspend("a", "b", "c")
    assert [job_id for job_id, _, _ in case.asked()] == ["a", "b"]


def test_packed_jobs_and_those_that_cannot_hand_over_their_state_stay():
    case = MigrationCase("n1", "n2", "n3")
    case.place("a", n1=[0])
    case.place("b", n1=[0])
    case.place("x", n2=[0, 1])
    case.place("y", n3=[0], movable=False)
    pack = {"attempt": 1, "with_attempt": 1, "trial_ends_s": 60.0, "reason": SAID}
    case.give(JobPacked(job_id="a", with_job="b", **pack))
    assert case.asked() == []


def test_under_other_policies_no_move_is_asked_for():
    case = MigrationCase("n1", "n2", policy="backfill")
    case.place("a", n1=[0])
    case.place("b", n2=[0, 1])
    assert case.replica.next_wakeup is None


def test_a_job_that_could_not_be_moved_is_left_alone_for_a_while():
    case = MigrationCase("n1", "n2", "n3")
    case.place("a", n1=[0])
    case.place("b", n2=[0, 1])
    case.asked()
    move = case.replica.state.moves["a"]
    abandoned = MoveAbandoned(migration_id=move.migration_id, job_id="a", from_attempt=1, reason=SAID)
    failed = only(case.give(abandoned), MigrationFailed)
    assert failed.reason == SAID
    assert case.asked() == []
    assert case.asked() == [("a", ["n2"], "Defragmentation")]
    assert case.now_s >= 60.0


def test_a_job_that_is_preempted_meanwhile_has_not_been_moved():
    case = MigrationCase("n1", "n2")
    case.place("a", n1=[0])
    case.place("b", n2=[0, 1])
    case.asked()
    assert only(case.give(JobPreempted(job_id="a", attempt=1, reason=SAID)), MigrationFailed)


def test_the_gain_is_on_the_log():
    case = MigrationCase("n1", "n2")
    case.place("a", n1=[0])
    case.place("b", n2=[0, 1])
    case.profile("a", 4.0)
    case.asked()
    assert only(case.moved("a", n2=[2]), MigrationCompleted).live
    found = only(case.profile("a", 5.0, attempt=2), MigrationAssessed)
    assert (found.before_per_s, found.after_per_s, found.gain_ratio) == (4.0, 5.0, 0.25)
    assert case.profile("a", 6.0, attempt=2) == []


def test_a_node_is_drained_when_the_last_halted_task_has_ended():
    case = MigrationCase("n1", "n2", policy="backfill")
    case.place("a", n1=[0])
    started = only(case.give(NodeDrainRequested(node_id="n1", note="ecc", requested_by="op")), MigrationStarted)
    assert started.must_leave
    outputs = case.moved("a", n2=[0])
    assert [type(e) for e in outputs] == [MigrationCompleted]
    gone = JobExited(job_id="a", attempt=1, node_id="n1", exit_code=None, signal=9, outcome="stopped")
    assert only(case.give(gone), NodeDrained).moved_jobs == 1


def test_a_task_that_ended_before_the_move_is_not_waited_for():
    case = MigrationCase("n1", "n2", policy="backfill")
    case.place("a", n1=[0])
    case.give(NodeDrainRequested(node_id="n1", note="ecc", requested_by="op"))
    case.give(JobExited(job_id="a", attempt=1, node_id="n1", exit_code=None, signal=9, outcome="signalled"))
    assert only(case.moved("a", n2=[0]), NodeDrained)


def test_a_job_that_ends_on_the_way_fails_its_move():
    case = MigrationCase("n1", "n2")
    case.place("a", n1=[0])
    case.place("b", n2=[0, 1])
    case.asked()
    assert only(case.give(JobSucceeded(job_id="a", attempt=1)), MigrationFailed)


def test_an_elastic_job_grows_onto_gpus_that_have_been_idle_for_long_enough():
    case = MigrationCase("n1")
    case.place("a", n1=[0], most=4)
    case.place("x", n1=[3])
    assert case.asked() == []
    started = only(case.wake(), MigrationStarted)
    assert case.now_s == 60.0
    assert (started.job_id, started.gpus, started.to_nodes, started.must_leave) == ("a", 2, ["n1"], False)
    assert started.reason.code == "IdleGpus" and started.reason.numbers["idle_gpus"] == 2


def test_an_elastic_job_grows_to_the_bound_that_its_user_has_set_and_no_further():
    case = MigrationCase("n1")
    case.place("a", n1=[0], most=4)
    case.give(JobMaxGpusChanged(job_id="a", max_gpus=1, requested_by="bob"))
    case.asked()
    assert case.wake() == []
    case.give(JobMaxGpusChanged(job_id="a", max_gpus=3, requested_by="bob"))
    assert case.asked() == [("a", ["n1"], "IdleGpus")]
    assert [started.gpus for started in case.decided(MigrationStarted)] == [2]


def test_whenever_a_job_comes_or_goes_the_idle_time_begins_anew():
    case = MigrationCase("n1")
    case.place("a", n1=[0], most=4)
    assert case.asked() == []
    case.now_s = 50.0
    case.place("x", n1=[1])
    assert case.asked() == []
    case.now_s = 100.0
    case.give(JobSucceeded(job_id="x", attempt=1))
    assert case.asked() == []
    assert only(case.wake(), MigrationStarted).gpus == 4
    assert case.now_s == 160.0


def test_the_narrowest_job_grows_first_and_none_while_one_waits_for_its_turn():
    case = MigrationCase("n1")
    case.set("grow_after_s", 0.0)
    case.place("a", n1=[0, 1], most=4)
    case.place("b", n1=[2], most=4)
    case.place("c", n1=[2])
    case.suspend("c")
    assert case.asked() == []
    case.give(JobSucceeded(job_id="c", attempt=1))
    assert [(e.job_id, e.gpus) for e in case.wake() if isinstance(e, MigrationStarted)] == [("b", 2)]


def test_no_job_grows_while_one_waits_for_gpus():
    case = MigrationCase("n1")
    case.set("grow_after_s", 0.0)
    case.place("a", n1=[0], most=2)
    case.give(JobQueued(job_id="x", attempt=1, reason=SAID))
    assert case.asked() == []
    case.give(JobQueued(job_id="x", attempt=1, reason=Reason(code=PendingReason.ON_HOLD, message="paused")))
    assert [job_id for job_id, _, _ in case.asked()] == ["a"]


def test_a_job_that_has_grown_is_compared_with_before_but_its_best_rate_counts_no_more():
    case = MigrationCase("n1")
    case.set("grow_after_s", 0.0)
    case.place("a", n1=[0], most=2)
    case.profile("a", 10.0)
    assert case.asked() == [("a", ["n1"], "IdleGpus")]
    assert only(case.moved("a", n1=[0, 1]), MigrationCompleted).live
    assert only(case.profile("a", 18.0, attempt=2), MigrationAssessed).gain_ratio == 0.8
    assert case.replica.state.assignments["a"].best_per_s == 18.0


def test_a_paused_job_is_moved_nowhere_until_it_is_resumed():
    case = MigrationCase("n1", "n2")
    case.set("defrag_ratio", 0.0)
    case.place("a", n1=[0])
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    case.suspend("a")
    assert case.asked() == []
    case.give(JobResumeRequested(job_id="a", requested_by="u"))
    case.place("b", n1=[1])
    assert case.asked() == [("a", ["n2"], "GpusVacated")]


def test_a_job_that_was_paused_just_before_it_was_placed_is_moved_nowhere():
    case = MigrationCase("n1", "n2")
    case.set("defrag_ratio", 0.0)
    case.give(JobPauseRequested(job_id="a", requested_by="u"))
    case.place("a", n1=[0])
    case.suspend("a", code=PendingReason.ON_HOLD)
    assert case.asked() == []


def test_what_has_changed_is_looked_at_soon_also_when_a_later_look_is_due():
    case = MigrationCase("n1", "n2")
    case.set("defrag_ratio", 0.0)
    case.place("a", n1=[0], most=4)
    assert case.asked() == []
    assert case.replica.next_wakeup == 60.0, "its neighbours will have been idle for long enough"
    case.now_s = 10.0
    case.place("b", n1=[1])
    case.suspend("b")
    assert case.asked() == [("b", ["n2"], "GpusVacated")]
    assert case.now_s == 12.0


def test_many_changes_do_not_put_off_the_look():
    case = MigrationCase("n1", "n2")
    case.set("defrag_ratio", 0.0)
    case.place("a", n1=[0])
    case.suspend("a")
    case.now_s = 1.0
    case.place("b", n1=[1])
    assert case.asked() == [("a", ["n2"], "GpusVacated")]
    assert case.now_s == 2.0


def test_a_threshold_that_an_operator_has_changed_holds_soon():
    case = MigrationCase("n1")
    case.place("a", n1=[0], most=2)
    assert case.asked() == []
    case.now_s = 10.0
    case.set("grow_after_s", 5.0)
    assert case.asked() == [("a", ["n1"], "IdleGpus")]
    assert case.now_s == 12.0


def test_a_job_moves_only_to_servers_that_have_what_it_needs():
    case = MigrationCase("n1", "n2")
    case.give(node("n3", 4, features=["images"]))
    case.give(arrival("a", 2, image="ubuntu"))
    case.place("a", n1=[0], n3=[0])
    case.place("x", n2=[0])
    assert case.asked() == [("a", ["n3"], "Spread")]


def test_jobs_stay_on_their_side_of_the_pool_for_trials():
    case = MigrationCase("n1", "n2")
    for node_id in ("p1", "p2"):
        case.give(node(node_id, 4, features=[pool(TRIALS)]))
    case.place("spread", n1=[0], n2=[0])
    case.place("large", n1=[1, 2, 3])
    case.place("larger", n2=[1, 2, 3])
    case.place("trial", p1=[0])
    assert case.asked() == [], "there is room for two GPUs in the pool alone"
    case.place("trial-2", p2=[0, 1])
    assert case.asked() == [("trial", ["p2"], "Defragmentation")]
