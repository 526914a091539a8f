"""When a mini-batch is over, from the order of what a script does."""

import pytest
from torch_agent.harness.counting import BATCHES_UNTIL_HANDWRITTEN, Counter


class Script:
    """Plays a training script to a counter."""

    def __init__(self) -> None:
        self.done = 0
        self.counter = Counter(self._count)

    def _count(self) -> None:
        self.done += 1

    def draw(self) -> None:
        self.counter.batch_requested()
        self.counter.batch_drawn()

    def end_of_epoch(self) -> None:
        self.counter.batch_requested()
        self.counter.exhausted()

    def evaluate(self, batches: int) -> None:
        for _ in range(batches):
            self.draw()
        self.end_of_epoch()


@pytest.fixture
def script() -> Script:
    return Script()


def test_one_step_per_batch_of_a_loader(script: Script):
    for _ in range(20):
        script.draw()
        script.counter.backward()
        script.counter.stepped(1)
    script.end_of_epoch()
    assert script.done == 20


def test_gradients_accumulated_over_batches_are_one_mini_batch(script: Script):
    for batch in range(20):
        script.draw()
        script.counter.backward()
        if batch % 5 == 4:
            script.counter.stepped(1)
    script.end_of_epoch()
    assert script.done == 4


def test_several_optimizers_make_one_mini_batch_together(script: Script):
    for _ in range(20):
        script.draw()
        for optimizer in (1, 2, 1):
            script.counter.stepped(optimizer)
    script.end_of_epoch()
    assert script.done == 20


def test_without_a_loader_every_step_counts(script: Script):
    for _ in range(20):
        script.counter.stepped(1)
    assert script.done == 20


def test_without_a_loader_alternating_optimizers_are_learned(script: Script):
    for _ in range(20):
        for _ in range(5):
            script.counter.stepped(1)
        script.counter.stepped(2)
    assert script.done == 25  # the first cycle is learning


def test_evaluation_in_between_counts_nothing_and_disturbs_nothing(script: Script):
    for step in range(20):
        script.counter.stepped(1)
        if step % 5 == 0:
            script.evaluate(8)
    assert script.done == 20


def test_updates_written_by_hand_are_recognised(script: Script):
    for _ in range(20):
        script.draw()
        script.counter.backward()
    script.end_of_epoch()
    assert script.done == 20 - BATCHES_UNTIL_HANDWRITTEN


def test_the_last_mini_batch_counts_when_the_process_ends(script: Script):
    script.draw()
    script.counter.stepped(1)
    script.counter.finished()
    script.counter.finished()
    assert script.done == 1
