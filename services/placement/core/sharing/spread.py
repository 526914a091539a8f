"""How fast a gang trains on more servers than it needs, as far as placement knows.

The Philly study (Jeon et al., ATC'19, section 4.2, table 3): the same job on two servers processed 98.0 images a
second, and 114.8 on one.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.jobs import Job, PlacedRates
from services.placement.core.sharing.rates import configuration_of, stated_rates


class Speeds(NamedTuple):
    """Of one gang on GPUs of one type, in steps per second."""

    together: float
    """On as few servers as it needs."""
    spread: float
    """On more."""
    basis: str
    """For people: what they are known from."""


def speeds(cell: Cell, job: Job, gpu_type: str) -> Speeds | None:
    """What is known of the job: from the operators' table, else measured of it, else measured of its configuration.

    None: its speed on more servers is not known, or not beside that on few.
    """
    part = _part_in_table(cell, job, gpu_type)
    together = stated_rates(cell, job).get(gpu_type, 0.0)
    if part and together > 0:
        return Speeds(together, together * part, "the operators' table")
    of_configuration = cell.known.placed.get(configuration_of(job), {})
    for found, basis in ((job.profile.placed, "it"), (of_configuration, "its configuration")):
        measured = found.get(gpu_type)
        if measured is not None and measured.together > 0 and measured.spread > 0:
            return Speeds(measured.together, measured.spread, f"what was measured of {basis}")
    return None


def _part_in_table(cell: Cell, job: Job, gpu_type: str) -> float:
    """The part of its speed that the configuration keeps on more servers, by the operators' table; 0: not known."""
    configuration = configuration_of(job)
    spread = cell.known.spread.get(configuration, {}).get(gpu_type, 0.0)
    together = cell.known.rates.get(configuration, {}).get(gpu_type, 0.0)
    return spread / together if together > 0 else 0.0


def part_here(cell: Cell, job: Job) -> float:
    """The part of its speed that the job keeps where it is: 1 on as few servers as it needs, or where none is known."""
    part = _part_in_table(cell, job, job.gpu_type) if len(job.gang) > 1 else 0.0
    return part if part and is_spread(cell, job) else 1.0


def is_spread(cell: Cell, job: Job) -> bool:
    """Whether the job is on more servers than GPUs of its type would take, were they empty."""
    request = replace(job.request, types=[job.gpu_type])
    fewest = gangs.fewest_servers(request, cell.servers_for(job))
    return fewest is not None and len(job.gang) > fewest


def learn_placed(cell: Cell, job: Job, rate_per_s: float) -> None:
    """Remember how fast a gang is on so many servers; of a job on one GPU there is nothing to learn."""
    if rate_per_s <= 0 or job.width == 1 or not job.as_asked:
        return
    side = "spread" if is_spread(cell, job) else "together"
    configuration = configuration_of(job)
    kept = [job.profile.placed, *([cell.known.placed.setdefault(configuration, {})] if configuration else [])]
    for rates in kept:
        rates[job.gpu_type] = replace(rates.get(job.gpu_type, PlacedRates()), **{side: rate_per_s})
