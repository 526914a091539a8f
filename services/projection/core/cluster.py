"""Nodes, their GPUs, tenants and settings."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeErrorsLogged, NodeJoined, NodeLeft
from libs.contracts.cluster import GpuInfo
from libs.contracts.gateway import (
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
    TenantConfigured,
)
from libs.contracts.introspection import ClockSkewed, GpuLoadChanged, HostProfiled, NodeLost
from libs.contracts.migration import NodeDrained
from libs.contracts.placement import NodeCordoned, NodeReturned
from libs.contracts.read_models import GpuRow, NodeRow, NodeState, SettingRow
from services.projection.core.fold import At, on
from services.projection.core.rows import Rows
from services.projection.core.states import live_job, take, tenant_row


def node_state_of(node: NodeRow) -> NodeState:
    """The one state that the facts of a node amount to."""
    if not node.present:
        return node.state if node.state in (NodeState.LOST, NodeState.LEFT) else NodeState.LOST
    if node.draining:
        return NodeState.DRAINED if node.drained else NodeState.DRAINING
    return NodeState.UP


def _save_node(rows: Rows, node: NodeRow, at: At) -> None:
    node.state = node_state_of(node)
    node.changed_s, node.version = at.time_s, at.offset
    rows.put(node)


def _gpus(rows: Rows, node: NodeRow) -> list[GpuRow]:
    return rows.fetch(GpuRow, [(f"{node.id}:{index}",) for index in node.gpu_indices])


@on(NodeJoined)
def joined(rows: Rows, event: NodeJoined, at: At) -> None:
    node = rows.get(NodeRow, event.node_id) or NodeRow(id=event.node_id, state=NodeState.UP)
    _tell_holders(rows, node, event, at)
    for gpu in _gpus(rows, node):
        gpu.present, gpu.version = False, at.offset
        rows.put(gpu)
    node.incarnation, node.address, node.rack = event.incarnation, event.address, event.rack
    node.files_port, node.state_dir = event.files_port, event.state_dir
    node.virtual, node.agent_version = event.virtual, event.agent_version
    node.cpus, node.memory_bytes, node.bounds_by = event.cpus, event.memory_bytes, event.bounds_by
    node.features, node.image_runner = event.features, event.image_runner
    node.gpu_indices = sorted({*node.gpu_indices, *(gpu.index for gpu in event.gpus)})
    node.present, node.joined_s = True, at.time_s
    node.errors, node.last_error, node.clock_skew_s = 0, "", 0.0
    if not node.draining:
        node.note = ""
    for info in event.gpus:
        _offer(rows, event.node_id, info, at)
    _save_node(rows, node, at)


def _offer(rows: Rows, node_id: str, info: GpuInfo, at: At) -> None:
    gpu_id = f"{node_id}:{info.index}"
    gpu = rows.get(GpuRow, gpu_id) or GpuRow(
        id=gpu_id, node_id=node_id, gpu_index=info.index, gpu_type=info.gpu_type, memory_bytes=info.memory_bytes
    )
    gpu.gpu_type, gpu.memory_bytes, gpu.uuid = info.gpu_type, info.memory_bytes, info.uuid
    gpu.present, gpu.version = True, at.offset
    rows.put(gpu)


def _tell_holders(rows: Rows, node: NodeRow, event: NodeJoined | NodeLost | NodeLeft, at: At) -> None:
    """The jobs that hold GPUs of the node hear of it.

    A job that holds none there, because it is suspended between time slices, keeps the last report of its tasks:
    placement says of it in the next moment that it has been preempted.
    """
    holders = {job_id: attempt for gpu in _gpus(rows, node) for job_id, attempt, _ in gpu.occupants}
    for job_id, attempt in holders.items():
        job = live_job(rows, job_id)
        if job is not None and attempt == job.attempt:
            take(rows, job, event, at)


@on(NodeErrorsLogged)
def errors_logged(rows: Rows, event: NodeErrorsLogged, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is not None and event.incarnation == node.incarnation:
        node.errors, node.last_error = event.errors, event.last
        _save_node(rows, node, at)


@on(ClockSkewed)
def clock_skewed(rows: Rows, event: ClockSkewed, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is not None and event.incarnation == node.incarnation:
        node.clock_skew_s = event.skew_s
        _save_node(rows, node, at)


@on(HostProfiled)
def host_profiled(rows: Rows, event: HostProfiled, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is None or event.incarnation != node.incarnation:
        return
    node.cpu_utilisation_ratio, node.memory_used_bytes = event.cpu_utilisation_ratio, event.memory_used_mean_bytes
    node.host_memory_bytes, node.measured_until_s = event.memory_bytes, event.window_start_s + event.window_s
    node.version = at.offset
    rows.put(node)


@on(NodeLost, NodeLeft)
def gone(rows: Rows, event: NodeLost | NodeLeft, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is None or event.incarnation < node.incarnation:
        return
    _tell_holders(rows, node, event, at)
    node.present = False
    if isinstance(event, NodeLost):
        node.state, node.note = NodeState.LOST, f"silent for {event.silent_s:.1f} s"
    else:
        node.state, node.note = NodeState.LEFT, event.note
    _save_node(rows, node, at)


@on(NodeDrainRequested)
def drain_requested(rows: Rows, event: NodeDrainRequested, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is not None:
        # It is asked for once more, in a hurry say: one that is empty stays so, and that is not said again.
        node.drained = node.draining and node.drained
        node.draining, node.note = True, event.note
        _save_node(rows, node, at)


@on(NodeUndrainRequested)
def undrain_requested(rows: Rows, event: NodeUndrainRequested, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is not None:
        node.draining = node.drained = False
        node.note = ""
        _save_node(rows, node, at)


@on(NodeDrained)
def drained(rows: Rows, event: NodeDrained, at: At) -> None:
    node = rows.get(NodeRow, event.node_id)
    if node is not None and node.draining:
        node.drained = True
        _save_node(rows, node, at)


@on(GpuUnhealthy, GpuRecovered)
def gpu_health(rows: Rows, event: GpuUnhealthy | GpuRecovered, at: At) -> None:
    gpu = rows.get(GpuRow, f"{event.node_id}:{event.index}")
    if gpu is not None:
        gpu.healthy = isinstance(event, GpuRecovered)
        gpu.note = event.note if isinstance(event, GpuUnhealthy) else ""
        gpu.version = at.offset
        rows.put(gpu)


@on(NodeCordoned, NodeReturned)
def cordon(rows: Rows, event: NodeCordoned | NodeReturned, at: At) -> None:
    for index in event.gpu_indices:
        gpu = rows.get(GpuRow, f"{event.node_id}:{index}")
        if gpu is not None:
            gpu.healthy = isinstance(event, NodeReturned)
            gpu.note = event.reason.message if isinstance(event, NodeCordoned) else ""
            gpu.version = at.offset
            rows.put(gpu)


@on(TenantConfigured)
def tenant_configured(rows: Rows, event: TenantConfigured, at: At) -> None:
    tenant = tenant_row(rows, event.tenant, at)
    tenant.gpu_limit, tenant.weight, tenant.configured = event.gpu_limit, event.weight, True
    tenant.parent, tenant.guarantees, tenant.limits = event.parent, event.guarantees, event.limits
    tenant.per_user, tenant.lend, tenant.borrow = event.per_user, event.lend, event.borrow
    tenant.on_stall = event.on_stall or tenant.on_stall
    tenant.on_divergence = event.on_divergence or tenant.on_divergence
    tenant.on_idle = event.on_idle or tenant.on_idle
    tenant.version = at.offset
    rows.put(tenant)


@on(PolicyChanged)
def policy_changed(rows: Rows, event: PolicyChanged, at: At) -> None:
    for name, value in (("policy", event.policy), ("guests", event.guests)):
        rows.put(
            SettingRow(
                service="placement",
                name=name,
                value=value,
                changed_by=event.requested_by,
                changed_s=at.time_s,
                note=event.note,
                version=at.offset,
            )
        )


@on(GpuLoadChanged)
def gpu_load_changed(rows: Rows, event: GpuLoadChanged, at: At) -> None:
    gpu = rows.get(GpuRow, f"{event.node_id}:{event.index}")
    if gpu is not None:
        gpu.load_ratio, gpu.version = event.utilisation_ratio, at.offset
        rows.put(gpu)


@on(SettingChanged)
def setting_changed(rows: Rows, event: SettingChanged, at: At) -> None:
    rows.put(
        SettingRow(
            service=event.service,
            name=event.name,
            value=event.value,
            changed_by=event.requested_by,
            changed_s=at.time_s,
            version=at.offset,
        )
    )
