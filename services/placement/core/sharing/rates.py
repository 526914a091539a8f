"""How fast a job trains on each GPU type, as far as placement knows."""

from __future__ import annotations

from libs.contracts.gateway import ColocatedRate, IsolatedRate
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job

UNKNOWN = 1.0
"""Rate of a job of which nothing is known: the same everywhere, so that all types are equal to it."""


def configuration(model: str, batch_size: int | None, gpus: int) -> str:
    """The key of the rate tables."""
    return f"{model}|{'' if batch_size is None else batch_size}|{gpus}"


def configuration_of(job: Job) -> str:
    """The key of a job; empty when its user has not said what it trains."""
    spec = job.spec
    return configuration(spec.model, spec.batch_size, spec.gpus.count) if spec.model else ""


def rates(cell: Cell, job: Job, gpu_types: list[str]) -> dict[str, float]:
    """{GPU type: steps per second}; a type on which the job cannot or must not run is left out.

    What its user says comes first, then the operators' tables, then what was measured; a type that has not been
    tried yet counts like the best one that has.
    """
    acceptable = job.spec.gpus.acceptable(gpu_types)
    if job.needs:
        able = cell.servers_for(job).types()
        acceptable = [gpu_type for gpu_type in acceptable if gpu_type in able]
    known = stated_rates(cell, job)
    if known:
        return {t: rate for t in acceptable if (rate := known.get(t, 0.0)) > 0}
    untried = max(job.profile.rates.values(), default=UNKNOWN)
    return {t: job.profile.rates.get(t, untried) for t in acceptable}


def stated_rates(cell: Cell, job: Job) -> dict[str, float]:
    """{GPU type: steps per second} as its user says, else by the operators' tables; empty: neither knows the job."""
    return job.spec.throughputs or cell.known.rates.get(configuration_of(job)) or {}


def learn_isolated(cell: Cell, row: IsolatedRate) -> None:
    """Remember a row of an operator's table."""
    key = configuration(row.model, row.batch_size, row.gpus)
    cell.known.rates[key] = row.steps_per_s
    if row.spread_steps_per_s:
        cell.known.spread[key] = row.spread_steps_per_s
    else:
        cell.known.spread.pop(key, None)


def learn_colocated(cell: Cell, row: ColocatedRate) -> None:
    """Remember a pair, from both sides."""
    a = configuration(row.a_model, row.a_batch_size, row.gpus)
    b = configuration(row.b_model, row.b_batch_size, row.gpus)
    both = (row.a_steps_per_s, row.b_steps_per_s)
    cell.known.pairs.setdefault(a, {}).setdefault(b, {})[row.gpu_type] = both
    cell.known.pairs.setdefault(b, {}).setdefault(a, {})[row.gpu_type] = (both[1], both[0])
