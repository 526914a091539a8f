"""What the telemetry shells know from control: which attempts run, how far they are profiled, the nodes."""

from __future__ import annotations

import msgspec

from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.introspection import OWNER, JobProfiled, NodeLost
from libs.contracts.placement import AttemptFailed, JobCancelled, JobMoved, JobPlaced, JobPreempted, JobSucceeded
from libs.kernel.machine import Machine
from libs.kernel.service import Service


class Running(msgspec.Struct, kw_only=True):
    """A job that holds GPUs."""

    attempt: int
    profiled_until_s: float | None = None
    """End of the last measured time that is on the log as JobProfiled; None before the attempt's first."""


class Watch(msgspec.Struct, kw_only=True):
    """Initially empty."""

    running: dict[str, Running] = {}
    """{job id: its attempt}, from placement until the attempt's end."""
    nodes: dict[str, int] = {}
    """{node id: incarnation of its agent}, for nodes that joined and neither left nor were lost since."""


machine: Machine[Watch] = Machine(f"{OWNER}/telemetry")
"""Decides nothing. Not named as the service: JobProfiled and NodeLost are observed by the shells, and read back here
like the facts of other services."""


@machine.evolves(NodeJoined)
def node_joined(state: Watch, event: NodeJoined, now_s: float) -> None:
    state.nodes[event.node_id] = event.incarnation


@machine.evolves(NodeLeft, NodeLost)
def node_gone(state: Watch, event: NodeLeft | NodeLost, now_s: float) -> None:
    if state.nodes.get(event.node_id, 0) <= event.incarnation:
        state.nodes.pop(event.node_id, None)


@machine.evolves(JobPlaced, JobMoved)
def job_placed(state: Watch, event: JobPlaced | JobMoved, now_s: float) -> None:
    state.running[event.job_id] = Running(attempt=event.attempt)


@machine.evolves(JobProfiled)
def job_profiled(state: Watch, event: JobProfiled, now_s: float) -> None:
    running = state.running.get(event.job_id)
    if running is not None and running.attempt == event.attempt:
        running.profiled_until_s = max(running.profiled_until_s or 0.0, event.window_start_s + event.window_s)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, AttemptFailed, JobPreempted)
def attempt_over(
    state: Watch,
    event: JobSucceeded | JobCancelled | JobAbandoned | AttemptFailed | JobPreempted,
    now_s: float,
) -> None:
    running = state.running.get(event.job_id)
    if running is not None and running.attempt <= event.attempt:
        del state.running[event.job_id]


WATCH = Service(
    name=machine.service,
    question="Which attempts run, and which nodes should live?",
    machine=machine,
    state_type=Watch,
    silent=True,
)
