"""Rounds with scripts that keep no checkpoints: they are suspended, and go on where they began."""

from __future__ import annotations

from collections import Counter

import pytest

from libs.contracts.agent import GpuUnhealthy, JobMovable, JobResumed, JobSuspended
from libs.contracts.base import Event
from libs.contracts.gateway import (
    IsolatedRate,
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
    PolicyChanged,
    SettingChanged,
    ThroughputsProvided,
)
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import (
    JobPlaced,
    JobPreempted,
    LaunchTask,
    ResumeTask,
    RoundStarted,
    StopTask,
    SuspendTask,
    TimeSliceStarted,
)
from libs.testing.core_case import node, only
from tests.unit.placement.rounds_case import ROUND_S, RoundsCase


class PinnedCase(RoundsCase):
    """Jobs are not restartable."""

    def submit(self, *args, **fields):
        return super().submit(*args, **{"restartable": False, **fields})

    def stop(self, events: list[Event]) -> list[Event]:
        """The agents carry out all orders."""
        for order in events:
            if isinstance(order, LaunchTask):
                self.start(order.job_id, order.node_id, order.attempt)
            elif isinstance(order, SuspendTask):
                self.give(JobSuspended(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id))
            elif isinstance(order, ResumeTask):
                self.give(JobResumed(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id))
        return super().stop(events)

    @property
    def running(self) -> dict[str, str]:
        """{job: its server} of the jobs that hold GPUs."""
        jobs = self.replica.state.jobs.values()
        return {job.job_id: job.gang[0].node_id for job in jobs if job.gang and not job.suspended}

    @property
    def suspended(self) -> list[str]:
        """Jobs that stand still."""
        return [job.job_id for job in self.replica.state.jobs.values() if job.suspended]

    def until_a_job_is_suspended(self) -> list[Event]:
        """What is said at the round where that happens."""
        for _ in range(1000):
            said = self.wake()
            if any(isinstance(event, SuspendTask) for event in said):
                return said
        raise AssertionError("no job is suspended")

    def rounds(self, number: int) -> Counter[str]:
        """{job: in how many of so many more rounds it ran}; agents carry out their orders."""
        ran: Counter[str] = Counter()
        for _ in range(number):
            self.stop(self.wake())
            ran.update(self.running.keys())
        return ran


def b_runs_in_place_of_a() -> PinnedCase:
    """Two jobs on one GPU; the first one is suspended."""
    case = PinnedCase(n1=1)
    case.submit("a")
    case.submit("b")
    case.until_a_job_is_suspended()
    assert case.suspended == ["a"]
    return case


def one_of_three_is_suspended() -> tuple[PinnedCase, str, str]:
    """Three jobs on two servers of one GPU each; the one that is suspended, and the node where it is pinned."""
    case = PinnedCase(n1=1, n2=1)
    for job_id in "abc":
        case.submit(job_id)
    case.until_a_job_is_suspended()
    [away] = case.suspended
    return case, away, case.replica.state.jobs[away].gang[0].node_id


def test_a_job_that_leaves_is_suspended_and_goes_on_with_all_of_its_work():
    case = PinnedCase(n1=1)
    case.submit("a")
    case.submit("b")
    said = case.until_a_job_is_suspended()
    assert only(said, TimeSliceStarted).suspended == ["a"] and only(said, SuspendTask).job_id == "a"
    assert only(said, JobPlaced).job_id == "b"
    said = case.until_a_job_is_suspended()
    away, back = (event for event in said if isinstance(event, TimeSliceStarted))
    assert (away.suspended, [resumed.job_id for resumed in back.resumed]) == (["b"], ["a"])
    order = only(said, ResumeTask)
    assert (order.job_id, order.attempt, order.gpu_indices) == ("a", 1, [0])
    assert case.decided(StopTask) == [] and case.decided(JobPreempted) == []


