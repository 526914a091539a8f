"""Words that several sentences share."""

from __future__ import annotations

from libs.contracts.cluster import TaskPlacement
from libs.kernel.words import counted, plural, ranges


def gpus(count: int) -> str:
    """`1 GPU`, `4 GPUs`."""
    return counted(count, "GPU")


def where(gang: list[TaskPlacement]) -> str:
    """`n1:0-3, n2:0,2`."""
    return ", ".join(f"{task.node_id}:{ranges(task.gpu_indices)}" for task in gang)


def named(node_id: str, indices: list[int]) -> str:
    """`GPU n1:2`, `GPUs n1:2, n1:3`."""
    return f"{plural(len(indices), 'GPU')} {', '.join(f'{node_id}:{index}' for index in indices)}"


def how_it_ended(exit_code: int | None, signal: int | None) -> str:
    """How a process has ended."""
    return f"signal {signal}" if signal is not None else f"exit code {exit_code}"


def minibatches(count: int) -> str:
    """`1 mini-batch`, `4 mini-batches`."""
    return counted(count, "mini-batch", "mini-batches")
