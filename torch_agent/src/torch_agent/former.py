"""The tasks of a node whose journal does not know them: it is new, damaged, an old copy, or has lost its end.

What an agent must not forget stands elsewhere as well: what was ordered is on the log and in the tasks' folders
(`spec.json`), what was reported is on the log, and how a task has ended its shim has left in the folder. Put together
in this order, they are the tasks as they were reported last; what has happened since is seen in the folders, as ever.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from libs.bus import codec
from libs.bus.batches import kept_before
from libs.bus.partitioner import partition_index
from libs.bus.port import Bus, Message, Partition
from libs.contracts import agent
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.placement import LaunchTask, ResumeTask
from libs.contracts.wire import Undecodable, decode_data
from libs.node.task import Order, Status, Task, apply_order, task_key
from torch_agent.folders import TaskFolder
from torch_agent.harness.regular import regular
from torch_agent.ordering import order_for
from torch_agent.output import behind_lines, rank_and_stream
from torch_agent.processes import machine_start

log = logging.getLogger(__name__)

Report = (
    agent.JobSettingUp
    | agent.JobStarted
    | agent.JobSuspended
    | agent.JobResumed
    | agent.JobMovable
    | agent.JobRanksApart
    | agent.JobReady
    | agent.JobRestored
    | agent.MetricsReported
    | agent.JobExited
)
REPORTS = tuple(
    name.encode()
    for name in (
        *("job.setting_up.", "job.started.", "job.suspended.", "job.resumed.", "job.movable.", "job.ranks_apart."),
        *("job.ready.", "job.restored.", "metrics.reported.", "job.exited.", "node.joined."),
    )
)
"""How their types begin, in every version."""
LONGEST_SPEC_BYTES = 16 << 20


class Former(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as it was ordered and reported."""

    task: Task
    reported: bool
    """Whether it was reported that it has started, or has ended."""
    ordered_at: int
    """Offset of its order; -1: its folder or the journal has that alone."""


def in_spec(order: LaunchTask) -> dict[str, Any]:
    """What a task's `spec.json` says for an agent that does not know the task."""
    return {
        "order": {"type": order.wire_type, "data": msgspec.to_builtins(order)},
        "machine_start": machine_start(),
    }


def order_in(folder: Path) -> LaunchTask | None:
    """The order that a task's folder was made for; None: the folder does not say, or is no such folder."""
    try:
        found = _spec(folder)["order"]
        order = decode_data(found["type"], msgspec.json.encode(found["data"]))
    except (KeyError, TypeError, Undecodable):
        return None
    is_its_own = isinstance(order, LaunchTask) and task_key(order.job_id, order.attempt) == folder.name
    return order if isinstance(order, LaunchTask) and is_its_own else None


def seen_last(tasks_folder: Path, tasks: list[Task]) -> str:
    """The life of the machine (`processes.machine_start`) in which such tasks were started, if any was before this one.

    What has their process numbers by now is something else.
    """
    present = machine_start()
    active = [task for task in tasks if task.status is not Status.EXITED]
    starts = [_spec(tasks_folder / task.key).get("machine_start", "") for task in active]
    return next((str(start) for start in starts if start not in ("", present)), "")


