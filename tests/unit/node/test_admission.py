"""A GPU goes from one task to the next when the first has left it."""

import msgspec
import pytest

from libs.contracts.placement import LaunchTask
from libs.node.admission import gpus_taken
from libs.node.task import Status, Task, Want
from libs.testing.builders import launch


def task(job_id: str, status: Status, *gpus: int, **fields: object) -> Task:
    order = launch(job_id, "true", gpu_indices=list(gpus))
    return Task(order=order, status=status, gpu_indices=list(gpus), wanted_gpus=list(gpus), **fields)


def taking_over(order: LaunchTask) -> LaunchTask:
    return msgspec.structs.replace(order, attempt=order.attempt + 1, restores=True)


@pytest.mark.parametrize(
    ("status", "fields", "taken"),
    [
        (Status.RUNNING, {}, True),
        (Status.RUNNING, {"want": Want.STOP}, True),
        (Status.SUSPENDED, {}, False),
        (Status.SUSPENDED, {"asked_since_s": 1.0}, True),
        (Status.SUSPENDED, {"want": Want.STOP}, True),
        (Status.EXITED, {}, False),
    ],
)
def test_a_task_waits_for_what_another_has_not_left(status: Status, fields: dict[str, object], taken: bool):
    other, new = task("a", status, 0, 1, **fields), task("b", Status.ACCEPTED, 1)
    assert gpus_taken(new, [other, new]) is taken
    assert not gpus_taken(task("c", Status.ACCEPTED, 2), [other, new])


def test_a_task_does_not_wait_for_its_partners():
    other = task("a", Status.RUNNING, 0)
    new = task("b", Status.ACCEPTED, 0, partners=["a"])
    assert not gpus_taken(new, [other, new])


def test_of_two_that_have_not_been_launched_the_one_goes_first_that_was_ordered_first():
    first, second = task("a", Status.ACCEPTED, 0), task("b", Status.ACCEPTED, 0)
    assert not gpus_taken(first, [first, second])
    assert gpus_taken(second, [first, second])


def test_a_suspended_task_waits_for_the_gpus_that_it_is_to_have():
    other = task("a", Status.RUNNING, 1)
    back = task("b", Status.SUSPENDED, 0, want=Want.RUN)
    assert not gpus_taken(back, [other, back])
    back.wanted_gpus = [1]
    assert gpus_taken(back, [other, back])


def test_a_task_gets_ready_to_take_over_beside_the_earlier_one_of_its_job():
    source = task("a", Status.RUNNING, 0)
    order = taking_over(source.order)
    destination = Task(order=order, want=Want.SUSPEND, gpu_indices=[0], wanted_gpus=[0])
    assert not gpus_taken(destination, [source, destination])
    destination.status, destination.want = Status.SUSPENDED, Want.RUN
    assert gpus_taken(destination, [source, destination])


@pytest.mark.parametrize("guest", ["other", "new"])
@pytest.mark.parametrize("want", [Want.RUN, Want.SUSPEND])
def test_a_guest_and_an_owner_do_not_wait_for_each_other_but_for_one_that_is_to_leave(guest: str, want: Want):
    roles = {name: "guest" if name == guest else "owner" for name in ("other", "new")}
    other = task("a", Status.RUNNING, 0, want=want, role=roles["other"])
    new = task("b", Status.ACCEPTED, 0, role=roles["new"])
    assert gpus_taken(new, [other, new]) is (want is Want.SUSPEND)