def test_all_jobs_have_the_same_time_on_their_pinned_nodes():
    case = PinnedCase(n1=1, n2=1)
    for job_id in "abc":
        case.submit(job_id)
    servers_of: dict[str, set[str]] = {}
    rounds: Counter[str] = Counter()
    for _ in range(300):
        case.wake()
        rounds.update(case.running.keys())
        for job_id, server in case.running.items():
            servers_of.setdefault(job_id, set()).add(server)
    assert all(len(servers) == 1 for servers in servers_of.values())
    assert sum(rounds.values()) == 600, "no GPU idles"
    alone = next(job_id for job_id, pinned in servers_of.items() if list(servers_of.values()).count(pinned) == 1)
    together = [rounds[job_id] for job_id in servers_of if job_id != alone]
    assert rounds[alone] == 300 and together == [pytest.approx(150, abs=8)] * 2


def second_on_the_slow_type(rates: dict[str, float], *, rounds: int) -> PinnedCase:
    """The job `first` had the only v100 for so many rounds, `second` the only k80; then the first one has ended."""
    case = PinnedCase(k1=0)
    case.give(node("k1", 1, gpu_type="k80"))
    case.give(node("v1", 1, gpu_type="v100"))
    case.submit("first", throughputs=rates)
    case.submit("second", throughputs=rates)
    assert case.running == {"first": "v1", "second": "k1"}
    case.rounds(rounds)
    case.exit("first", "v1", at=case.now_s + 1)
    return case


def test_a_faster_type_is_open_while_all_is_done_again_within_a_round():
    case = second_on_the_slow_type({"k80": 1.0, "v100": 4.0}, rounds=1)
    said = case.wake()
    assert only(said, JobPreempted).job_id == "second", "two rounds there are half a round here"
    case.stop(said)
    assert case.running == {"second": "v1"}
    assert case.replica.state.jobs["second"].account.steps_done == 0.0, "it begins anew"


def test_later_it_stays():
    case = second_on_the_slow_type({"k80": 1.0, "v100": 2.0}, rounds=6)
    case.rounds(3)
    assert case.running == {"second": "k1"} and case.decided(JobPreempted) == []


def test_gpus_of_its_server_are_as_good_where_tasks_can_change_them():
    case = PinnedCase(n1=0)
    case.give(node("n1", 2, remaps=True))
    for job_id in "abc":
        case.submit(job_id)
    used: dict[str, set[int]] = {}
    for _ in range(60):
        case.wake()
        for job in case.replica.state.jobs.values():
            if job.gang and not job.suspended:
                used.setdefault(job.job_id, set()).update(job.gang[0].gpu_indices)
    assert set(used) == {"a", "b", "c"} and any(len(indices) == 2 for indices in used.values())
    assert case.decided(StopTask) == []


def test_a_suspended_job_takes_its_gpu_as_soon_as_it_idles():
    case = b_runs_in_place_of_a()
    said = case.exit("b", at=case.now_s + 1)
    assert [resumed.job_id for resumed in only(said, TimeSliceStarted).resumed] == ["a"]
    assert only(said, ResumeTask).job_id == "a" and case.running == {"a": "n1"}


def test_a_node_that_is_gone_pins_no_job():
    case, away, pinned = one_of_three_is_suspended()
    other = "n1" if pinned == "n2" else "n2"
    case.give(GpuUnhealthy(node_id=pinned, index=0, note="fallen off the bus"))
    for _ in range(80):
        case.stop(case.wake())
    assert {job.gang[0].node_id for job in case.replica.state.jobs.values() if job.gang} == {other}
    assert {event.job_id for event in case.decided(JobPreempted)} >= {away}


def test_hosts_keep_no_more_jobs_than_their_memory_is_for():
    case = PinnedCase(n1=1)
    case.give(SettingChanged(service="placement", name="max_height", value=2.0, requested_by="op"))
    for job_id in "abc":
        case.submit(job_id)
    for _ in range(100):
        case.wake()
    assert case.placed == ["a", "b"]
    case.exit("a" if "a" in case.running else "b", at=case.now_s + 1)
    for _ in range(20):
        case.wake()
    assert case.placed == ["a", "b", "c"]


