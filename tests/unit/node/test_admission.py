"""A GPU goes from one task to the next when the first has left it, and tasks that share it are let in one by one."""

import msgspec
import pytest

from libs.contracts.placement import LaunchTask, ResumeTask, SuspendTask
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import DEFAULTS
from libs.node.admission import Admission, Given, Told, taken
from libs.node.task import Status, Task, Want, apply_order
from libs.testing.builders import launch


def task(job_id: str, status: Status, *gpus: int, **fields: object) -> Task:
    order = launch(job_id, "true", gpu_indices=list(gpus))
    return Task(order=order, status=status, gpu_indices=list(gpus), wanted_gpus=list(gpus), **fields)


def taking_over(order: LaunchTask) -> LaunchTask:
    return msgspec.structs.replace(order, attempt=order.attempt + 1, restores=True)


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (Status.RUNNING, {}, True),
        (Status.RUNNING, {"want": Want.STOP}, True),
        (Status.SUSPENDED, {}, False),
        (Status.SUSPENDED, {"asked_since_s": 1.0}, True),
        (Status.SUSPENDED, {"want": Want.STOP}, True),
        (Status.EXITED, {}, False),
    ],
)
def test_a_task_waits_for_what_another_has_not_left(status: Status, fields: dict[str, object], expected: bool):
    other, new = task("a", status, 0, 1, **fields), task("b", Status.ACCEPTED, 1)
    assert (taken(new, [other, new]) is not None) is expected
    assert not taken(task("c", Status.ACCEPTED, 2), [other, new])


def test_a_task_does_not_wait_for_its_partners():
    other = task("a", Status.RUNNING, 0)
    new = task("b", Status.ACCEPTED, 0, partners=["a"])
    assert not taken(new, [other, new])


def test_of_two_that_have_not_been_launched_the_one_goes_first_that_was_ordered_first():
    first, second = task("a", Status.ACCEPTED, 0), task("b", Status.ACCEPTED, 0)
    assert not taken(first, [first, second])
    assert taken(second, [first, second])


def test_a_suspended_task_waits_for_the_gpus_that_it_is_to_have():
    other = task("a", Status.RUNNING, 1)
    back = task("b", Status.SUSPENDED, 0, want=Want.RUN)
    assert not taken(back, [other, back])
    back.wanted_gpus = [1]
    assert taken(back, [other, back])


def test_a_task_gets_ready_to_take_over_beside_the_earlier_one_of_its_job():
    source = task("a", Status.RUNNING, 0)
    order = taking_over(source.order)
    destination = Task(order=order, want=Want.SUSPEND, gpu_indices=[0], wanted_gpus=[0])
    assert not taken(destination, [source, destination])
    destination.status, destination.want = Status.SUSPENDED, Want.RUN
    assert taken(destination, [source, destination])


@pytest.mark.parametrize("guest", ["other", "new"])
@pytest.mark.parametrize("want", [Want.RUN, Want.SUSPEND])
def test_a_guest_and_an_owner_do_not_wait_for_each_other_but_for_one_that_is_to_leave(guest: str, want: Want):
    roles = {name: "guest" if name == guest else "owner" for name in ("other", "new")}
    other = task("a", Status.RUNNING, 0, want=want, role=roles["other"])
    new = task("b", Status.ACCEPTED, 0, role=roles["new"])
    assert (taken(new, [other, new]) is not None) is (want is Want.SUSPEND)


CAPACITY = 1 << 33


