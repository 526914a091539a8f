"""Where an agent begins among its orders when the bus has lost its position, or the node its journal."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from torch_agent.beginning import Beginning, OrdersRefused, beginning
from torch_agent.former import in_spec, seen_last
from torch_agent.journal import Journal
from torch_agent.ordering import follow_orders, orders_partition
from torch_agent.publishing import Publisher

from libs.bus import codec
from libs.bus.memory import MemoryBus
from libs.bus.port import Archived, Bus, BusUnavailable, Position, TopicLayout
from libs.contracts.agent import (
    GpuRecovered,
    JobExited,
    JobMovable,
    JobResumed,
    JobStarted,
    JobSuspended,
    MetricsReported,
)
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.placement import LaunchTask, ResumeTask, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.node.task import Order, Status, Task, Want, apply_order, task_key
from libs.testing.late import LateBus
from libs.testing.shells import messages
from tests.unit.node.test_task import LAUNCH


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus("lab")
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


def launch(job_id: str, node_id: str = "n1") -> LaunchTask:
    return msgspec.structs.replace(LAUNCH, job_id=job_id, node_id=node_id)


def exited(job_id: str, node_id: str = "n1", outcome: str = "exited", tail: str = "") -> JobExited:
    return JobExited(
        job_id=job_id, attempt=1, node_id=node_id, exit_code=None, signal=None, outcome=outcome, stderr_tail=tail
    )


async def say(bus: MemoryBus, *events: Event) -> None:
    envelopes = [
        Envelope(id=f"{event.wire_type}/{number}", source="test", time_s=1.0, event=event)
        for number, event in enumerate(events)
    ]
    await bus.append([codec.outgoing(envelope) for envelope in envelopes])


NO_TASKS = Path("/nonexistent")


async def begin(bus: Bus, journal: Journal, committed: int = 0, tasks_folder: Path = NO_TASKS) -> Beginning:
    return await beginning(bus, await orders_partition(bus, "n1"), "n1", journal, Position(committed), tasks_folder)


async def begins(bus: Bus, journal: Journal, committed: int = 0) -> tuple[int, list[JobExited]]:
    found = await begin(bus, journal, committed)
    return found.next_order, found.lost


async def test_a_new_journal_takes_no_order_that_was_given_before_it(bus: MemoryBus, tmp_path: Path):
    journal = Journal(tmp_path / "journal.db")
    assert await begins(bus, journal) == (0, [])
    await say(bus, *(launch(job) for job in ("ended", "lost", "never", "elsewhere")), launch("other", node_id="n2"))
    await say(
        bus,
        JobStarted(job_id="lost", attempt=1, node_id="n1", pid=7),
        JobStarted(job_id="ended", attempt=1, node_id="n1", pid=7),
        exited("ended"),
        exited("elsewhere", node_id="n2"),
    )
    end = await bus.end_offset(await orders_partition(bus, "n1"))
    why = "the node was set up anew before it had started this task"
    never = [exited(job, outcome="lost", tail=why) for job in ("never", "elsewhere")]
    for committed in (0, 1, end):  # also an order that the former journal has taken, and said nothing of yet
        assert await begins(bus, journal, committed) == (end, never)
    await say(bus, *never)
    assert await begins(bus, journal) == (end, [])
    journal.close()


def folder_of(tasks_folder: Path, order: LaunchTask, /, **changes: object) -> Path:
    """As an agent leaves it; one of before orders stood in specs says nothing of its own."""
    folder = tasks_folder / task_key(order.job_id, order.attempt)
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({**in_spec(order), **changes}))
    return folder


async def test_tasks_are_put_together_from_their_folders_and_the_log(bus: MemoryBus, tmp_path: Path):
    """The journal is gone. Orders and reports are taken in their order; an order may have left the log."""
    tasks_folder, on_node = tmp_path / "tasks", {"attempt": 1, "node_id": "n1"}
    for job in ("trains", "sleeps", "moved", "ended", "prepares"):
        folder_of(tasks_folder, launch(job), **({"order": None} if job == "trains" else {}))
    folder_of(tasks_folder, launch("archived"))
    folder_of(tasks_folder, launch("other", node_id="n2"))
    (tasks_folder / "stray.1").mkdir()
    await say(bus, *(launch(job) for job in ("trains", "sleeps", "moved", "ended", "prepares", "never")))
    await say(
        bus,
        SuspendTask(job_id="sleeps", **on_node),
        SuspendTask(job_id="moved", **on_node),
        ResumeTask(job_id="moved", gpu_indices=[1], **on_node),
        StopTask(job_id="trains", grace_s=3.0, reason=Reason(code="Test", message=""), **on_node),
        *(JobStarted(job_id=job, pid=7, **on_node) for job in ("trains", "sleeps", "moved", "ended", "archived")),
        JobSuspended(job_id="sleeps", **on_node),
        JobSuspended(job_id="moved", **on_node),
        JobResumed(job_id="moved", gpu_indices=[1], **on_node),
        JobMovable(job_id="moved", **on_node),
        MetricsReported(job_id="moved", step=4.0, values={"loss": 1.0}, **on_node),
        exited("ended"),
    )
    journal = Journal(tmp_path / "journal.db")
    found = await begin(bus, journal, 3, tasks_folder)
    assert found.tasks is not None and [job.job_id for job in found.lost] == ["never"]
    assert found.next_order == await bus.end_offset(await orders_partition(bus, "n1"))
    assert {task.key: (task.status, task.want, task.gpu_indices) for task in found.tasks} == {
        "trains.1": (Status.RUNNING, Want.STOP, LAUNCH.gpu_indices),
        "sleeps.1": (Status.SUSPENDED, Want.SUSPEND, LAUNCH.gpu_indices),
        "moved.1": (Status.RUNNING, Want.RUN, [1]),
        "ended.1": (Status.EXITED, Want.RUN, LAUNCH.gpu_indices),
        "prepares.1": (Status.ACCEPTED, Want.RUN, LAUNCH.gpu_indices),
        "archived.1": (Status.RUNNING, Want.RUN, LAUNCH.gpu_indices),
    }
    by_key = {task.key: task for task in found.tasks}
    moved, stopped = by_key["moved.1"], by_key["trains.1"]
    assert (moved.movable, moved.reported_step, moved.started_s, stopped.grace_s) == (True, 4.0, 1.0, 3.0)
    assert set(found.found) == by_key.keys()
    journal.rebuild(found.tasks, found.lost, {}, next_order=found.next_order, incarnation=4, former_id="x", time_s=2.0)
    assert journal.begin_incarnation() == 5
    assert list(journal.tasks().values()) == found.tasks and [f.event for f in journal.unpublished(9)] == found.lost
    assert await begin(bus, journal, found.next_order, tasks_folder) == Beginning(next_order=found.next_order)
    journal.close()


async def test_a_journal_that_has_lost_its_end_gets_it_back(bus: MemoryBus, tmp_path: Path):
    """Of the tasks that it knows those stay as they are of which nothing more was reported."""
    tasks_folder = tmp_path / "tasks"
    journal = Journal(tmp_path / "journal.db")
    known: dict[str, Task] = {}
    for job in ("trains", "ended", "waits"):
        apply_order(known, launch(job))
    known["trains.1"].status = known["ended.1"].status = Status.RUNNING
    journal.record(list(known.values()), next_order=3)
    await say(bus, *(launch(job) for job in ("trains", "ended", "waits", "begun", "not begun", "removed")))
    await say(bus, *(JobStarted(job_id=job, attempt=1, node_id="n1", pid=7) for job in ("trains", "ended", "removed")))
    await say(bus, exited("ended"), exited("removed"))
    for job in ("trains", "ended", "begun"):
        folder_of(tasks_folder, launch(job))
    found = await begin(bus, journal, 6, tasks_folder)
    assert found.tasks is not None and (found.next_order, found.lost) == (6, [])
    assert {task.order.job_id: task.status for task in found.tasks} == {
        "trains": Status.RUNNING,
        "ended": Status.EXITED,
        "waits": Status.ACCEPTED,
        "begun": Status.ACCEPTED,
        "not begun": Status.ACCEPTED,
    }
    # The position is not behind, and yet a task is there that the journal does not know.
    found = await begin(bus, journal, 3, tasks_folder)
    assert found.tasks is not None and found.found == ["begun.1"] and found.next_order == 3
    assert [task.order.job_id for task in found.tasks] == ["trains", "ended", "waits", "begun"]
    journal.close()


def test_tasks_of_an_earlier_life_of_the_machine_are_taken_for_that(tmp_path: Path):
    """Their process numbers are other processes' by now."""
    folder_of(tmp_path, launch("now"))
    now, before = Task(order=launch("now")), Task(order=launch("before"))
    assert seen_last(tmp_path, [now]) == ""
    folder_of(tmp_path, launch("before"), machine_start="earlier")
    assert seen_last(tmp_path, [now, before]) == "earlier"
    before.status = Status.EXITED
    assert seen_last(tmp_path, [now, before]) == ""


