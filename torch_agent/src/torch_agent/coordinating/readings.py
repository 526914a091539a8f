"""What coordination is shown of a GPU's tasks, from their pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from libs.node.task import Task
from torch_agent.harness.page import PageReading

FIRST_PAGE_S = 60.0
"""A task that has run for so long without a page has neither limits nor gates; its script does without torch."""
APPLIED_AFTER = 2
"""After so many mini-batches a process that applies limits has said so."""


def pages_on(
    task: Task, index: int, pages: Sequence[PageReading], gpus: Sequence[int] | None = None
) -> list[PageReading]:
    """Those of the processes that use this GPU, one of `gpus` (None: those that the task uses, or used last).

    One per GPU, or all of a task with a single one.
    """
    return [page for page in pages if gpu_of(task, page, gpus) == index]


def gpu_of(task: Task, page: PageReading, gpus: Sequence[int] | None = None) -> int | None:
    """The GPU that a process uses, by its rank; None: there is none for it."""
    gpus = task.gpu_indices if gpus is None else gpus
    place = page.rank - task.order.first_rank if len(gpus) > 1 else 0
    return gpus[place] if 0 <= place < len(gpus) else None


def measured(
    task: Task,
    pages: Sequence[PageReading],
    *,
    unread: bool,
    scales_memory: bool,
    computed_s: Callable[[int], float],
    now_s: float,
) -> dict[str, Any]:
    """What is read of one task on one GPU, as `libs.node.admission.Admission.reading` takes it.

    Args:
        task: it.
        pages: of its living processes on this GPU.
        unread: whether it has further living processes, with pages that cannot be read at this moment.
        scales_memory: whether the node limits the memory of its tasks.
        computed_s: the GPU's time that a process has used so far.
        now_s: seconds since the epoch.
    """
    memory = [page.memory for page in pages if page.memory is not None]
    gates = [page.gate for page in pages if page.gate is not None]
    has_no_page = not pages and task.has_begun and now_s - task.started_s > FIRST_PAGE_S
    return {
        "unread": unread,
        "parked": all(map(_has_parked, pages)),
        "limited": scales_memory and not has_no_page and len(memory) == len(pages) and all(map(_applies_limits, pages)),
        "gated": not has_no_page and len(gates) == len(pages),
        "applied_number": min((each.applied for each in memory), default=0),
        "device_bytes": sum(each.device_bytes for each in memory),
        "cached_bytes": sum(each.cached_bytes for each in memory),
        "host_bytes": sum(each.host_bytes for each in memory),
        "minibatch_host_bytes": sum(each.minibatch_host_bytes for each in memory),
        "demand_bytes": sum(each.demand_bytes for each in memory),
        "minibatches": min((page.minibatches_total for page in pages), default=0),
        "last_minibatch_s": max((each.last_minibatch_s for each in gates), default=0.0),
        "closed_minibatches": min((each.closed_minibatches for each in gates), default=0),
        "closed_s": sum(each.closed_s for each in gates),
        "computed_s": sum(computed_s(page.pid) for page in pages),
        "peak_bytes": max((page.memory_peak_bytes for page in pages), default=0),
    }


def _applies_limits(page: PageReading) -> bool:
    """A page has the part of its memory in any case; a process that applies nothing leaves it empty."""
    memory = page.memory
    return memory is not None and (page.minibatches_total < APPLIED_AFTER or memory.applied + memory.demand_bytes > 0)


def _has_parked(page: PageReading) -> bool:
    return page.acknowledged.bytes_parked > 0 or page.memory is None or page.memory.device_bytes == 0
