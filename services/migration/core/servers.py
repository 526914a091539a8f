"""What there is: nodes and their GPUs, the policy, the settings."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import OWNER
from libs.contracts.placement import NodeCordoned, NodeReturned
from libs.kernel.settings import take_setting
from services.migration.core.assignments import look_soon
from services.migration.core.state import Server, State
from services.migration.core.table import machine


@machine.evolves(NodeJoined)
def node_joined(state: State, event: NodeJoined, now_s: float) -> None:
    gpu_types = [gpu.gpu_type for gpu in event.gpus]
    state.servers[event.node_id] = Server(gpus=gpu_types, features=event.features, changed_s=now_s)
    there = {task.job_id: task.attempt for task in event.tasks}
    left = state.leftovers.get(event.node_id, {})
    for job_id in [job_id for job_id, attempt in left.items() if there.get(job_id) != attempt]:
        del left[job_id]


@machine.evolves(NodeLeaving)
def node_leaving(state: State, event: NodeLeaving, now_s: float) -> None:
    server = state.servers.get(event.node_id)
    if server is not None:
        server.present = False


@machine.evolves(NodeLost, NodeLeft)
def node_gone(state: State, event: NodeLost | NodeLeft, now_s: float) -> None:
    server = state.servers.get(event.node_id)
    if server is not None:
        server.present = False
    state.leftovers.pop(event.node_id, None)


@machine.evolves(GpuUnhealthy)
def gpu_unhealthy(state: State, event: GpuUnhealthy, now_s: float) -> None:
    state.servers[event.node_id].unhealthy[event.index] = None


@machine.evolves(GpuRecovered)
def gpu_recovered(state: State, event: GpuRecovered, now_s: float) -> None:
    state.servers[event.node_id].unhealthy.pop(event.index, None)


@machine.evolves(NodeCordoned, NodeReturned)
def cordoned(state: State, event: NodeCordoned | NodeReturned, now_s: float) -> None:
    server = state.servers[event.node_id]
    for index in event.gpu_indices:
        if isinstance(event, NodeCordoned):
            server.unhealthy[index] = None
        else:
            server.unhealthy.pop(index, None)


@machine.evolves(PolicyChanged)
def policy_changed(state: State, event: PolicyChanged, now_s: float) -> None:
    state.policy = event.policy


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    if take_setting(event, OWNER, state):
        look_soon(state, now_s)
