"""The cluster as events describe it: GPUs, servers, racks, and the place given to a gang."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of a node."""

    index: int
    """Position on its node, from 0; `<node_id>:<index>` is the GPU's id within the cell."""
    gpu_type: str
    """Lower-case model name (`v100`, `a100`, `virtual`): the type that jobs ask for."""
    memory_bytes: int
    uuid: str = ""
    """NVML's UUID; empty for a virtual GPU."""


class PortRange(msgspec.Struct, frozen=True, kw_only=True):
    """TCP ports from `first` to `last`, both included."""

    first: int
    last: int


class TaskPlacement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of a gang that runs on one node: one task."""

    node_id: str
    gpu_indices: list[int]
    """GPUs of the node, ascending."""
    first_rank: int
    """Global rank of the task's first process; ranks follow the order of `gpu_indices`."""


def width_of(gang: Iterable[TaskPlacement]) -> int:
    """GPUs of a gang."""
    return sum([len(task.gpu_indices) for task in gang])


class TaskRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names one task on a node: there is at most one per job, attempt and node."""

    job_id: str
    attempt: int
