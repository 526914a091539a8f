"""Whether a job would fit on this cluster if it were empty and whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.reasons import PendingReason, Reason, Rejected
from libs.kernel.words import counted

Nodes = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class NeverFits:
    """The job can never run; the reason says what is missing and which GPU types were looked at."""

    reason: Reason


def judge(spec: JobSpec, nodes: Nodes, tenant_limit: int | None) -> NeverFits | Reason:
    """Judge a job against the whole cluster.

    Args:
        spec: what the job asks for; a gang runs on GPUs of one type.
        nodes: {node id: {GPU type: GPUs}}, at least one node.
        tenant_limit: most GPUs of the tenant's jobs together, None for no limit.

    Returns:
        `NeverFits`, or the reason why it fits (the GPU type that offers most).
    """
    request = spec.gpus
    asked = counted(request.count, "GPU")
    if tenant_limit is not None and request.count > tenant_limit:
        return NeverFits(
            Reason(
                code=PendingReason.EXCEEDS_QUOTA,
                message=f"{asked} asked for; tenant {spec.tenant} may use at most {tenant_limit}",
                numbers={"gpus": request.count, "limit_gpus": tenant_limit},
            )
        )
    offers = {gpu_type: _largest_gang(gpus, request.max_nodes) for gpu_type, gpus in sorted(_by_type(nodes).items())}
    wanted = {t: n for t, n in offers.items() if request.accepts(t)}
    if not wanted:
        return NeverFits(_no_type(request, offers))
    best = max(wanted, key=lambda t: wanted[t])
    if wanted[best] < request.count:
        return NeverFits(_too_large(request, wanted))
    return Reason(
        code="Fits",
        message=f"{asked} asked for; a gang can have up to {wanted[best]} {best}",
        numbers={"gpus": request.count, "largest_gang_gpus": wanted[best]},
    )


def _by_type(nodes: Nodes) -> dict[str, list[int]]:
    """{GPU type: GPUs of each node that has it}."""
    counts: dict[str, list[int]] = {}
    for node in nodes.values():
        for gpu_type, gpus in node.items():
            counts.setdefault(gpu_type, []).append(gpus)
    return counts


def _largest_gang(gpus: list[int], max_nodes: int | None) -> int:
    """GPUs of one type on the `max_nodes` best nodes."""
    return sum(sorted(gpus, reverse=True)[:max_nodes])


def _no_type(request: GpuRequest, offers: Mapping[str, int]) -> Reason:
    asked = ", ".join(request.types) or "any type"
    without = f" without {', '.join(request.excluded_types)}" if request.excluded_types else ""
    return Reason(
        code=PendingReason.NEVER_FITS,
        message=f"no node has a GPU type the job accepts ({asked}{without}); there are {', '.join(offers) or 'none'}",
        numbers={"gpus": request.count},
        rejected=[Rejected(what=t, code="TypeNotAccepted", numbers={"gpus": n}) for t, n in offers.items()],
    )


def _too_large(request: GpuRequest, wanted: Mapping[str, int]) -> Reason:
    best = max(wanted, key=lambda t: wanted[t])
    asked = f"{counted(request.count, 'GPU')} of one type"
    within = f" on {counted(request.max_nodes, 'node')}" if request.max_nodes else ""
    return Reason(
        code=PendingReason.NEVER_FITS,
        message=f"{asked} asked for{within}; the whole cluster has {wanted[best]} {best}",
        numbers={"gpus": request.count, "largest_gang_gpus": wanted[best]},
        rejected=[Rejected(what=t, code="TooFewGpus", numbers={"gpus": n}) for t, n in wanted.items()],
    )
