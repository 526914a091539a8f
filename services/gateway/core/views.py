"""Rows of the read models, as the gateway answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from libs.contracts import settings as known_settings
from libs.contracts.features import pool_of
from libs.contracts.gateway import NO_GUESTS
from libs.contracts.read_models import (
    GpuRow,
    JobRow,
    NodeRow,
    NodeState,
    SettingRow,
    TenantRow,
)
from libs.kernel.words import ranges
from libs.policies.table import DEFAULT_POLICY, POLICIES
from services.gateway.core.hosts import NOTHING, Promised, cpus_of, memory_of, promised
from services.gateway.models.answers import Job


def where(placement: Sequence[Mapping[str, Any]]) -> str:
    """`n1:0-3, n2:0,2` for a gang; empty for none."""
    return ", ".join(f"{task['node_id']}:{ranges(sorted(task['gpu_indices']))}" for task in placement)


_AS_STORED = tuple(name for name in Job.__struct_fields__ if name in JobRow.__struct_fields__)
"""Fields of a `Job` answer that are columns: a column is shown when the answer names it."""


def job(row: JobRow, queue_position: int | None) -> dict[str, Any]:
    """The fields of a `Job` answer."""
    return {name: getattr(row, name) for name in _AS_STORED} | {
        "user": row.user_name,
        "queue_position": queue_position,
        "where": where(row.placement),
        "max_retries": row.spec.get("max_retries", 0),
    }


def gpu_state(row: GpuRow, node: NodeRow | None) -> str:
    """`busy`, `away`, `unhealthy`, `draining` or `free`."""
    if row.job_id is not None:
        return "busy"
    if node is None or not node.present or not row.present:
        return "away"
    if not row.healthy:
        return "unhealthy"
    return "free" if node.state is NodeState.UP else "draining"


def gpu(row: GpuRow, node: NodeRow | None, asking: Mapping[str, JobRow]) -> dict[str, Any]:
    """The fields of a `Gpu` answer; `asking`: jobs that ask for CPUs or memory, by id."""
    holders = [asking[job_id] for job_id, _, _ in row.holders if job_id in asking]
    return {
        "id": row.id,
        "node_id": row.node_id,
        "index": row.gpu_index,
        "gpu_type": row.gpu_type,
        "memory_bytes": row.memory_bytes,
        "uuid": row.uuid,
        "state": gpu_state(row, node),
        "job_id": row.job_id,
        "tenant": row.tenant,
        "jobs": [job_id for job_id, _, _ in row.holders],
        "guests": [guest["job_id"] for guest in row.guests],
        "load_ratio": row.load_ratio,
        "note": row.note,
        "cpus": max(map(cpus_of, holders), default=0),
        "host_memory_bytes": sum(map(memory_of, holders)),
    }


def nodes(rows: Sequence[NodeRow], gpus: Sequence[GpuRow], asking: Sequence[JobRow]) -> list[dict[str, Any]]:
    """The fields of each `Node` answer; `asking`: jobs that ask for CPUs or memory."""
    have = promised(asking, gpus)
    of_node: dict[str, list[GpuRow]] = {}
    for row in gpus:
        if row.present:
            of_node.setdefault(row.node_id, []).append(row)
    return [_node(node, of_node.get(node.id, []), have.get(node.id, NOTHING)) for node in rows]


def _node(row: NodeRow, gpus: Sequence[GpuRow], have: Promised) -> dict[str, Any]:
    states = [gpu_state(gpu, row) for gpu in gpus]
    return {
        "id": row.id,
        "state": row.state,
        "gpus": len(gpus),
        "free": states.count("free"),
        "unhealthy": sum(not gpu.healthy for gpu in gpus),
        "gpu_types": sorted({gpu.gpu_type for gpu in gpus}),
        "jobs": sorted({job_id for gpu in gpus for job_id, _, _ in gpu.occupants}),
        "address": row.address,
        "rack": row.rack,
        "cpus": row.cpus,
        "cpus_promised": have.cpus,
        "memory_bytes": row.memory_bytes,
        "memory_promised_bytes": have.memory_bytes,
        "bounds_by": row.bounds_by,
        "virtual": row.virtual,
        "incarnation": row.incarnation,
        "agent_version": row.agent_version,
        "features": row.features,
        "pool": pool_of(row.features),
        "image_runner": row.image_runner,
        "note": row.note,
        "errors": row.errors,
        "last_error": row.last_error,
        "clock_skew_s": row.clock_skew_s,
        "cpu_utilisation_ratio": row.cpu_utilisation_ratio,
        "memory_used_bytes": row.memory_used_bytes,
        "host_memory_bytes": row.host_memory_bytes,
        "measured_until_s": row.measured_until_s,
        "joined_s": row.joined_s,
        "version": row.version,
    }


def tenants(
    rows: Sequence[TenantRow], gpus: Sequence[GpuRow], live: Sequence[tuple[str, str, int]]
) -> list[dict[str, Any]]:
    """The fields of each `Tenant` answer; `live` is (tenant, state, number) of the jobs that have not ended."""
    held: dict[str, int] = {}
    for gpu in gpus:
        for tenant in dict.fromkeys(tenant for _, _, tenant in gpu.holders):
            held[tenant] = held.get(tenant, 0) + 1
    jobs: dict[str, dict[str, int]] = {}
    for tenant, state, number in live:
        jobs.setdefault(tenant, {})[state] = number
    return [
        {
            "name": row.name,
            "gpu_limit": row.gpu_limit,
            "weight": row.weight,
            "on_stall": row.on_stall,
            "on_divergence": row.on_divergence,
            "on_idle": row.on_idle,
            "granted_gpus": row.granted_gpus,
            "held_gpus": held.get(row.name, 0),
            "configured": row.configured,
            "parent": row.parent,
            "guarantees": row.guarantees,
            "limits": row.limits,
            "per_user": row.per_user,
            "lend": row.lend,
            "borrow": row.borrow,
            "jobs": jobs.get(row.name, {}),
        }
        for row in rows
    ]


def policy(rows: Sequence[SettingRow]) -> dict[str, Any]:
    """The fields of a `Policy` answer."""
    said = {row.name: row for row in rows if row.service == "placement"}
    changed, guests = said.get("policy"), said.get("guests")
    return {
        "policy": str(changed.value) if changed else DEFAULT_POLICY,
        "available": list(POLICIES),
        "guests": str(guests.value) if guests else NO_GUESTS,
        "changed_by": changed.changed_by if changed else None,
        "changed_s": changed.changed_s if changed else None,
        "note": changed.note if changed else "",
    }


def settings(rows: Sequence[SettingRow]) -> list[dict[str, Any]]:
    """The fields of each `Setting` answer, in the order in which they are declared."""
    changed = {(row.service, row.name): row for row in rows}
    found = []
    for setting in known_settings.SETTINGS:
        row = changed.get((setting.service, setting.name))
        found.append(
            {
                "service": setting.service,
                "name": setting.name,
                "value": row.value if row else setting.default,
                "default": setting.default,
                "describes": setting.describes,
                "changed_by": row.changed_by if row else None,
                "changed_s": row.changed_s if row else None,
            }
        )
    return found