def test_room_on_hosts_is_that_of_each_server():
    case = PinnedCase(n1=4, n2=4)
    case.give(SettingChanged(service="placement", name="max_height", value=1.25, requested_by="op"))
    for number in range(14):
        case.submit(f"job-{number}")
    case.rounds(60)
    load = Counter(job.gang[0].node_id for job in case.replica.state.jobs.values() if job.gang)
    assert max(load.values()) == 5 and len(case.placed) > 8


def test_no_job_leaves_for_a_gang_that_no_host_takes():
    case = PinnedCase(n1=4, n2=4)
    case.give(SettingChanged(service="placement", name="max_height", value=1.25, requested_by="op"))
    for number in range(8):
        case.submit(f"job-{number}")
    case.submit("gang", GpuRequest(count=2, max_nodes=1))
    assert sum(case.rounds(100).values()) == 800
    assert case.decided(SuspendTask) == []


def test_that_a_job_can_move_live_does_not_make_it_restartable():
    case = PinnedCase(n1=1)
    case.submit("a")
    case.start("a")
    case.give(JobMovable(job_id="a", attempt=1, node_id="n1"))
    case.submit("b")
    case.until_a_job_is_suspended()
    assert case.suspended == ["a"] and case.decided(StopTask) == []


def test_rates_that_become_known_late_cost_no_job_its_work():
    case = PinnedCase(k1=0)
    case.give(node("k1", 1, gpu_type="k80"))
    case.submit("a", model="m")
    case.rounds(15)
    case.give(node("v1", 1, gpu_type="v100"))
    rates = IsolatedRate(model="m", batch_size=None, gpus=1, steps_per_s={"k80": 20.0, "v100": 60.0})
    case.heard(case.give(ThroughputsProvided(provided_by="op", isolated=[rates], colocated=[])))
    case.rounds(5)
    assert case.running == {"a": "k1"} and case.decided(JobPreempted) == []


def test_a_job_that_is_nearly_done_does_not_begin_anew():
    case = PinnedCase(k1=0)
    case.give(node("k1", 1, gpu_type="k80"))
    case.submit("a", throughputs={"k80": 1.0, "v100": 4.0}, total_steps=2.5 * ROUND_S)
    case.rounds(2)
    case.give(node("v1", 1, gpu_type="v100"))
    case.rounds(2)
    assert case.running == {"a": "k1"}


def test_every_process_of_a_gang_finds_its_gpu_again():
    case = PinnedCase(n1=0)
    case.give(node("n1", 4, remaps=True))
    case.give(node("n2", 8, remaps=True))
    case.submit("small")
    case.submit("gang", 9)
    assert {n: len(gpus) for n, gpus in case.where("gang").items()} == {"n2": 8, "n1": 1}
    case.submit("large", 11)
    while "gang" not in case.suspended:
        case.until_a_job_is_suspended()
    case.give(GpuUnhealthy(node_id="n2", index=0, note="fallen off the bus"))
    for node_id in ("n1", "n2"):
        case.exit("large", node_id, at=case.now_s + 1)
    case.rounds(2)
    assert case.decided(ResumeTask) == []
    assert {n: len(gpus) for n, gpus in case.where("gang").items()} == {"n2": 7, "n1": 2}
    assert case.decided(JobPreempted)[-1].job_id == "gang", "n2 has no 8 GPUs any more: it begins anew"


def test_gpus_kept_for_a_suspended_job_are_free_when_it_fails():
    case = PinnedCase(n1=2)
    case.submit("a")
    case.submit("b")
    case.submit("gang", 2)
    while case.suspended != ["gang"]:
        case.until_a_job_is_suspended()
    case.submit("c")
    case.give(JobPauseRequested(job_id="a", requested_by="ada"))
    state = case.replica.state
    for _ in range(50):
        if state.rounds.current is not None and "gang" in state.rounds.current.plan:
            break
        case.wake()
    case.exit("gang", code=1, at=case.now_s + 1)
    assert state.rounds.current is not None and "gang" not in state.rounds.current.plan


