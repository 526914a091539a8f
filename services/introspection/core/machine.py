"""Per event of control: what introspection learns. It decides nothing from control alone."""

from __future__ import annotations

from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.introspection import OWNER, JobProfiled, NodeLost
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced, JobPreempted, JobSucceeded
from libs.kernel.machine import Machine
from services.introspection.core.state import Running, State

machine: Machine[State] = Machine(f"{OWNER}/control")
"""Not named as the service: JobProfiled and NodeLost are observed by the service's shell and not decided by
this core, which reads them back like anybody else's facts."""


@machine.evolves(NodeJoined)
def node_joined(state: State, event: NodeJoined, now_s: float) -> None:
    state.nodes[event.node_id] = event.incarnation


@machine.evolves(NodeLeft, NodeLost)
def node_gone(state: State, event: NodeLeft | NodeLost, now_s: float) -> None:
    if state.nodes.get(event.node_id, 0) <= event.incarnation:
        state.nodes.pop(event.node_id, None)


@machine.evolves(JobPlaced)
def job_placed(state: State, event: JobPlaced, now_s: float) -> None:
    state.running[event.job_id] = Running(attempt=event.attempt)


@machine.evolves(JobProfiled)
def job_profiled(state: State, event: JobProfiled, now_s: float) -> None:
    running = state.running.get(event.job_id)
    if running is not None and running.attempt == event.attempt:
        running.profiled_until_s = max(running.profiled_until_s or 0.0, event.window_start_s + event.window_s)


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, AttemptFailed, JobPreempted)
def attempt_over(
    state: State,
    event: JobSucceeded | JobCancelled | JobAbandoned | AttemptFailed | JobPreempted,
    now_s: float,
) -> None:
    running = state.running.get(event.job_id)
    if running is not None and running.attempt <= event.attempt:
        del state.running[event.job_id]
