"""How fast two jobs train while they share GPUs, as far as placement knows or guesses."""

from __future__ import annotations

from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.sharing.rates import configuration_of, rates


def together(cell: Cell, a: Job, b: Job, gpu_types: list[str]) -> dict[str, tuple[float, float]]:
    """{GPU type: steps per second of both}; types where nothing is known are left out; 0: they do not fit.

    What operators measured comes first. Else each is taken to keep the part of its own speed that it was seen to
    keep, or that the configuration which it is like keeps.
    """
    return of_configurations(cell, (configuration_of(a), a), (configuration_of(b), b), gpu_types)


def of_configurations(
    cell: Cell, first: tuple[str, Job], second: tuple[str, Job], gpu_types: list[str]
) -> dict[str, tuple[float, float]]:
    """`together` of two configurations, each with a job that has it."""
    (mine, a), (other, b) = first, second
    known = cell.known.pairs.get(mine, {}).get(other, {})
    if known and is_reference(cell, mine) and is_reference(cell, other):
        return known
    own, others = rates(cell, a, gpu_types), rates(cell, b, gpu_types)
    found = {}
    for gpu_type, (part, other_part) in _parts(cell, mine, other).items():
        if gpu_type in own and gpu_type in others:
            found[gpu_type] = own[gpu_type] * part, others[gpu_type] * other_part
    return found | known


def is_reference(cell: Cell, configuration: str) -> bool:
    """Whether the operators' tables have it beside itself: then all that it packs with was measured.

    One that was tried beside some others alone keeps what was measured, and is taken for like a reference else.
    """
    return configuration in cell.known.pairs.get(configuration, {})


def _parts(cell: Cell, a: str, b: str) -> dict[str, tuple[float, float]]:
    """{GPU type: parts of their own speeds that both keep}, from what they are like and what was seen of them."""
    like_a, like_b = _stand_in(cell, a), _stand_in(cell, b)
    found = parts(cell, like_a, like_b)
    for gpu_type, (part, other_part) in list(found.items()):
        found[gpu_type] = (
            cell.known.beside.get(a, {}).get(b, {}).get(gpu_type, part),
            cell.known.beside.get(b, {}).get(a, {}).get(gpu_type, other_part),
        )
    return found


def _stand_in(cell: Cell, configuration: str) -> str:
    return configuration if is_reference(cell, configuration) else cell.known.alike.get(configuration, "")


def parts(cell: Cell, a: str, b: str) -> dict[str, tuple[float, float]]:
    """{GPU type: parts of their own speeds that two configurations of the operators' tables keep together}."""
    alone_a, alone_b = cell.known.rates.get(a, {}), cell.known.rates.get(b, {})
    return {
        gpu_type: (rate_a / alone_a[gpu_type], rate_b / alone_b[gpu_type])
        for gpu_type, (rate_a, rate_b) in cell.known.pairs.get(a, {}).get(b, {}).items()
        if alone_a.get(gpu_type, 0.0) > 0 and alone_b.get(gpu_type, 0.0) > 0
    }


def partner_of(cell: Cell, job: Job) -> Job | None:
    """The job that shares its GPUs in this round."""
    partner = cell.jobs.get(cell.book.paired(job.job_id) or "")
    return partner if partner is not None and partner.gang == job.gang else None
