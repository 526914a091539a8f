"""What the agent sees of a task from heartbeat to heartbeat."""

from __future__ import annotations

import pytest
from torch_agent.harness.page import PageReading
from torch_agent.watching import LONGEST_LOOK_S, Watching

from libs.contracts.agent import RankSample, TaskSampled
from libs.node.task import Status, Task
from libs.testing.builders import launch

BEAT_S = 2.0


def page(done: int, signs: int = 0, rank: int = 0, pid: int = 1, **more: float) -> PageReading:
    known = {"loss": 0.5, "minibatch_mean_s": 0.1, "p99_s": 0.2, **more}
    return PageReading(
        pid=pid,
        rank=rank,
        world_size=1,
        minibatches_total=done,
        last_boundary_s=0.0,
        memory_peak_bytes=0,
        memory_min_bytes=0,
        signs=signs,
        **known,
    )


class Node:
    """One task on one virtual or real GPU, looked at every two seconds."""

    def __init__(self, *, virtual: bool = True) -> None:
        self.cpu_s, self.now_s, self.used, self.leased = 0.0, 100.0, {0: 0.0}, True
        self.task = Task(order=launch("j"), status=Status.RUNNING, gpu_indices=[0], wanted_gpus=[0])
        self.watching = Watching(lambda task: self.cpu_s, virtual=virtual)

    def look(self, *pages: PageReading, after_s: float = BEAT_S, cpu_s: float = 0.0) -> TaskSampled:
        self.now_s += after_s
        self.cpu_s += cpu_s
        seen = {self.task.key: pages}
        [sample] = self.watching.look([self.task], seen, self.used, self.now_s, leased=self.leased)
        return sample

    def rank(self, *pages: PageReading, **more: float) -> RankSample:
        return self.look(*pages, **more).ranks[0]


def test_quiet_time_grows_until_the_next_sign_and_the_longest_is_remembered():
    node = Node()
    assert node.rank(page(5)).quiet_s == 0.0
    assert [node.rank(page(5)).quiet_s for _ in range(3)] == [2.0, 4.0, 6.0]
    seen = node.rank(page(5, signs=1))
    assert (seen.quiet_s, seen.longest_quiet_s, seen.minibatches_total, seen.p99_s) == (0.0, 6.0, 5, 0.2)
    assert node.rank(page(6, signs=1)).longest_quiet_s == 6.0


def test_time_in_which_the_task_does_not_run_does_not_count():
    node = Node()
    node.look(page(5))
    node.look(page(5))
    node.task.status = Status.SUSPENDED
    sample = node.look(page(5), after_s=8.0)
    assert (sample.running, sample.computing, sample.ranks[0].quiet_s) == (False, None, 2.0)
    node.task.status = Status.RUNNING
    assert node.rank(page(5)).quiet_s == 4.0


def test_what_stands_still_without_a_lease_does_not_stall():
    node = Node()
    node.look(page(5))
    node.look(page(5))
    node.leased = False
    for _ in range(60):
        sample = node.look(page(5))
    assert (sample.running, sample.ranks[0].quiet_s, sample.idle_s) == (False, 2.0, 0.0)
    node.leased = True
    assert node.rank(page(5)).quiet_s == 4.0


def test_an_agent_that_was_stopped_itself_has_seen_nothing():
    node = Node()
    node.look(page(5))
    assert node.rank(page(5), after_s=LONGEST_LOOK_S + 1.0).quiet_s == 0.0
    assert node.rank(page(5)).quiet_s == 2.0


def test_another_process_of_the_rank_begins_anew():
    node = Node()
    node.look(page(5))
    node.look(page(5))
    assert node.rank(page(0, pid=2)).quiet_s == 0.0


@pytest.mark.parametrize("virtual", [True, False])
def test_idle_is_a_gpu_without_work_and_busy_is_what_uses_it(virtual: bool):
    node = Node(virtual=virtual)
    assert node.look(page(5)).computing is True  # its first mini-batches
    assert node.look(page(5)).computing is None  # from here on it is measured
    sample = node.look(page(5))
    assert (sample.computing, sample.idle_s) == (False, 2.0)
    assert node.look(page(5), cpu_s=0.02).idle_s == 4.0
    node.used = {0: 0.9}
    sample = node.look(page(5), cpu_s=1.8)
    assert (sample.computing, sample.idle_s) == (True, 0.0)
    node.used = {0: 0.0}
    sample = node.look(page(5), cpu_s=1.8)
    assert sample.computing is True
    assert sample.idle_s == (0.0 if virtual else 2.0)  # a real GPU idles however busy the CPU is
    assert node.look(page(9)).idle_s == 0.0
    # Of three quiet looks, the first cannot be measured and counts as busy, as the second is.
    assert [node.rank(page(9)).busy_s, node.rank(page(9), cpu_s=1.8).busy_s] == [2.0, 4.0]
    seen = node.rank(page(9))
    assert (seen.quiet_s, seen.busy_s) == (6.0, 4.0)


def test_a_task_without_the_harness_can_only_be_idle():
    node = Node()
    assert [node.look().idle_s for _ in range(3)] == [0.0, 2.0, 4.0]
    assert node.look().ranks == []


def test_losses_that_are_no_numbers_are_named():
    seen = Node().rank(page(5, loss=float("nan"), nonfinite=3))
    assert (seen.nonfinite, seen.loss_nonfinite) == (3, "nan")
    assert Node().rank(page(5, p99_s=0.0)).p99_s == 0.1