def _spec(folder: Path) -> dict[str, Any]:
    """`spec.json`, which lies in reach of the task; empty where it is not what it should be."""
    try:
        with open(folder / "spec.json", "rb", opener=regular) as file:
            return msgspec.json.decode(file.read(LONGEST_SPEC_BYTES), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


class Recollection(msgspec.Struct, frozen=True, kw_only=True):
    """What can be known of a node without its journal."""

    tasks: dict[str, Former]
    """{task key: it}."""
    incarnation: int
    """The last one with which the node has joined; 0: none."""


async def recollect(
    bus: Bus, orders: Partition, until: int, node_id: str, folders: list[Path], known: dict[str, Task]
) -> Recollection:
    """All tasks of the node that its folders or the log know, as they were reported last.

    Args:
        bus: the cell's log.
        orders: where the node's orders are.
        until: offset behind the last order that counts.
        node_id: of the node.
        folders: of its tasks.
        known: what an old journal knows of them; changed.

    Raises:
        BusUnavailable: the log cannot be reached.
    """
    for folder in folders:
        if (order := order_in(folder)) is not None and order.node_id == node_id:
            apply_order(known, order)
    ordered_at: dict[str, int] = {}
    async for message in kept_before(bus, orders, until):
        found = order_for(message, node_id)
        if isinstance(found, Order):
            task = apply_order(known, found)
            if isinstance(found, LaunchTask):
                ordered_at.setdefault(task_key(found.job_id, found.attempt), message.offset)
            if task is not None and isinstance(found, ResumeTask):
                task.gpu_indices = task.wanted_gpus  # an order that names none means the ones that it had last
    reported: set[str] = set()
    incarnation = 0
    control = Partition(Topic.CONTROL, 0)
    async for message in kept_before(bus, control, await bus.end_offset(control)):
        envelope = _report(message)
        if envelope is not None and isinstance(envelope.event, agent.NodeJoined) and envelope.event.node_id == node_id:
            incarnation = max(incarnation, envelope.event.incarnation)
        if envelope is None or not isinstance(envelope.event, Report) or envelope.event.node_id != node_id:
            continue
        key = task_key(envelope.event.job_id, envelope.event.attempt)
        if key in known:
            take_report(known[key], envelope.event, envelope.source_time_s)
            if isinstance(envelope.event, agent.JobStarted | agent.JobExited):
                reported.add(key)
    tasks = {
        key: Former(task=task, reported=key in reported, ordered_at=ordered_at.get(key, -1))
        for key, task in known.items()
    }
    return Recollection(tasks=tasks, incarnation=incarnation)


async def told_output(bus: Bus, node_id: str, folders: list[Path]) -> dict[str, int]:
    """How far the output of tasks is on the log, as far as that is kept: {file: offset behind what is there}.

    Args:
        bus: the cell's log.
        node_id: of the node.
        folders: of the tasks.

    Raises:
        BusUnavailable: the log cannot be reached.
    """
    lines: dict[tuple[str, int, str], int] = {}
    kept = await bus.partitions(Topic.LOGS)
    jobs = {folder.name.rpartition(".")[0] for folder in folders}
    for index in sorted({partition_index(job_id, len(kept)) for job_id in jobs}):
        partition = Partition(Topic.LOGS, index)
        async for message in kept_before(bus, partition, await bus.end_offset(partition)):
            if message.key not in jobs or (envelope := _envelope(message)) is None:
                continue
            event = envelope.event
            if isinstance(event, agent.JobLogged) and event.node_id == node_id:
                for line in event.lines:
                    key = task_key(event.job_id, event.attempt), line.rank, line.stream
                    lines[key] = lines.get(key, 0) + 1
    found = {}
    for folder in folders:
        for path in TaskFolder(folder).outputs():
            count = lines.get((folder.name, *rank_and_stream(path)), 0)
            if count:
                found[str(path)] = behind_lines(path, count)
    return found


def take_report(task: Task, report: Report, time_s: float) -> None:
    """Note what was reported of a task, when by the clock of the node."""
    if isinstance(report, agent.JobSettingUp):
        task.setting_up = True
    elif isinstance(report, agent.JobStarted):
        task.status, task.started_s = (Status.WARMING if task.order.restores else Status.RUNNING), time_s
    elif isinstance(report, agent.JobSuspended):
        task.status = Status.SUSPENDED
    elif isinstance(report, agent.JobResumed):
        task.status, task.gpu_indices = Status.RUNNING, report.gpu_indices or task.gpu_indices
    elif isinstance(report, agent.JobMovable):
        task.movable = True
    elif isinstance(report, agent.JobRanksApart):
        task.apart = True
    elif isinstance(report, agent.JobReady):
        task.status = Status.READY
    elif isinstance(report, agent.JobRestored):
        task.status, task.movable = Status.SUSPENDED, True
    elif isinstance(report, agent.MetricsReported):
        task.reported_at_s, task.reported_step = time_s, report.step
    else:
        task.status = Status.EXITED


def _report(message: Message) -> Envelope | None:
    """What an agent has reported of itself or of a task; None for every other record."""
    return _envelope(message) if dict(message.headers).get("ce_type", b"").startswith(REPORTS) else None


def _envelope(message: Message) -> Envelope | None:
    try:
        return codec.record(message).envelope
    except Undecodable as error:
        log.error("a report cannot be read: %s", error)
        return None