async def test_a_log_that_answers_late_is_read_to_its_end(bus: MemoryBus, tmp_path: Path):
    """A task whose end is on the log would be reported lost."""
    journal = Journal(tmp_path / "journal.db")
    await say(bus, launch("ended"), JobStarted(job_id="ended", attempt=1, node_id="n1", pid=7), exited("ended"))
    assert await begins(LateBus(bus, 9.0), journal) == (1, [])
    with pytest.raises(BusUnavailable, match="expected messages up to 1"):
        await begins(LateBus(bus, math.inf), journal)
    journal.close()


@pytest.mark.parametrize(("own", "committed", "start"), [(2, 0, 2), (2, 1, 2), (2, 2, 2), (1, 2, 2), (0, 0, 0)])
async def test_the_journal_counts_where_the_bus_knows_less(
    bus: MemoryBus, tmp_path: Path, own: int, committed: int, start: int
):
    await say(bus, launch("a"), launch("b"))
    journal = Journal(tmp_path / "journal.db")
    journal.record(next_order=own)
    assert await begins(bus, journal, committed) == (start, [])
    journal.close()


async def test_a_journal_that_has_read_further_than_the_log_goes_is_refused(bus: MemoryBus, tmp_path: Path):
    await say(bus, launch("a"))
    journal = Journal(tmp_path / "journal.db")
    journal.record(next_order=5)
    with pytest.raises(OrdersRefused, match=r"up to offset 5 of partition \d, but the log of cell lab ends at 1"):
        await begins(bus, journal)
    journal.close()


