"""Time slices: all jobs start soon, take turns where there are too many, and have a fair part (Gandiva)."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.agent import GpuUnhealthy, JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.gateway import (
    JobCancelRequested,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
    PolicyChanged,
    SettingChanged,
)
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import (
    AllocationComputed,
    JobCancelled,
    JobPlaced,
    JobQueued,
    LaunchTask,
    ResumeTask,
    StopTask,
    SuspendTask,
    TimeSliceStarted,
)
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from services.placement.core.mechanisms.slicing.service_time import had
from tests.unit.placement.placement_case import PlacementCase

SLICE_S = 60.0


class SlicesCase(PlacementCase):
    """Placement under `gandiva`, with agents that carry out orders at once."""

    def __init__(self, *, remaps: bool = True, **nodes: int) -> None:
        super().__init__()
        for node_id, gpus in nodes.items():
            self.give(node(node_id, gpus, remaps=remaps))
        self.give(PolicyChanged(policy="gandiva", requested_by="op"))

    def give(self, event: Event, *, at: float | None = None) -> list[Event]:
        said = super().give(event, at=at)
        return said + [answer for order in said for answer in self._carry_out(order)]

    def _carry_out(self, order: Event) -> list[Event]:
        about: dict[str, Any] = {f: getattr(order, f) for f in ("job_id", "attempt", "node_id") if hasattr(order, f)}
        if isinstance(order, LaunchTask):
            return self.give(JobStarted(pid=1, **about))
        if isinstance(order, SuspendTask):
            return self.give(JobSuspended(parked=True, **about))
        if isinstance(order, ResumeTask):
            return self.give(JobResumed(gpu_indices=order.gpu_indices, **about))
        return []

    @property
    def running(self) -> list[str]:
        """Jobs that hold GPUs, in order of arrival."""
        jobs = self.replica.state.jobs.values()
        return [job.job_id for job in jobs if job.gang and not job.suspended]

    def served(self, *job_ids: str) -> list[float]:
        """Seconds that the jobs have had."""
        return [had(self.replica.state.slicing, self.replica.state.jobs[job_id], self.now_s) for job_id in job_ids]


def test_free_gpus_are_given_at_once_and_no_job_takes_turns():
    case = SlicesCase(n1=2)
    assert only(case.submit("a"), JobPlaced).reason.code == "FreeGpus"
    case.submit("b")
    assert case.decided(TimeSliceStarted) == [] and case.replica.next_wakeup is None


def test_a_newcomer_makes_the_server_take_turns():
    case = SlicesCase(n1=1)
    case.submit("a", at=10.0)
    said = case.submit("b", at=100.0)
    turn = only(said, TimeSliceStarted)
    assert (turn.suspended, turn.started, turn.ends_s) == (["a"], ["b"], 100.0 + SLICE_S)
    assert only(said, SuspendTask).job_id == "a"
    assert only(said, JobPlaced).reason.code == "OverSubscribed"
    assert case.running == ["b"] and case.replica.next_wakeup == 160.0
    case.wake()
    assert case.running == ["a"]


def test_a_newcomer_waits_for_the_end_of_the_slice():
    case = SlicesCase(n1=1)
    case.submit("a", at=10.0)
    case.submit("b", at=100.0)
    waits = only(case.submit("c", at=110.0), JobQueued)
    assert waits.reason.numbers == {"next_slice_in_s": 50.0}
    case.wake()
    assert case.running == ["c"]
    case.wake()
    assert case.running == ["a"]


def test_jobs_take_turns_on_a_gpu_that_fails_under_them_and_no_height_is_said():
    """There is none: no GPU is healthy."""
    case = SlicesCase(n1=1)
    case.submit("a", at=10.0)
    case.submit("b", at=100.0)
    case.give(GpuUnhealthy(node_id="n1", index=0, note="ecc"))
    turn = only(case.wake(), TimeSliceStarted)
    assert turn.reason.numbers == {"waiting": 1, "gpus": 0}


def test_six_jobs_on_four_gpus_have_four_sixths_each():
    case = SlicesCase(n1=4)
    for name in "abcdef":
        case.submit(name, at=0.0)
    for _ in range(60):
        case.wake()
        assert len(case.running) == 4
    shares = [served / case.now_s for served in case.served(*"abcdef")]
    assert shares == pytest.approx([4 / 6] * 6, rel=0.05)


def test_only_time_on_gpus_is_booked_as_progress():
    case = SlicesCase(n1=1)
    case.submit("a", at=0.0, throughputs={"v100": 2.0})
    case.submit("b", at=0.0, throughputs={"v100": 2.0})
    for _ in range(9):
        case.wake()
    end_s = case.now_s
    case.give(PolicyChanged(policy="min_makespan", requested_by="op"))
    case.give(case.decided(AllocationComputed)[-1])
    steps = [case.replica.state.jobs[job_id].account.steps_done for job_id in "ab"]
    assert sum(steps) == pytest.approx(2.0 * end_s) and max(steps) <= 2.0 * (end_s / 2 + SLICE_S)


def test_weights_are_parts_of_the_time():
    case = SlicesCase(n1=1)
    case.submit("a", at=0.0, weight=2.0)
    case.submit("b", at=0.0)
    for _ in range(60):
        case.wake()
    a, b = case.served("a", "b")
    assert 2 * a == pytest.approx(2 * b, rel=0.06)  # served is per unit of weight: a has had twice the time


def test_a_job_that_keeps_running_goes_on_where_it_is():
    case = SlicesCase(n1=2)
    for name in "abc":
        case.submit(name, at=0.0)
    turn = only(case.wake(), TimeSliceStarted)
    assert len(turn.running) == 1 and len(turn.resumed) == 1 and len(turn.suspended) == 1


def test_where_tasks_cannot_change_gpus_each_keeps_to_its_own():
    case = SlicesCase(n1=2, remaps=False)
    for name in "abcd":
        case.submit(name, at=0.0)
    case.wake()
    places = {name: case.where(name) for name in "abcd"}
    for _ in range(6):
        for resumed in only(case.wake(), TimeSliceStarted).resumed:
            assert {task.node_id: task.gpu_indices for task in resumed.gang} == places[resumed.job_id]


def test_a_higher_priority_is_never_suspended_for_a_lower_and_need_not_wait():
    case = SlicesCase(n1=1)
    case.submit("low", at=0.0)
    case.submit("low2", at=5.0)
    case.submit("high", at=10.0, priority=5)
    assert case.running == ["high"]
    for _ in range(5):
        case.wake()
        assert case.running == ["high"]
    case.give(JobPriorityChanged(job_id="low", priority=9, requested_by="u"))
    assert case.running == ["low"]


def test_a_departure_lets_a_suspended_job_in_before_the_slice_is_over():
    case = SlicesCase(n1=1)
    case.submit("a", at=0.0)
    case.submit("b", at=0.0)
    turn = only(case.exit("b", at=20.0), TimeSliceStarted)
    assert turn.reason.code == "GpusBecameFree" and [resumed.job_id for resumed in turn.resumed] == ["a"]
    assert case.replica.next_wakeup is None


def test_a_suspended_job_goes_on_where_another_has_left():
    case = SlicesCase(n1=2)
    for name in "abc":
        case.submit(name, at=0.0)
    [suspended] = [name for name in "abc" if name not in case.running]
    leaver = case.running[1]
    left = case.replica.state.jobs[leaver].gang
    [resumed] = only(case.exit(leaver, at=20.0), TimeSliceStarted).resumed
    assert (resumed.job_id, resumed.gang) == (suspended, left)


def test_jobs_of_one_size_are_kept_together():
    case = SlicesCase(n1=4, n2=4)
    case.submit("pair", gpus=2)
    case.submit("one")
    assert case.where("one") != {} and list(case.where("one")) != list(case.where("pair"))
    case.submit("pair2", gpus=2)
    assert list(case.where("pair2")) == list(case.where("pair"))


def test_over_subscription_prefers_servers_of_its_affinity_then_low_ones():
    case = SlicesCase(n1=2, n2=2)
    case.submit("wide", gpus=2)
    case.submit("a")
    case.submit("b")
    case.submit("c", at=100.0)
    assert list(case.where("c")) == ["n2"]
    case.submit("wide2", gpus=2, at=200.0)
    assert list(case.where("wide2")) == ["n1"]


def test_among_equals_the_name_decides_whichever_node_joined_first():
    case = SlicesCase(n2=1, n1=1)
    for job_id in ("a", "b", "c", "d"):
        case.submit(job_id)
    assert [list(case.where(job_id)) for job_id in ("a", "b", "c", "d")] == [["n1"], ["n2"], ["n1"], ["n2"]]


def test_no_job_is_taken_in_above_the_greatest_height():
    case = SlicesCase(n1=1)
    case.give(SettingChanged(service="placement", name="max_height", value=2.0, requested_by="op"))
    case.submit("a", at=0.0)
    case.submit("b", at=100.0)
    assert only(case.submit("c", at=300.0), JobQueued).reason.code == "InsufficientGpus"
    case.exit("a", at=310.0)
    case.wake()
    assert case.running == ["c"]


def test_a_paused_job_gives_its_gpus_up_and_comes_back():
    case = SlicesCase(n1=1)
    case.submit("a", at=0.0)
    case.submit("b", at=10.0)
    assert case.running == ["b"]
    case.give(JobPauseRequested(job_id="b", requested_by="u"), at=20.0)
    assert case.running == ["a"]
    case.give(JobResumeRequested(job_id="b", requested_by="u"), at=30.0)
    case.wake()
    assert case.running == ["b"]


def test_a_gang_over_servers_takes_turns_on_all_of_them():
    case = SlicesCase(n1=2, n2=2)
    case.submit("wide", GpuRequest(count=4), at=0.0)
    case.submit("wide2", GpuRequest(count=4), at=100.0)
    assert case.running == ["wide2"]
    case.wake()
    assert case.running == ["wide"]
    case.submit("small", at=case.now_s)
    case.wake()
    assert case.running in (["wide2"], ["small"])


def test_after_a_switch_to_another_policy_suspended_jobs_go_on_when_gpus_are_free():
    case = SlicesCase(n1=1)
    case.submit("a", at=0.0)
    case.submit("b", at=10.0)
    case.give(PolicyChanged(policy="backfill", requested_by="op"))
    assert case.running == ["b"] and case.replica.next_wakeup is None
    case.exit("b", at=50.0)
    assert case.running == ["a"]


def test_cancelling_a_suspended_job_stops_it():
    case = SlicesCase(n1=1)
    case.submit("a", at=0.0)
    case.submit("b", at=10.0)
    said = case.give(JobCancelRequested(job_id="a", requested_by="u", grace_s=1.0))
    assert only(said, StopTask).job_id == "a"
    case.exit("a", code=None, signal=15, outcome="stopped")
    assert len(case.decided(JobCancelled)) == 1 and case.replica.next_wakeup is None


def test_a_gang_runs_when_every_node_has_started_its_task():
    case = PlacementCase(n1=2, n2=2)
    case.give(PolicyChanged(policy="gandiva", requested_by="op"))
    case.submit("a", 4)
    for _ in range(2):
        case.start("a", "n1")
        assert case.replica.state.slicing.times["a"].awaited
    case.start("a", "n2")
    assert not case.replica.state.slicing.times["a"].awaited


def _waiting_for_its_turn() -> SlicesCase:
    """`b` runs, `a` is suspended, and `c` has been told that its turn comes."""
    case = SlicesCase(n1=1)
    case.submit("a", at=10.0)
    case.submit("b", at=100.0)
    assert only(case.submit("c", at=110.0), JobQueued).reason.code == PendingReason.FAIR_SHARE
    assert case.running == ["b"]
    return case


def test_a_job_that_loses_its_turn_is_told_so_and_when_it_has_one_again():
    case = _waiting_for_its_turn()
    lowered = case.give(SettingChanged(service="placement", name="max_height", value=2.0, requested_by="op"), at=120.0)
    assert only(lowered, JobQueued).reason.code == PendingReason.INSUFFICIENT_GPUS
    raised = case.give(SettingChanged(service="placement", name="max_height", value=3.0, requested_by="op"), at=130.0)
    assert only(raised, JobQueued).reason.code == PendingReason.FAIR_SHARE


@pytest.mark.parametrize(("job_id", "priority"), [("c", 1), ("b", -1)])
def test_a_job_whose_priority_becomes_the_higher_one_does_not_wait_for_the_end_of_a_slice(job_id: str, priority: int):
    case = _waiting_for_its_turn()
    case.give(JobPriorityChanged(job_id=job_id, priority=priority, requested_by="op"), at=120.0)
    assert case.running == ["a"] if job_id == "b" else ["c"]
