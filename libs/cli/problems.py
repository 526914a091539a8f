"""Reading `policy-problem/1`, and writing `policy-solution/1`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import ALLOCATION_POLICIES
from libs.sim.inputs import Warn, open_input, warn_on_stderr
from services.placement.core.policies.allocation.problem import (
    Entity,
    GpuPool,
    InvalidProblem,
    Job,
    Pair,
    PolicyOptions,
    Problem,
    Solution,
)

FORMAT = "policy-problem/1"
ANSWER = "policy-solution/1"
FIELDS: dict[str, type[msgspec.Struct]] = {"options": PolicyOptions}
LISTS: dict[str, type[msgspec.Struct]] = {"jobs": Job, "pairs": Pair}
TABLES: dict[str, type[msgspec.Struct]] = {"cluster": GpuPool, "entities": Entity}


def read_problem(source: str | Path, warn: Warn = warn_on_stderr) -> Problem:
    """Read a file (or standard input, `-`).

    Raises:
        BadInput: with file, JSON path, the value seen and what was expected.
    """
    with open_input(source) as (file, name):
        text = file.read()
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(name, f"no JSON: {error}", f"a {FORMAT} document") from None
    return parse_problem(document, name, warn)


def parse_problem(document: Any, name: str, warn: Warn = warn_on_stderr) -> Problem:
    """As `read_problem`, from decoded JSON; `name` is what messages call the file."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        seen = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise BadInput(f"{name}: $.format", repr(seen), repr(FORMAT))
    _warn_of_strangers(document, name, warn)
    _check_entities(document.get("entities"), name)
    try:
        problem = msgspec.convert(document, Problem)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at ")
        raise BadInput(f"{name}: {path.strip('`') or '$'}", sentence, f"{FORMAT} as documented") from None
    if problem.policy not in ALLOCATION_POLICIES:
        raise BadInput(f"{name}: $.policy", repr(problem.policy), f"one of {', '.join(ALLOCATION_POLICIES)}")
    return problem


def refused(error: InvalidProblem, name: str) -> BadInput:
    """A contradiction that the policy has found, as an error of the file."""
    return BadInput(f"{name}: {error.path}", error.seen, error.expected)


def _warn_of_strangers(document: dict[str, Any], name: str, warn: Warn) -> None:
    """Fields that the format does not know are ignored, not in silence."""
    known = ("format", *Problem.__struct_fields__)
    places: list[tuple[str, Any, tuple[str, ...]]] = [("$", document, known)]
    places += [(f"$.{field}", document.get(field), cls.__struct_fields__) for field, cls in FIELDS.items()]
    for field, cls in LISTS.items():
        items = document.get(field)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            places.append((f"$.{field}[{index}]", item, cls.__struct_fields__))
    for field, cls in TABLES.items():
        table = document.get(field)
        extra = ("parent",) if field == "entities" else ()
        for key, item in table.items() if isinstance(table, dict) else ():
            places.append((f"$.{field}.{key}", item, (*cls.__struct_fields__, *extra)))
    for path, item, fields in places:
        for field in item if isinstance(item, dict) else ():
            if field not in fields:
                warn(f"{name}: {path}.{field} is not part of {FORMAT} and is ignored")


def _check_entities(table: Any, name: str) -> None:
    """Entities may name a parent in other tools; here there is one level, and a cycle is never right."""
    if not isinstance(table, dict):
        return
    parents = {key: item.get("parent") for key, item in table.items() if isinstance(item, dict)}
    for entity, parent in parents.items():
        path = f"{name}: $.entities.{entity}.parent"
        if parent is None:
            continue
        if parent not in parents:
            raise BadInput(path, repr(parent), f"one of {', '.join(table)}")
        seen = [entity]
        while parent is not None and parent not in seen:
            seen.append(parent)
            parent = parents.get(parent)
        if parent is not None:
            raise BadInput(path, f"a cycle ({' -> '.join([*seen, parent])})", "entities without cycles")
        raise BadInput(path, repr(seen[1]), "no parent: the hierarchy has two levels, entities and their jobs")


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
