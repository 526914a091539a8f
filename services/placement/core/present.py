"""What placement knows of the present, for readers that ask what would start a job (`libs/forecast/`)."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from libs.kernel.present import Present, PresentJob, PresentNode, Report
from libs.policies.policy import Kind
from libs.policies.table import POLICIES
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import ACTIVE, Job, Phase
from services.placement.core.lifecycle.placing import behind_in
from services.placement.core.sharing.lengths import stated_s, unbooked_s

_TURNS: dict[str, str] = {Kind.SHARES: "round_s", Kind.TURNS: "slice_s"}
"""{kind of policy: the setting that says how long GPUs are given for}."""


def present(cell: Cell, job_id: str, now_s: float) -> Present:
    """The job, those that have a place, the nodes and the settings."""
    waiting = [job.priority for job in cell.jobs.values() if not job.gang]
    turn, settings = _TURNS.get(POLICIES[cell.policy].kind, ""), msgspec.to_builtins(cell.settings)
    return Present(
        jobs={
            each.job_id: _job(cell, each, now_s)
            for each in cell.jobs.values()
            if each.gang or not job_id or each.job_id == job_id
        },
        top_priority=max(waiting, default=0),
        ahead_for_gpus=sum(bisect_left(orders, cell.jobs[job_id].order) for orders in cell.queue.values())
        if job_id in cell.jobs
        else 0,
        nodes={node.node_id: _node(node) for node in cell.nodes.values()},
        settings=settings,
        ran_s={} if job_id else cell.ran_s,
        turn_s=settings.get(turn, 0.0),
        turn_setting=turn,
    )


def _job(cell: Cell, job: Job, now_s: float) -> PresentJob:
    live = job.live_nodes() if job.gang else []
    ends = job.phase is ACTIVE and (job.stopping or job.leaving is not None)
    runs = bool(live) and job.stays and job.move is None and len(job.tasks.started) == len(job.gang)
    return PresentJob(
        job_id=job.job_id,
        spec=job.spec,
        order=job.order,
        priority=job.priority,
        attempt=job.attempt,
        gang=job.gang,
        is_placed=job.stays,
        may_end=live if runs and not job.tasks.still else [],
        leaving=live if ends else [],
        unreported={}
        if ends or job.move is not None
        else {node: of for node in live if (of := _unreported(job, node))},
        cause=job.wait_code.partition(":")[0],
        behind=behind_in(job.wait_code),
        held=job.held,
        queued=job.phase is Phase.QUEUED,
        stated_s=stated_s(cell, job, now_s),
        since_s=job.since_s if job.gang else job.queued_since_s,
        attained_s=job.account.attained_s + unbooked_s(job, now_s),
        pool=job.pool,
    )


def _unreported(job: Job, node_id: str) -> Report | None:
    """What the agent of a node of the gang has not reported yet."""
    if node_id not in job.tasks.started:
        return "started"
    if job.suspended:
        return None if node_id in job.tasks.still else "suspended"
    return "resumed" if job.stays and not job.held and node_id in job.tasks.still else None


def _node(node: Node) -> PresentNode:
    return PresentNode(
        node_id=node.node_id,
        rack=node.rack,
        gpu_types=[gpu.gpu_type for gpu in node.gpus],
        gpu_memory_bytes=max((gpu.memory_bytes for gpu in node.gpus), default=0),
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        features=node.features,
        present=node.present,
        draining=node.draining,
        free={gpu_type: len(free) for gpu_type in node.healthy if (free := node.free(gpu_type))},
    )
