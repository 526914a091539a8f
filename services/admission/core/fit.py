"""Whether a job would fit on this cluster if it were empty and whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from libs.contracts.features import described
from libs.contracts.jobs import JobSpec
from libs.contracts.reasons import PendingReason, Reason, Rejected
from libs.kernel.beside import beside, beside_them, on_nodes_with
from libs.kernel.words import counted

Sizes = Mapping[str, Mapping[int, int]]
"""{GPU type: {GPUs: nodes that have so many}}."""


@dataclass(frozen=True)
class NeverFits:
    """The job can never run; the reason says what is missing and which GPU types were looked at."""

    reason: Reason


def judge(spec: JobSpec, sizes: Sizes, tenant_limit: int | None) -> NeverFits | Reason:
    """Judge a job against the whole cluster.

    Args:
        spec: what the job asks for; a gang runs on GPUs of one type.
        sizes: of the nodes that have the features it needs; GPUs without enough CPUs or memory beside them, for a job
            that asks for these, are left out.
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
    offers = {gpu_type: _largest_gang(of_type, request.max_nodes) for gpu_type, of_type in sorted(sizes.items())}
    wanted = {t: n for t, n in offers.items() if request.accepts(t)}
    if spec.needs and not offers:
        return NeverFits(_no_node(spec))
    if not wanted:
        return NeverFits(_no_type(spec, offers))
    best = max(wanted, key=lambda t: wanted[t])
    if wanted[best] < request.count:
        return NeverFits(_too_large(spec, wanted))
    return Reason(
        code="Fits",
        message=f"{asked}{beside(spec)} asked for; a gang can have up to {wanted[best]} {best}",
        numbers={"gpus": request.count, "largest_gang_gpus": wanted[best]},
    )


def _largest_gang(of_type: Mapping[int, int], max_nodes: int | None) -> int:
    """GPUs of one type on the `max_nodes` best nodes; `of_type`: {GPUs: nodes that have so many}."""
    found, left = 0, sum(of_type.values()) if max_nodes is None else max_nodes
    for gpus, nodes in sorted(of_type.items(), reverse=True):
        taken = min(nodes, left)
        found, left = found + taken * gpus, left - taken
    return found


def _no_node(spec: JobSpec) -> Reason:
    return Reason(
        code=PendingReason.NEVER_FITS,
        message=f"no node has {described(spec.needs)}",
        numbers={"gpus": spec.gpus.count},
    )


def _no_type(spec: JobSpec, offers: Mapping[str, int]) -> Reason:
    request = spec.gpus
    asked, there = ", ".join(request.types) or "any type", ", ".join(offers) or "none"
    without = f" without {', '.join(request.excluded_types)}" if request.excluded_types else ""
    return Reason(
        code=PendingReason.NEVER_FITS,
        message=f"no node has a GPU type the job accepts ({asked}{without}){on_nodes_with(spec)}; there are {there}",
        numbers={"gpus": request.count},
        rejected=[Rejected(what=t, code="TypeNotAccepted", numbers={"gpus": n}) for t, n in offers.items()],
    )


def _too_large(spec: JobSpec, wanted: Mapping[str, int]) -> Reason:
    request, best = spec.gpus, max(wanted, key=lambda t: wanted[t])
    asked = f"{counted(request.count, 'GPU')} of one type{beside(spec)}"
    within = f" on {counted(request.max_nodes, 'node')}" if request.max_nodes else ""
    return Reason(
        code=PendingReason.NEVER_FITS,
        message=f"{asked} asked for{within}; the whole cluster has {wanted[best]} {best}{beside_them(spec)}"
        f"{on_nodes_with(spec)}",
        numbers={"gpus": request.count, "largest_gang_gpus": wanted[best]},
        rejected=[Rejected(what=t, code="TooFewGpus", numbers={"gpus": n}) for t, n in wanted.items()],
    )
