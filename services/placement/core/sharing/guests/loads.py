"""How busy GPUs are, as far as that has been measured."""

from __future__ import annotations

from libs.contracts.introspection import GpuLoadChanged
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.lifecycle.table import Look, machine, reacts

UNKNOWN_RATIO = 0.5
"""Part of a GPU that a job is taken to use of which nothing has been measured."""


def load_of(cell: Cell, node: Node, index: int) -> float:
    """How busy the GPU is: as measured, and with what those use that came later.

    So that several guests that come at once do not all go to the same idle GPU.
    """
    gpu = node.gpus[index]
    if not gpu.holders and not gpu.guests:
        return gpu.load_ratio or 0.0
    measured, later = gpu.load_ratio is not None, 0.0
    for job_id in dict.fromkeys([*gpu.holders, *gpu.guests]) if gpu.holders else gpu.guests:
        job = cell.jobs[job_id]
        if not measured or job.since_s >= gpu.load_s:
            ratio = job.profile.utilisation
            later += UNKNOWN_RATIO if ratio is None else ratio
    return (gpu.load_ratio or 0.0) + later


@machine.evolves(GpuLoadChanged)
def gpu_load_changed(cell: Cell, event: GpuLoadChanged, now_s: float) -> None:
    node = cell.nodes.get(event.node_id)
    if node is not None and event.index < len(node.gpus):
        node.gpus[event.index].load_ratio, node.gpus[event.index].load_s = event.utilisation_ratio, now_s
        cell.seating.pop(event.node_id, None)


@reacts(GpuLoadChanged)
def look_for_seats(cell: Cell, event: GpuLoadChanged, turn: Turn[Cell]) -> Look:
    return Look(guests_alone=True)
