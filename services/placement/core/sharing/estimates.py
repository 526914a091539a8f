"""Configurations that are not in the operators' table of pairs: which one of it each is like (Gavel, section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from libs.contracts.placement import ThroughputEstimated
from libs.policies.estimation.fingerprints import Sample, nearest
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.table import machine
from services.placement.core.sharing.pairs import is_reference, parts
from services.placement.core.sharing.rates import configuration_of, rates

NEWS = 0.05
"""A measured part of the own speed that differs by less from the one before is no news."""


def missing(cell: Cell, jobs: Iterable[Job], gpu_types: list[str]) -> list[ThroughputEstimated]:
    """One estimate per configuration of these jobs that has none, or has been seen beside others since."""
    newest = {configuration_of(job): job for job in jobs}
    found = []
    for configuration, job in newest.items():
        if not configuration or is_reference(cell, configuration):
            continue
        references, alone = _references(cell, job.spec.gpus.count), rates(cell, job, gpu_types)
        tried = _tried_beside(cell, configuration, alone, references)
        sample = Sample(alone, tried | _seen_beside(cell, configuration, references))
        if cell.known.evidence.get(configuration) == len(sample.kept):
            continue
        samples = {name: Sample(cell.known.rates[name], _known(cell, name, references)) for name in references}
        like = nearest(sample, samples, gpu_types)
        if like is not None:
            found.append(
                ThroughputEstimated(
                    configuration=configuration,
                    like=like.name,
                    distance=round(like.distance, 6),
                    evidence=like.evidence,
                    confidence=round(like.confidence, 6),
                )
            )
    return found


def _references(cell: Cell, gpus: int) -> list[str]:
    measured = (name for name in cell.known.pairs if name in cell.known.rates and is_reference(cell, name))
    return sorted(name for name in measured if name.endswith(f"|{gpus}"))


def _known(cell: Cell, name: str, references: list[str]) -> dict[tuple[str, str], tuple[float, float | None]]:
    return {(other, gpu_type): both for other in references for gpu_type, both in parts(cell, name, other).items()}


def _tried_beside(
    cell: Cell, configuration: str, alone: Mapping[str, float], references: list[str]
) -> dict[tuple[str, str], tuple[float, float | None]]:
    """What operators have measured of a configuration that is no reference."""
    measured = cell.known.pairs.get(configuration, {})
    return {
        (other, gpu_type): (rate_per_s / alone[gpu_type], others_rate_per_s / others)
        for other in references
        for gpu_type, (rate_per_s, others_rate_per_s) in measured.get(other, {}).items()
        if alone.get(gpu_type, 0.0) > 0 and (others := cell.known.rates[other].get(gpu_type, 0.0)) > 0
    }


def _seen_beside(
    cell: Cell, configuration: str, references: list[str]
) -> dict[tuple[str, str], tuple[float, float | None]]:
    mine = cell.known.beside.get(configuration, {})
    return {
        (other, gpu_type): (part, cell.known.beside.get(other, {}).get(configuration, {}).get(gpu_type))
        for other in references
        for gpu_type, part in mine.get(other, {}).items()
    }


def saw_beside(cell: Cell, job: Job, partner: Job, rate_per_s: float) -> None:
    """Remember what the job kept of its own speed beside its partner, if no operator has measured the two."""
    mine, other = configuration_of(job), configuration_of(partner)
    alone = rates(cell, job, [job.gpu_type]).get(job.gpu_type, 0.0)
    if not mine or not other or other in cell.known.pairs.get(mine, {}) or alone <= 0:
        return
    before = cell.known.beside.setdefault(mine, {}).setdefault(other, {})
    part = min(1.0, rate_per_s / alone)
    if job.gpu_type not in before or abs(part - before[job.gpu_type]) > NEWS:
        before[job.gpu_type] = part
        cell.known.version += 1


machine.hears(ThroughputEstimated)


@machine.evolves(ThroughputEstimated)
def throughput_estimated(cell: Cell, event: ThroughputEstimated, now_s: float) -> None:
    cell.known.alike[event.configuration] = event.like
    cell.known.evidence[event.configuration] = event.evidence
    cell.known.version += 1
