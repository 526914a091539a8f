"""Configurations that are not in the operators' table of pairs: which one of it each is like (Gavel, section 6)."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.placement import ThroughputEstimated
from libs.policies.estimation.fingerprints import Sample, nearest
from services.placement.core.jobs import Job
from services.placement.core.lifecycle.table import machine
from services.placement.core.sharing.pairs import parts
from services.placement.core.sharing.rates import configuration_of, rates
from services.placement.core.state import State

NEWS = 0.05
"""A measured part of the own speed that differs by less from the one before is no news."""


def missing(state: State, jobs: Iterable[Job], gpu_types: list[str]) -> list[ThroughputEstimated]:
    """One estimate per configuration of these jobs that has none, or has been seen beside others since."""
    newest = {configuration_of(job): job for job in jobs}
    found = []
    for configuration, job in newest.items():
        if not configuration or configuration in state.pair_rates:
            continue
        references = _references(state, job.spec.gpus.count)
        sample = Sample(rates(state, job, gpu_types), _seen_beside(state, configuration, references))
        if state.evidence.get(configuration) == len(sample.kept):
            continue
        samples = {name: Sample(state.rates[name], _known(state, name, references)) for name in references}
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


def _references(state: State, gpus: int) -> list[str]:
    return sorted(name for name in state.pair_rates if name in state.rates and name.endswith(f"|{gpus}"))


def _known(state: State, name: str, references: list[str]) -> dict[tuple[str, str], tuple[float, float | None]]:
    return {(other, gpu_type): both for other in references for gpu_type, both in parts(state, name, other).items()}


def _seen_beside(
    state: State, configuration: str, references: list[str]
) -> dict[tuple[str, str], tuple[float, float | None]]:
    mine = state.packed.get(configuration, {})
    return {
        (other, gpu_type): (part, state.packed.get(other, {}).get(configuration, {}).get(gpu_type))
        for other in references
        for gpu_type, part in mine.get(other, {}).items()
    }


def saw_beside(state: State, job: Job, partner: Job, rate_per_s: float) -> None:
    """Remember what the job kept of its own speed beside its partner, if no operator has measured the two."""
    mine, other = configuration_of(job), configuration_of(partner)
    alone = rates(state, job, [job.gpu_type]).get(job.gpu_type, 0.0)
    if not mine or not other or other in state.pair_rates.get(mine, {}) or alone <= 0:
        return
    before = state.packed.setdefault(mine, {}).setdefault(other, {})
    part = min(1.0, rate_per_s / alone)
    if job.gpu_type not in before or abs(part - before[job.gpu_type]) > NEWS:
        before[job.gpu_type] = part
        state.knowledge += 1


machine.hears(ThroughputEstimated)


@machine.evolves(ThroughputEstimated)
def throughput_estimated(state: State, event: ThroughputEstimated, now_s: float) -> None:
    state.alike[event.configuration] = event.like
    state.evidence[event.configuration] = event.evidence
    state.knowledge += 1