async def test_an_old_copy_of_the_journal_goes_on_under_a_new_id(bus: MemoryBus, tmp_path: Path):
    """Else its facts would get the ids of others that are on the log, and be dropped as those."""
    journal = Journal(tmp_path / "journal.db")
    journal.record(next_order=0)
    orders = await orders_partition(bus, "n1")
    for index in (0, 1):
        if index == 1:
            (tmp_path / "copy.db").write_bytes((tmp_path / "journal.db").read_bytes())
            journal = Journal(tmp_path / "journal.db")
        publisher = Publisher(bus, "n1", orders, journal)
        await publisher.open()
        journal.record(facts=[GpuRecovered(node_id="n1", index=index)])
        assert await publisher.publish()
        await publisher.close()
        journal.close()
    copy = Journal(tmp_path / "copy.db")
    id_before = copy.id
    publisher = Publisher(bus, "n1", orders, copy)
    await publisher.open()
    assert copy.is_behind
    copy.record(facts=[GpuRecovered(node_id="n1", index=2)])
    assert copy.id != id_before and await publisher.publish()
    on_log = [codec.record(message).envelope for message in await messages(bus, Topic.CONTROL)]
    assert [envelope.event for envelope in on_log] == [GpuRecovered(node_id="n1", index=index) for index in range(3)]
    assert len({envelope.id for envelope in on_log}) == 3
    await publisher.close()
    copy.close()


async def test_orders_that_are_not_kept_any_more_are_passed_over():
    bus = MemoryBus("lab")
    await bus.create_topics(TopicLayout())
    await say(bus, launch("a"), launch("b"), launch("c"))
    await bus.give_back({await orders_partition(bus, "n1"): 2}, Archived("x", "archive", 0))
    taken: asyncio.Queue[tuple[list[Order], int]] = asyncio.Queue()
    following = asyncio.create_task(
        follow_orders(bus, await orders_partition(bus, "n1"), "n1", 1, lambda *what: taken.put_nowait(what))
    )
    assert await asyncio.wait_for(taken.get(), 120.0) == ([], 2), "what is gone is not waited for"
    assert await asyncio.wait_for(taken.get(), 120.0) == ([launch("c")], 3)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await bus.close()