class Node:
    """Two GPUs, and tasks whose processes apply at once what they are told, unless they are slow."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.admission, self.now_s = Admission(), 0.0
        self.told: dict[str, tuple[int, Given]] = {}
        self.applied: dict[str, int] = {}
        self.slow: set[str] = set()

    def come(self, job_id: str, role: str, *gpus: int) -> Task:
        task = apply_order(self.tasks, launch(job_id, "true", gpu_indices=list(gpus), role=role))
        assert task is not None
        return task

    def look(self, for_s: float = 1.0) -> None:
        """Looks, and processes that begin, stand still and go on as they may."""
        for _ in range(round(for_s * 10)):
            active = [task for task in self.tasks.values() if task.status is not Status.EXITED]
            gpus = self.admission.begin(active)
            for index in gpus:
                tasks = [self._reading(task, index) for task in self.admission.here(index)]
                self.admission.step(
                    index, Readings(node_id="n1", index=index, capacity_bytes=CAPACITY, tasks=tasks), self.now_s
                )
            self.admission.come_back()
            for given in self.admission.given(gpus):
                self._tell(given)
            self.admission.end()
            for task in active:
                self._go_on(task, active)
            self.now_s += 0.1

    def _reading(self, task: Task, index: int) -> TaskReading:
        number, given = self.told.get(task.key, (0, None))
        limits = given.limits if given is not None else [None] * len(task.place)
        share = given.share_ratio if given is not None else 0.0
        told = Told(number=number, limits=limits, share_ratio=share)
        return self.admission.reading(task, index, told, applied_number=self.applied.get(task.key, 0))

    def _tell(self, given: Given) -> None:
        key = given.task.key
        number, before = self.told.get(key, (0, None))
        if before is None or (before.limits, before.share_ratio) != (given.limits, given.share_ratio):
            self.told[key] = number + 1, given
        if given.task.status is not Status.ACCEPTED:
            self.admission.wrote(given.task, self.told[key][0])
            if given.task.order.job_id not in self.slow and given.task.has_begun:
                self.applied[key] = self.told[key][0]

    def _go_on(self, task: Task, active: list[Task]) -> None:
        if task.status is Status.RUNNING and (task.want is Want.SUSPEND or task.wanted_gpus != task.gpu_indices):
            task.status = Status.SUSPENDED
        elif task.waits_for_gpus and self.admission.wait(task, active) is None:
            task.status, task.gpu_indices = Status.RUNNING, task.wanted_gpus
            self.applied[task.key] = self.told[task.key][0] if task.key in self.told else 0


def resume(job_id: str, *gpus: int) -> ResumeTask:
    return ResumeTask(node_id="n1", job_id=job_id, attempt=1, gpu_indices=list(gpus), role="guest")


SUSPEND_GUEST = SuspendTask(node_id="n1", job_id="guest", attempt=1)


def test_a_guest_that_comes_back_on_another_gpu_runs_there_and_is_in_nobody_s_way_where_it_was():
    node = Node()
    guest = node.come("guest", "guest", 0)
    node.look()
    assert guest.status is Status.RUNNING
    apply_order(node.tasks, SUSPEND_GUEST)
    node.look()
    assert guest.status is Status.SUSPENDED
    apply_order(node.tasks, resume("guest", 1))
    node.look()
    assert (guest.status, guest.gpu_indices) == (Status.RUNNING, [1])
    owner = node.come("owner", "owner", 0)
    node.look()
    assert owner.status is Status.RUNNING


def test_a_guest_that_moves_while_it_runs_makes_room_on_the_gpu_that_it_comes_to():
    node = Node()
    guest, owner = node.come("guest", "guest", 0), node.come("owner", "owner", 1)
    node.look()
    apply_order(node.tasks, resume("guest", 1))
    while guest.gpu_indices != [1]:
        node.look(0.1)
    assert (guest.status, owner.status) == (Status.RUNNING, Status.RUNNING)
    floor = int(DEFAULTS.floor_ratio * CAPACITY)
    limits = {name: node.told[f"{name}.1"][1].limits for name in ("guest", "owner")}
    assert limits == {"guest": (floor,), "owner": (CAPACITY - floor,)}


def test_a_guest_on_two_gpus_that_one_owner_has_sent_away_comes_back_to_both():
    node = Node()
    guest = node.come("guest", "guest", 0, 1)
    node.look()
    assert guest.status is Status.RUNNING
    node.slow.add("guest")
    owner = node.come("owner", "owner", 1)
    node.look(12.0)
    assert (guest.status, guest.yielding, owner.status) == (Status.SUSPENDED, True, Status.RUNNING)
    owner.status = Status.EXITED
    node.look()
    assert (guest.status, guest.yielding) == (Status.RUNNING, False)


def test_an_owner_that_stood_still_for_a_moment_beside_a_guest_goes_on():
    node = Node()
    owner = node.come("owner", "owner", 0)
    node.look()
    node.come("guest", "guest", 0)
    node.look()
    owner.status = Status.SUSPENDED  # and is called back before the next look
    node.look()
    assert owner.status is Status.RUNNING


def test_a_guest_that_was_called_back_before_it_had_left_is_sent_away_again():
    node = Node()
    guest = node.come("guest", "guest", 0)
    node.look()
    node.slow.add("guest")
    owner = node.come("owner", "owner", 0)
    while guest.want is Want.RUN:
        node.look(0.1)
    guest.status = Status.RUNNING
    apply_order(node.tasks, resume("guest", 0))
    node.look(12.0)
    assert (guest.status, owner.status) == (Status.SUSPENDED, Status.RUNNING)


def test_a_task_that_waits_has_a_cause_that_names_the_gpu_and_who_is_in_the_way():
    other, new = task("a", Status.RUNNING, 0, 1), task("b", Status.ACCEPTED, 1)
    wait = taken(new, [other, new])
    assert wait is not None and (wait.gpus, wait.jobs, wait.message) == ([1], ["a"], "GPU 1 still used by a")
    node = Node()
    node.come("guest", "guest", 0)
    node.look()
    node.slow.add("guest")
    owner = node.come("owner", "owner", 0)
    node.look()
    wait = node.admission.wait(owner, list(node.tasks.values()))
    assert wait is not None and wait.for_room and wait.message == "no room yet on GPU 0 beside guest"
    node.look(12.0)
    assert node.admission.wait(owner, list(node.tasks.values())) is None


def test_a_guest_that_has_room_on_one_of_its_gpus_alone_gives_it_to_an_owner_at_once():
    node = Node()
    first = node.come("first", "owner", 1)
    node.look()
    node.slow.add("first")
    guest = node.come("guest", "guest", 0, 1)
    node.look()
    second = node.come("second", "owner", 0)
    node.look()
    assert [each.status for each in (first, guest, second)] == [Status.RUNNING, Status.ACCEPTED, Status.RUNNING]
    node.slow.clear()
    node.applied["first.1"] = node.told["first.1"][0]
    node.look()
    assert (guest.status, guest.want) == (Status.RUNNING, Want.RUN)


def test_a_guest_that_comes_back_beside_an_owner_has_no_share_of_before():
    node = Node()
    node.come("guest", "guest", 0)
    node.look()
    assert node.told["guest.1"][1].share_ratio == 1.0
    apply_order(node.tasks, SUSPEND_GUEST)
    node.look()
    node.come("owner", "owner", 0)
    node.look()
    apply_order(node.tasks, resume("guest", 0))
    node.look()
    assert node.tasks["guest.1"].status is Status.RUNNING
    assert node.told["guest.1"][1].share_ratio == 0.0


def test_limits_follow_the_gpus_of_a_guest_and_not_their_order():
    node = Node()
    node.come("owner", "owner", 1)
    guest = node.come("guest", "guest", 0, 1)
    node.look()
    floor = int(DEFAULTS.floor_ratio * CAPACITY)
    assert node.told["guest.1"][1].limits == (None, floor)
    apply_order(node.tasks, resume("guest", 1, 0))
    node.look()
    assert (guest.gpu_indices, node.told["guest.1"][1].limits) == ([1, 0], (floor, None))
