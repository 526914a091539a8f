"""Fairness over entities and inside them (paper, section 4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.fairness import Found, Ints, fill_levels
from libs.policies.allocation.grouping import Classes
from libs.policies.problem import Entity, Problem

Floats = NDArray[np.float64]
ALONE = "\0alone "
"""Prefix of the entity of a job that names none: it is one of its own."""


def entity_of(name: str | None, job_id: str) -> str:
    """The entity that a job belongs to."""
    return name if name is not None else ALONE + job_id


def hierarchical(problem: Problem, classes: Classes) -> Found:
    """Water filling in which each entity's weight is shared by those of its jobs that are not bottlenecked.

    `fairness`: by the jobs' weights; `fifo`: the first of them has it all.
    """
    owners = [entity_of(job.entity, job.id) for job in classes.firsts]
    names = list(dict.fromkeys(owners))
    entities = [problem.entities.get(name, Entity()) for name in names]
    owner = np.array([names.index(name) for name in owners], dtype=np.int64)
    weight = np.array([entity.weight for entity in entities])
    in_order = np.array([entity.policy == "fifo" for entity in entities])

    def slopes_of(chosen: Ints, open_: NDArray[np.bool_]) -> Floats:
        mine = owner[chosen]
        takes_part = open_ & (~in_order[mine] | _first_of_each(mine, open_))
        parts = np.where(takes_part, classes.weight[chosen], 0.0)
        total = np.zeros(len(entities))
        np.add.at(total, mine, parts * classes.count[chosen])
        slopes: Floats = np.divide(parts * weight[mine], total[mine], out=np.zeros(len(chosen)), where=parts > 0)
        return slopes

    return fill_levels(classes, slopes_of)


def _first_of_each(mine: Ints, open_: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which classes are the first open ones of their entity; classes stand in order of arrival."""
    found = np.zeros(len(mine), dtype=bool)
    indices = np.flatnonzero(open_)
    _, first = np.unique(mine[indices], return_index=True)
    found[indices[first]] = True
    return found
