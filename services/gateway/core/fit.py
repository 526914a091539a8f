"""The dry run: what would become of a job if it came now, as far as the read models tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from libs.contracts.features import described, is_in_pool, missing
from libs.contracts.jobs import JobClass, JobSpec
from libs.contracts.read_models import GpuRow, JobRow, NodeRow, NodeState, TenantRow
from libs.contracts.reasons import Number, PendingReason
from libs.kernel.beside import beside, beside_them, gpus_beside, on_nodes_with
from libs.kernel.words import counted, plural
from services.gateway.core.hosts import Promised, left, promised


@dataclass(frozen=True)
class Fit:
    """What would happen, and why."""

    verdict: str
    """`starts`, `waits`, `rejected`, or `unknown` while no node has joined."""
    reason: str
    message: str
    numbers: dict[str, Number] = field(default_factory=dict)
    where: dict[str, int] = field(default_factory=dict)
    """{node: GPUs} it would probably get."""


def fit(
    spec: JobSpec,
    nodes: Sequence[NodeRow],
    gpus: Sequence[GpuRow],
    tenant: TenantRow | None,
    queued_ahead: int,
    asking: Sequence[JobRow] = (),
    *,
    guests: bool = False,
) -> Fit:
    """Judge a job against the cluster as it is.

    Args:
        queued_ahead: waiting jobs of at least its priority.
        asking: jobs that have not ended and ask for CPUs or memory.
        guests: whether there may be guests: an automatic job that is larger than its tenant's limit becomes one.
    """
    wanted = spec.gpus.count
    nodes = [node for node in nodes if not is_in_pool(node.features)]
    if not nodes:
        return Fit("unknown", PendingReason.NOT_YET_EVALUATED, "no node for jobs has joined the cell yet")
    nodes = [node for node in nodes if not missing(spec.needs, node.features)]
    if not nodes:
        numbers: dict[str, Number] = {"gpus": wanted}
        return Fit("rejected", PendingReason.NEVER_FITS, f"no node has {described(spec.needs)}", numbers)
    usable = _beside(spec, _by_type(spec, nodes, gpus, free_only=False), nodes, {})
    largest = max((_largest(spec, per_node) for per_node in usable.values()), default=0)
    numbers = {"gpus": wanted, "largest_gang_gpus": largest}
    if largest < wanted:
        return Fit(
            "rejected",
            PendingReason.NEVER_FITS,
            f"{counted(wanted, 'GPU')}{beside(spec)} asked for, a gang can have {largest}{beside_them(spec)}"
            f"{on_nodes_with(spec)}",
            numbers,
        )
    beyond = _beyond_quota(spec, tenant, guests, numbers) if tenant is not None else None
    return beyond or _now(spec, nodes, gpus, numbers, queued_ahead, promised(asking, gpus))


def _beyond_quota(spec: JobSpec, tenant: TenantRow, guests: bool, numbers: dict[str, Number]) -> Fit | None:
    """What the tenant's limit makes of the job; None: it is within it, or needs none. Adds the numbers compared."""
    wanted, limit, granted = spec.gpus.count, tenant.gpu_limit, tenant.granted_gpus
    if limit is None or spec.job_class is JobClass.OPPORTUNISTIC:
        return None
    if wanted > limit and not spec.needs_quota(guests=guests):
        return None  # it becomes a guest for good
    numbers |= {"limit_gpus": limit, "granted_gpus": granted}
    if wanted > limit:
        message = f"{counted(wanted, 'GPU')} asked for, tenant {tenant.name} may use {counted(limit, 'GPU')}"
        return Fit("rejected", PendingReason.EXCEEDS_QUOTA, message, numbers)
    if granted + wanted > limit:
        message = f"tenant {tenant.name} uses {granted} of {counted(limit, 'GPU')}"
        return Fit("waits", PendingReason.EXCEEDS_QUOTA, message, numbers)
    return None


