"""Why a queued job is not placed now, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.reasons import Number, PendingReason, Reason, Rejected
from services.placement.core.cluster import gangs
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Job
from services.placement.core.state import State


def reason_to_wait(state: State, job: Job, open_nodes: Sequence[Node], fit: gangs.Fit | None, now_s: float) -> Reason:
    """The first cause that holds, in the order of `PendingReason`.

    Args:
        open_nodes: usable nodes that are not reserved for a job that goes first.
        fit: a place that was found but is not accepted yet, or None.
    """
    request = job.spec.gpus
    usable = [node for node in state.nodes.values() if node.usable]
    free, wanted = gangs.free_gpus(request, open_nodes), request.count
    numbers: dict[str, Number] = {"gpus": wanted, "free_gpus": free}
    if fit is not None:
        return _relaxing(state, job, fit, numbers, now_s)
    if (healthy := gangs.capacity(request, usable)) < wanted:
        return Reason(
            code=PendingReason.HEALTHY_GPUS_MISSING,
            message=f"needs {wanted} GPUs of one type; {healthy} are on nodes that are up, healthy and not draining",
            numbers={**numbers, "healthy_gpus": healthy},
        )
    if state.reservation is not None and gangs.best_fit(request, usable) is not None:
        return Reason(
            code=PendingReason.FAIR_SHARE,
            message=(
                f"the GPUs that it could use are held for {state.reservation.job_id}, which goes first, "
                f"on {', '.join(state.reservation.node_ids)}"
            ),
            numbers={**numbers, "free_gpus_with_reserved": gangs.free_gpus(request, usable)},
        )
    if free < wanted:
        return Reason(
            code=PendingReason.INSUFFICIENT_GPUS,
            message=f"needs {wanted} GPUs; {free} are free",
            numbers=numbers,
            rejected=_rejected(job, open_nodes),
        )
    return Reason(
        code=PendingReason.GANG_FRAGMENTED,
        message=f"needs {wanted} GPUs on at most {request.max_nodes} nodes; {free} are free, but on more",
        numbers=numbers,
        rejected=_rejected(job, open_nodes),
    )


def behind_others(job: Job, ahead: int) -> Reason:
    """For a job that is not the first of its shape: it is looked at when those before it are placed."""
    return Reason(
        code=PendingReason.FAIR_SHARE,
        message=f"{ahead} jobs that need the same go first",
        numbers={"gpus": job.spec.gpus.count, "jobs_ahead": ahead},
    )


def _relaxing(state: State, job: Job, fit: gangs.Fit, numbers: dict[str, Number], now_s: float) -> Reason:
    left_s = max(0.0, job.queued_since_s + state.locality_relax_s - now_s)
    return Reason(
        code=PendingReason.LOCALITY_RELAXING,
        message=f"fits on {fit.nodes} nodes now; waits {left_s:.0f} s more for fewer",
        numbers={**numbers, "nodes_now": fit.nodes, "relaxes_in_s": left_s},
    )


def _rejected(job: Job, nodes: Sequence[Node]) -> list[Rejected]:
    """The nodes that came closest, at most five."""
    types = gangs.accepted_types(job.spec.gpus, nodes)
    free = [(max((len(node.free(t)) for t in types), default=0), node.node_id) for node in nodes]
    closest = sorted(free, key=lambda pair: (-pair[0], pair[1]))[:5]
    return [Rejected(what=node_id, code="TooFewFree", numbers={"free_gpus": n}) for n, node_id in closest]
