"""Elastic jobs give GPUs back at once when others need them (Gandiva, section 4.1), before jobs have to take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from libs.contracts.base import Event
from libs.contracts.placement import OWNER
from libs.contracts.reasons import Reason
from libs.kernel.ids import move_id
from libs.policies.policy import Way
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.cluster.features import has
from services.placement.core.cluster.nodes import Node
from services.placement.core.cluster.servers import Listed
from services.placement.core.jobs import Job, Move
from services.placement.core.lifecycle.abandoning import DESTINATION_FAILED, abandoned
from services.placement.core.lifecycle.giving_way import is_open, shrunk
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import AllInOrder
from services.placement.core.mechanism import Moment

PATIENCE_S = 120.0
"""How long others wait for a job to shrink: its new processes start meanwhile."""
NEEDED = "GpusNeeded"
BOUNDED = "MaxGpusChanged"


Steps = list[tuple[Job, int]]
"""Which elastic jobs are to have how many GPUs from now on."""


@dataclass
class _Server:
    """GPUs of one type on one server, as far as they can be had without suspending a job."""

    node: Node
    gpu_type: str
    jobs: list[Job]
    """Elastic ones that hold some of them."""
    room: int
    """Free, or about to be, and promised to no job."""


def room_made(cell: Cell, promised: dict[str, str], moment: Moment) -> Plan:
    """Have elastic jobs shrink for those that wait.

    Args:
        promised: gets {queued job that has its GPUs in this way, now or soon: the server}, in queue order.
    """
    elastic = _elastic_jobs(cell)
    yield from _hopeless_given_up(elastic, moment.now_s)
    yield from _kept_within_bounds(cell, elastic, moment)
    servers = _servers(cell, elastic) if cell.queue else []
    if not servers:
        return
    walk = AllInOrder(cell)
    for job in walk:
        found = _first_with_room(cell, servers, job)
        if found is None:
            # Room only becomes less for jobs like this one, until another job shrinks: then there may be some over.
            walk.leave_out_priority()
            continue
        server, steps = found
        for other, gpus in steps:
            server.room += _lent(other) - gpus
            yield _shrunk(cell, other, gpus, job, moment)
        server.room -= job.spec.gpus.count
        promised[job.job_id] = server.node.node_id
        if steps:
            walk.take_back()


def next_end_s(cell: Cell) -> float | None:
    """When patience with a job that is to shrink ends."""
    resizes = (_resize_of(cell.jobs[job_id]) for job_id in cell.elastic)
    return min((resize.since_s + PATIENCE_S for resize in resizes if resize is not None), default=None)


def _elastic_jobs(cell: Cell) -> list[Job]:
    """Those that hold GPUs of one server, and keep them, in order of arrival."""
    elastic = (cell.jobs[job_id] for job_id in cell.elastic)
    return sorted((job for job in elastic if len(job.gang) == 1 and job.stays), key=attrgetter("seq"))


def _servers(cell: Cell, elastic: Sequence[Job]) -> list[_Server]:
    """Those with an elastic job, in the order in which their first one has arrived."""
    found: dict[tuple[str, str], _Server] = {}
    for job in elastic:
        [task] = job.gang
        node = cell.nodes[task.node_id]
        gpu_type = node.gpus[task.gpu_indices[0]].gpu_type
        if node.usable:
            fresh = _Server(node, gpu_type, [], len(node.free(gpu_type)))
            server = found.setdefault((task.node_id, gpu_type), fresh)
            server.jobs.append(job)
            server.room += _comes_free(job)
    return list(found.values())


def _comes_free(job: Job) -> int:
    """GPUs that it is about to give back."""
    return max(0, job.width - job.move.width) if job.move is not None else 0


def _first_with_room(cell: Cell, servers: list[_Server], job: Job) -> tuple[_Server, Steps] | None:
    """The first server where the job gets its GPUs, and what that takes."""
    for server in servers:
        accepted = server.gpu_type in gangs.accepted_types(job.spec.gpus, Listed([server.node]))
        if accepted and has(server.node, job.needs):
            steps = _steps_on(cell, server, job)
            if steps is not None:
                return server, steps
    return None


def _steps_on(cell: Cell, server: _Server, job: Job) -> Steps | None:
    """What has to happen there for this job to have its GPUs; None: it cannot."""
    missing = job.spec.gpus.count - server.room
    if missing <= 0:
        return []
    steps: Steps = []
    givers = [other for other in server.jobs if _may_shrink(cell, other) and _least(other, job) < _lent(other)]
    for other in sorted(givers, key=lambda each: (each.width, each.seq), reverse=True):
        if missing > 0:
            step = _smaller(other, job, missing)
            steps.append((other, step))
            missing -= _lent(other) - step
    return steps if missing <= 0 else None


def _may_shrink(cell: Cell, job: Job) -> bool:
    """Whether it could give something back: it grows, and has not come far yet; or it could do with less."""
    if job.move is not None:
        return job.move.width > job.width and not job.move.fetching
    return is_open(cell, job, Way.SHRINK)


def _lent(job: Job) -> int:
    """GPUs that it holds, or keeps from others because it is about to grow onto them."""
    return job.width if job.move is None else job.move.width


def _least(job: Job, other: Job) -> int:
    """GPUs that the other one cannot have: what a job asked for goes to no lower priority."""
    if job.move is not None:
        return job.width
    return job.spec.widths[0] if job.priority <= other.priority else job.spec.gpus.count


def _smaller(job: Job, other: Job, missing: int) -> int:
    """With how many GPUs it leaves so many to the other one, or as many as it can."""
    if job.move is not None:
        return job.width
    possible = [width for width in job.spec.widths if _least(job, other) <= width < job.width]
    return next((width for width in reversed(possible) if job.width - width >= missing), possible[0])


def _shrunk(cell: Cell, job: Job, gpus: int, other: Job, moment: Moment) -> Event:
    if job.move is not None:
        reason = Reason(code=NEEDED, message=f"{other.job_id} needs the GPUs that it was to grow onto")
        return abandoned(job, job.move, reason)
    return shrunk(cell, job, gpus, _resize_id(job, moment), NEEDED)


def _kept_within_bounds(cell: Cell, elastic: Sequence[Job], moment: Moment) -> Plan:
    """Jobs that have, or are about to have, more GPUs than their users let them have now."""
    for job in elastic:
        most = job.widths[-1]
        if job.move is not None and _resize_of(job) is not None and job.move.width > most:
            reason = Reason(code=BOUNDED, message=f"its user lets it have {most} at most")
            yield abandoned(job, job.move, reason)
        elif job.move is None and job.width > most and is_open(cell, job, Way.SHRINK):
            yield shrunk(cell, job, most, _resize_id(job, moment), BOUNDED)


def _resize_id(job: Job, moment: Moment) -> str:
    return move_id(f"{OWNER}/{job.job_id}/{job.attempt}/{moment.cause_id}")


def _hopeless_given_up(elastic: Sequence[Job], now_s: float) -> Plan:
    """A job that cannot be resized in time goes on as it is, and takes turns."""
    for job in elastic:
        resize = _resize_of(job)
        if resize is not None and now_s >= resize.since_s + PATIENCE_S:
            message = f"its new processes have not taken over within {PATIENCE_S:.0f} s"
            yield abandoned(job, resize, Reason(code=DESTINATION_FAILED, message=message))


def _resize_of(job: Job) -> Move | None:
    """The one that is under way, as long as its new processes have not begun to take over."""
    move = job.move
    return move if move is not None and move.width != job.width and not move.fetching else None
