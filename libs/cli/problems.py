"""Reading `policy-problem/1`, and writing `policy-solution/1`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from libs.contracts.bad_input import BadInput
from libs.policies.allocation.checking import check_problem
from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.problem import (
    Entity,
    GpuPool,
    InvalidProblem,
    Job,
    Pair,
    PolicyOptions,
    Problem,
    Solution,
)
from libs.sim.documents import Fields, Unknown, array_at, number_at, read_json, text_at
from libs.sim.inputs import Warn, warn_on_stderr

FORMAT = "policy-problem/1"
ANSWER = "policy-solution/1"
NEED_STEPS = ("finish_time_fairness", "min_makespan", "shortest_job_first", "allox")
"""Policies that cannot do without the steps that are left of each job."""
NEED_COSTS = ("min_cost", "min_cost_slo")
RATE = "steps per second, 0 or more"


NOT_IN_FILES = ("kind", "kind_pairs")
"""How the placement service gives pairs; files list them by job."""


def _listed(cls: type[Problem] | type[Job], *more: str) -> tuple[str, ...]:
    """The fields of the format."""
    return (*more, *(name for name in cls.__struct_fields__ if name not in NOT_IN_FILES))


def read_problem(source: str | Path, warn: Warn = warn_on_stderr) -> Problem:
    """Read a file (or standard input, `-`).

    Raises:
        BadInput: with file, JSON path, the value seen and what was expected.
    """
    return parse_problem(*read_json(source, FORMAT), warn)


def parse_problem(document: Any, name: str, warn: Warn = warn_on_stderr) -> Problem:
    """As `read_problem`, from decoded JSON; `name` is what messages call the file."""
    top = Fields(document, name)
    top.must_be("format", FORMAT)
    unknown = Unknown(name, FORMAT)
    top.known(_listed(Problem, "format"), unknown, "problem")
    policy = top.text("policy")
    if policy not in ALLOCATION_POLICIES:
        raise top.wrong("policy", f"one of {', '.join(ALLOCATION_POLICIES)}")
    options = top.inside("options", {})
    cluster, entities = top.inside("cluster"), top.inside("entities", {})
    problem = Problem(
        policy=policy,
        options=_options(options, unknown),
        cluster={gpu_type: _pool(cluster.inside(gpu_type), policy, unknown) for gpu_type in cluster.given},
        jobs=[_job(row, policy, unknown) for row in top.each("jobs")],
        pairs=[_pair(row, unknown) for row in top.each("pairs", [])],
        entities={entity: _entity(entities.inside(entity), unknown) for entity in entities.given},
    )
    unknown.tell(warn)
    if not problem.cluster:
        raise top.wrong("cluster", "at least one GPU type")
    _check_pairs(problem.pairs, name)
    _check_parents(entities)
    try:
        check_problem(problem)
    except InvalidProblem as error:
        raise BadInput(f"{name}: {error.path}", error.seen, error.expected) from None
    return problem


def _options(row: Fields, unknown: Unknown) -> PolicyOptions:
    row.known(PolicyOptions.__struct_fields__, unknown, "options")
    return PolicyOptions(
        space_sharing=row.flag("space_sharing", False),
        heterogeneity_aware=row.flag("heterogeneity_aware", True),
        water_filling=row.flag("water_filling", False),
    )


def _pool(row: Fields, policy: str, unknown: Unknown) -> GpuPool:
    row.known(GpuPool.__struct_fields__, unknown, "pool")
    cost = row.number("cost_per_hour", "dollars, 0 or more", None)
    if cost is None and policy in NEED_COSTS:
        raise row.wrong("cost_per_hour", f"dollars: {policy} is about costs")
    return GpuPool(
        gpus=row.whole("gpus"), cost_per_hour=cost or 0.0, shares_gpus_with=row.text("shares_gpus_with", None)
    )


def _job(row: Fields, policy: str, unknown: Unknown) -> Job:
    row.known(_listed(Job), unknown, "job")
    rates = row.inside("throughputs")
    steps = row.number("steps_remaining", "steps, 0 or more", None)
    slo_s = row.number("slo_s", "seconds above 0", None, above=True)
    if steps is None and (policy in NEED_STEPS or (slo_s is not None and policy.endswith("_slo"))):
        raise row.wrong("steps_remaining", f"steps, 0 or more: {policy} is about when jobs end")
    return Job(
        id=row.text("id"),
        throughputs={gpu_type: rates.number(gpu_type, RATE) for gpu_type in rates.given},
        scale_factor=row.whole("scale_factor", 1),
        weight=row.number("weight", "a number above 0", 1.0, above=True),
        entity=row.text("entity", None),
        steps_remaining=steps,
        elapsed_s=row.number("elapsed_s", "seconds, 0 or more", 0.0),
        isolated_elapsed_s=row.number("isolated_elapsed_s", "seconds, 0 or more", 0.0),
        slo_s=slo_s,
    )


def _pair(row: Fields, unknown: Unknown) -> Pair:
    row.known(Pair.__struct_fields__, unknown, "pair")
    a, b = _two(row, "jobs", "the ids of two jobs")
    rates = row.inside("throughputs")
    return Pair(
        jobs=(text_at(a, f"{row.where('jobs')}[0]"), text_at(b, f"{row.where('jobs')}[1]")),
        throughputs={gpu_type: _two_rates(rates, gpu_type) for gpu_type in rates.given},
    )


def _two_rates(rates: Fields, gpu_type: str) -> tuple[float, float]:
    a, b = _two(rates, gpu_type, "steps per second of the first and of the second")
    where = rates.where(gpu_type)
    return number_at(a, f"{where}[0]", RATE), number_at(b, f"{where}[1]", RATE)


def _two(row: Fields, field: str, expected: str) -> list[Any]:
    values = array_at(row.given.get(field), row.where(field))
    if len(values) != 2:
        raise row.wrong(field, expected)
    return values


def _check_pairs(pairs: list[Pair], name: str) -> None:
    """Two rows for one pair would be two answers to one question."""
    first: dict[frozenset[str], int] = {}
    for index, pair in enumerate(pairs):
        before = first.setdefault(frozenset(pair.jobs), index)
        if before != index:
            seen = f"{' and '.join(pair.jobs)}, as in $.pairs[{before}]"
            raise BadInput(f"{name}: $.pairs[{index}].jobs", seen, "each pair once")


def _entity(row: Fields, unknown: Unknown) -> Entity:
    row.known((*Entity.__struct_fields__, "parent"), unknown, "entity")
    return Entity(
        weight=row.number("weight", "a number above 0", 1.0, above=True), policy=row.text("policy", "fairness")
    )


def _check_parents(entities: Fields) -> None:
    """Entities may name a parent in other tools; here there is one level, and a cycle is never right."""
    rows = {entity: entities.inside(entity) for entity in entities.given}
    parents = {entity: row.text("parent", None) for entity, row in rows.items()}
    for entity, parent in parents.items():
        if parent is None:
            continue
        if parent not in parents:
            raise rows[entity].wrong("parent", f"one of {', '.join(parents)}")
        above: list[str] = [entity]
        while parent is not None and parent not in above:
            above.append(parent)
            parent = parents.get(parent)
        if parent is not None:
            circle = " -> ".join([*above, parent])
            raise BadInput(rows[entity].where("parent"), f"a cycle ({circle})", "entities without cycles")
        raise rows[entity].wrong("parent", "no parent: the hierarchy has two levels, entities and their jobs")


def solution_document(solution: Solution, solve_s: float) -> dict[str, Any]:
    """The answer as `policy-solution/1`."""
    return {
        "format": ANSWER,
        "status": "optimal",
        "objective": solution.objective if math.isfinite(solution.objective) else None,
        "allocation": [{"jobs": list(share.jobs), "time": share.time} for share in solution.allocation],
        "solve_s": solve_s,
        "infeasible": solution.infeasible,
    }