def _now(
    spec: JobSpec,
    nodes: Sequence[NodeRow],
    gpus: Sequence[GpuRow],
    numbers: dict[str, Number],
    queued_ahead: int,
    have: Mapping[str, Promised],
) -> Fit:
    wanted = spec.gpus.count
    all_free = _by_type(spec, nodes, gpus, free_only=True)
    free = _beside(spec, all_free, nodes, have)
    places = [place for per_node in free.values() if (place := _place(spec, per_node))]
    most_free = max((sum(per_node.values()) for per_node in free.values()), default=0)
    numbers |= {"free_gpus": most_free, "queued_ahead": queued_ahead}
    if places:
        best = min(places, key=len)
        if queued_ahead:
            message = f"it fits now, and {counted(queued_ahead, 'waiting job goes', 'waiting jobs go')} first"
            return Fit("waits", PendingReason.BEHIND, message, numbers, best)
        message = f"{counted(wanted, 'GPU is', 'GPUs are')} free on {', '.join(best)}"
        return Fit("starts", "Fits", message, numbers, best)
    if spec.is_host_bound and any(_place(spec, per_node) for per_node in all_free.values()):
        message = f"{counted(wanted, 'GPU')}{beside(spec)} asked for; GPUs are free, but not enough beside them"
        return Fit("waits", _lacks(spec, all_free, nodes, have), message, numbers)
    max_nodes = spec.gpus.max_nodes
    if most_free >= wanted and max_nodes is not None:
        message = f"{counted(most_free, 'GPU is', 'GPUs are')} free, but not on {counted(max_nodes, 'server')}"
        return Fit("waits", PendingReason.GANG_FRAGMENTED, message, numbers)
    message = f"{counted(wanted, 'GPU')} asked for, {most_free} of one type {plural(most_free, 'is', 'are')} free"
    return Fit("waits", PendingReason.INSUFFICIENT_GPUS, message, numbers)


def _by_type(
    spec: JobSpec, nodes: Sequence[NodeRow], gpus: Sequence[GpuRow], *, free_only: bool
) -> dict[str, dict[str, int]]:
    """{GPU type: {node: GPUs}} that the job accepts."""
    known = {node.id for node in nodes}
    up = {node.id for node in nodes if node.state is NodeState.UP}
    found: dict[str, dict[str, int]] = {}
    for gpu in gpus:
        there = (
            gpu.present
            and gpu.node_id in known
            and (not free_only or (gpu.node_id in up and gpu.healthy and gpu.job_id is None))
        )
        if there and spec.gpus.accepts(gpu.gpu_type):
            per_node = found.setdefault(gpu.gpu_type, {})
            per_node[gpu.node_id] = per_node.get(gpu.node_id, 0) + 1
    return found


def _beside(
    spec: JobSpec, by_type: dict[str, dict[str, int]], nodes: Sequence[NodeRow], have: Mapping[str, Promised]
) -> dict[str, dict[str, int]]:
    """The same, without GPUs that have too little of what the job asks for beside them."""
    if not spec.is_host_bound:
        return by_type
    rest = {node.id: left(node, have) for node in nodes}
    return {
        gpu_type: {node: few for node, n in per_node.items() if (few := gpus_beside(spec, n, *rest.get(node, (0, 0))))}
        for gpu_type, per_node in by_type.items()
    }


def _lacks(
    spec: JobSpec, free: dict[str, dict[str, int]], nodes: Sequence[NodeRow], have: Mapping[str, Promised]
) -> str:
    """What there is too little of; CPUs, if the job would fit without them."""
    no_cpus = msgspec.structs.replace(spec, cpus=None)
    fits = any(_place(spec, per_node) for per_node in _beside(no_cpus, free, nodes, have).values())
    return PendingReason.INSUFFICIENT_CPUS if fits else PendingReason.INSUFFICIENT_MEMORY


def _largest(spec: JobSpec, per_node: Mapping[str, int]) -> int:
    return sum(sorted(per_node.values(), reverse=True)[: spec.gpus.max_nodes])


def _place(spec: JobSpec, per_node: Mapping[str, int]) -> dict[str, int]:
    """The fewest servers that hold the gang, {} when none do; of those that hold it alone, the fullest."""
    wanted = spec.gpus.count
    alone = [(count, node) for node, count in per_node.items() if count >= wanted]
    if alone:
        return {min(alone)[1]: wanted}
    place: dict[str, int] = {}
    for node, count in sorted(per_node.items(), key=lambda item: (-item[1], item[0]))[: spec.gpus.max_nodes]:
        place[node] = min(count, wanted)
        wanted -= place[node]
        if wanted == 0:
            return place
    return {}
