"""What telemetry gets of changes that the log gets in short."""

from __future__ import annotations

from torch_agent.coordinating.changes import MOST, Changes

from libs.contracts.agent import AllowanceChange
from libs.node.task import Task
from tests.unit.node.test_task import LAUNCH

TASK = Task(order=LAUNCH, gpu_indices=[0, 1])


def change(number: int) -> AllowanceChange:
    return AllowanceChange(
        time_s=float(number),
        job_id=LAUNCH.job_id,
        attempt=LAUNCH.attempt,
        memory_limit_bytes=number,
        compute_share_ratio=0.5,
    )


def test_each_change_is_told_once_and_gpus_are_told_apart():
    changes = Changes("n1")
    for index, number in ((1, 5), (0, 6), (1, 7)):
        changes.note(index, TASK, number, 0.5, float(number))
    told = changes.take()
    assert [(each.index, each.changes, each.left_out) for each in told] == [
        (0, [change(6)], 0),
        (1, [change(5), change(7)], 0),
    ]
    assert changes.take() == []


def test_of_many_changes_the_newest_are_told_and_how_many_are_left_out():
    changes = Changes("n1")
    for number in range(MOST + 3):
        changes.note(0, TASK, number, 0.5, float(number))
    [told] = changes.take()
    assert (told.changes[0], told.changes[-1], len(told.changes), told.left_out) == (
        change(3),
        change(MOST + 2),
        MOST,
        3,
    )
    changes.note(0, TASK, 9, 0.5, 9.0)
    assert changes.take()[0].left_out == 0


def test_what_could_not_be_sent_is_told_before_what_came_since():
    changes = Changes("n1")
    for number in range(MOST):
        changes.note(0, TASK, number, 0.5, float(number))
    unsent = changes.take()
    changes.note(0, TASK, MOST, 0.5, float(MOST))
    changes.put_back(unsent)
    [told] = changes.take()
    assert (told.changes[0], told.changes[-1], len(told.changes), told.left_out) == (change(1), change(MOST), MOST, 1)