def test_what_a_crowded_node_could_not_give_is_not_collected_later():
    case = PinnedCase(n1=1, n2=1)
    for job_id in "abc":
        case.submit(job_id)
    case.rounds(1000)
    held = Counter(job.gang[0].node_id for job in case.replica.state.jobs.values())
    [crowded] = [node_id for node_id, jobs in held.items() if jobs == 2]
    [leaver] = [job_id for job_id, node_id in case.running.items() if node_id == crowded]
    case.exit(leaver, crowded, at=case.now_s + 1)
    case.submit("e")
    case.submit("f")
    ran = case.rounds(400)
    assert all(ran[job.job_id] >= 100 for job in case.replica.state.jobs.values())


def test_a_suspended_job_can_be_cancelled():
    case = b_runs_in_place_of_a()
    said = case.give(JobCancelRequested(job_id="a", requested_by="ada", grace_s=5.0))
    case.stop(said)
    assert list(case.replica.state.jobs) == ["b"]


def test_a_paused_job_keeps_no_other_from_its_gpus():
    case, away, pinned = one_of_three_is_suspended()
    holder, other = sorted(case.running, key=lambda job_id: case.running[job_id] != pinned)
    case.start(holder, pinned)
    case.give(JobPauseRequested(job_id=holder, requested_by="ada"))
    case.exit(other, case.running[other], at=case.now_s + 1)
    case.rounds(2)
    assert case.running == {away: pinned}
    case.exit(away, pinned, at=case.now_s + 1)
    said = case.give(JobResumeRequested(job_id=holder, requested_by="ada"))
    assert only(said, ResumeTask).job_id == holder and case.running == {holder: pinned}


def test_a_paused_job_is_not_resumed_by_a_round():
    case = b_runs_in_place_of_a()
    case.give(JobPauseRequested(job_id="a", requested_by="ada"))
    for _ in range(20):
        case.wake()
    assert case.running == {"b": "n1"} and case.suspended == ["a"]


def test_under_a_queue_policy_a_suspended_job_goes_on_when_its_gpu_is_free():
    case = b_runs_in_place_of_a()
    case.give(PolicyChanged(policy="backfill", requested_by="op"))
    said = case.exit("b", at=case.now_s + 1)
    assert only(said, ResumeTask).job_id == "a"


def test_a_job_suspended_between_time_slices_gets_rounds_on_its_pinned_node():
    case = PinnedCase(policy="gandiva", n1=1)
    case.submit("a")
    case.submit("b")
    case.until_a_job_is_suspended()
    said = case.heard(case.give(PolicyChanged(policy="max_min_fairness", requested_by="op")))
    assert only(said, RoundStarted)
    served = Counter(job_id for _ in range(100) for job_id in (case.wake(), case.running)[1])
    assert served["a"] == pytest.approx(50, abs=10) and served["b"] == pytest.approx(50, abs=10)
    assert case.decided(StopTask) == []


def test_time_slices_after_rounds_begin_with_empty_books():
    case = PinnedCase(n1=1)
    case.submit("a")
    case.submit("b")
    case.rounds(20)
    case.submit("c")
    for _ in range(100):
        if "c" in case.running:
            break
        case.rounds(1)
    case.heard(case.give(PolicyChanged(policy="gandiva", requested_by="op")))
    ran = case.rounds(60)
    assert all(19 <= ran[job_id] <= 21 for job_id in "abc")


def test_a_restartable_job_that_was_suspended_goes_elsewhere_if_its_place_is_there():
    case = PinnedCase(policy="gandiva", n1=1)
    case.submit("a", restartable=True)
    case.submit("b")
    while case.suspended != ["a"]:
        case.until_a_job_is_suspended()
    case.give(node("n2", 1))
    said = case.heard(case.give(PolicyChanged(policy="max_min_fairness", requested_by="op")))
    assert only(said, JobPreempted).job_id == "a"
    case.stop(said)
    assert case.running == {"a": "n2", "b": "n1"}
