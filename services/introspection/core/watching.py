"""What the telemetry shells know from control: which attempts run, how far they are profiled, alarms, the nodes, and
what is awaited of each job next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import PolicyChanged
from libs.contracts.introspection import (
    OWNER,
    ClockSkewed,
    GpuIdle,
    GpuLoadChanged,
    HostProfiled,
    JobProfiled,
    JobRecovered,
    JobStalled,
    LossDiverged,
    NodeLost,
)
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    TimeSliceStarted,
)
from libs.kernel.machine import Machine
from libs.kernel.service import Service
from libs.lifecycle.awaited import HEARD, Books
from libs.node.alarms import Watched, alarm_of
from libs.node.loads import gpu_of, node_of
from libs.node.serving import Agent


class Running(msgspec.Struct, kw_only=True):
    """A job that holds GPUs."""

    attempt: int
    profiled_until_s: float | None = None
    """End of the last measured time that is on the log as JobProfiled; None before the attempt's first."""
    gpus: dict[str, int] = {}
    """{node: GPUs of the gang there}."""
    told: dict[str, int] = {}
    """{alarm: facts about it on the log}, as in `libs/node/alarms.py`."""
    stalled_at: int = 0
    """`minibatches_total` of the last JobStalled."""

    @property
    def watched(self) -> Watched:
        """As alarms are judged by."""
        return Watched(self.attempt, self.gpus, self.told, self.stalled_at)


class Watch(msgspec.Struct, kw_only=True):
    """Initially empty."""

    running: dict[str, Running] = {}
    """{job id: its attempt}, from placement until the attempt's end."""
    nodes: dict[str, int] = {}
    """{node id: incarnation of its agent}, for nodes that joined and neither left nor were lost since."""
    hosts: dict[str, float] = {}
    """{node id: end of its last HostProfiled}, of the same nodes."""
    guests: bool = False
    """Whether there may be guests: only for them does it matter how busy GPUs are."""
    loads: dict[str, float] = {}
    """{`NODE:INDEX`: load of the last GpuLoadChanged}, of the same nodes."""
    skews: dict[str, float] = {}
    """{node id: by how much its clock is ahead}, of the same nodes, where ClockSkewed was said."""
    agents: dict[str, tuple[str, int]] = {}
    """{node id: address and port where its agent serves stacks}, of the same nodes."""
    books: Books = msgspec.field(default_factory=Books)
    """What is awaited of each job."""

    def agent(self, node_id: str) -> Agent:
        """Where the node's agent serves; nowhere when the node is not known."""
        return Agent(node_id, *self.agents.get(node_id, ("", 0)))


machine: Machine[Watch] = Machine(f"{OWNER}/telemetry")
"""Decides nothing. Not named as the service: JobProfiled and NodeLost are observed by the shells, and read back here
like the facts of other services."""

Change = Callable[[Watch, Any, float], None]
C = TypeVar("C", bound=Change)
_changes: dict[type[Event], Change] = {}
"""{event type: what it changes beside the books}."""


def _changed_by(*types: type[Event]) -> Callable[[C], C]:
    def register(change: C) -> C:
        _changes.update(dict.fromkeys(types, change))
        return change

    return register


@_changed_by(NodeJoined)
def node_joined(state: Watch, event: NodeJoined, now_s: float) -> None:
    state.nodes[event.node_id] = event.incarnation
    state.skews.pop(event.node_id, None)
    state.agents[event.node_id] = (event.address, event.files_port)


@_changed_by(NodeLeft, NodeLost)
def node_gone(state: Watch, event: NodeLeft | NodeLost, now_s: float) -> None:
    if state.nodes.get(event.node_id, 0) <= event.incarnation:
        state.nodes.pop(event.node_id, None)
        state.hosts.pop(event.node_id, None)
        state.skews.pop(event.node_id, None)
        state.loads = {gpu: load for gpu, load in state.loads.items() if node_of(gpu) != event.node_id}
        state.agents.pop(event.node_id, None)


@_changed_by(JobPlaced, JobMoved)
def job_placed(state: Watch, event: JobPlaced | JobMoved, now_s: float) -> None:
    gpus = {task.node_id: len(task.gpu_indices) for task in event.gang}
    state.running[event.job_id] = Running(attempt=event.attempt, gpus=gpus)


@_changed_by(JobProfiled)
def job_profiled(state: Watch, event: JobProfiled, now_s: float) -> None:
    running = state.running.get(event.job_id)
    if running is not None and running.attempt == event.attempt:
        running.profiled_until_s = max(running.profiled_until_s or 0.0, event.window_start_s + event.window_s)


@_changed_by(PolicyChanged)
def policy_changed(state: Watch, event: PolicyChanged, now_s: float) -> None:
    state.guests = event.takes_guests
    if not state.guests:
        state.loads = {}


@_changed_by(GpuLoadChanged)
def load_changed(state: Watch, event: GpuLoadChanged, now_s: float) -> None:
    if event.node_id in state.nodes:
        state.loads[gpu_of(event)] = event.utilisation_ratio


@_changed_by(ClockSkewed)
def clock_skewed(state: Watch, event: ClockSkewed, now_s: float) -> None:
    if state.nodes.get(event.node_id) == event.incarnation:
        state.skews[event.node_id] = event.skew_s


@_changed_by(HostProfiled)
def host_profiled(state: Watch, event: HostProfiled, now_s: float) -> None:
    if event.node_id in state.nodes:
        state.hosts[event.node_id] = event.window_start_s + event.window_s


@_changed_by(TimeSliceStarted)
def time_slice_started(state: Watch, event: TimeSliceStarted, now_s: float) -> None:
    """A job that goes on may have its GPUs on other servers of the domain than before."""
    for resumed in event.resumed:
        running = state.running.get(resumed.job_id)
        if running is not None:
            running.gpus = {task.node_id: len(task.gpu_indices) for task in resumed.gang}


@_changed_by(JobStalled, GpuIdle, LossDiverged, JobRecovered)
def alarm_told(state: Watch, event: JobStalled | GpuIdle | LossDiverged | JobRecovered, now_s: float) -> None:
    running = state.running.get(event.job_id)
    if running is None or running.attempt != event.attempt:
        return
    alarm = alarm_of(event)
    running.told[alarm] = running.told.get(alarm, 0) + 1
    if isinstance(event, JobStalled):
        running.stalled_at = event.minibatches_total


@_changed_by(JobSucceeded, JobCancelled, JobAbandoned, AttemptFailed, JobPreempted)
def attempt_over(
    state: Watch,
    event: JobSucceeded | JobCancelled | JobAbandoned | AttemptFailed | JobPreempted,
    now_s: float,
) -> None:
    running = state.running.get(event.job_id)
    if running is not None and running.attempt <= event.attempt:
        del state.running[event.job_id]


@_changed_by(JobQueued)
def trial_over(state: Watch, event: JobQueued, now_s: float) -> None:
    """The attempt before was the job's trial, and has ended well."""
    running = state.running.get(event.job_id)
    if event.tried and running is not None and running.attempt < event.attempt:
        del state.running[event.job_id]


@machine.evolves(*dict.fromkeys((*_changes, *HEARD)))
def take(state: Watch, event: Event, now_s: float) -> None:
    """Both change with an event; neither reads the other."""
    state.books.take(event, now_s)
    if (change := _changes.get(type(event))) is not None:
        change(state, event, now_s)


WATCH = Service(
    name=machine.service,
    question="Which attempts run, and which nodes should live?",
    machine=machine,
    state_type=Watch,
    silent=True,
)
