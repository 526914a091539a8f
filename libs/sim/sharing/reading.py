"""Reading what models ask of GPUs (`job-models/1`, JSON; the room's README describes it)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from libs.contracts.bad_input import BadInput
from libs.sim.documents import Fields, Unknown, array_at, number_at, read_json
from libs.sim.inputs import Warn, warn_on_stderr
from libs.sim.sharing.demands import EVEN, GIB, Curve, Demand, JobModel, JobModels, Phase

FORMAT = "job-models/1"
_PHASE = ("work_s", "minibatch_s", "busy_ratio", "memory_gib", "weight", "sensitivity")
_RATIO = "a number from 0 to 1"


def read_job_models(source: str | Path, warn: Warn = warn_on_stderr) -> JobModels:
    """Read a file (or standard input, `-`).

    Raises:
        BadInput: with file, JSON path, the value seen and what was expected.
    """
    return parse_job_models(*read_json(source, FORMAT), warn)


def parse_job_models(document: Any, name: str, warn: Warn = warn_on_stderr) -> JobModels:
    """As `read_job_models`, from decoded JSON; `name` is what messages call the file."""
    top = Fields(document, name)
    top.must_be("format", FORMAT)
    unknown = Unknown(name, FORMAT)
    top.known(("format", "source", "models"), unknown, "table")
    models: dict[str, JobModel] = {}
    for row in top.each("models"):
        row.known(("model", "first", "cycle"), unknown, "model")
        model = row.text("model")
        if model in models:
            raise row.wrong("model", "each model once")
        cycle = tuple(_phase(each, unknown) for each in row.each("cycle"))
        if not cycle:
            raise row.wrong("cycle", "one phase at least")
        models[model] = JobModel(cycle=cycle, first=tuple(_phase(each, unknown) for each in row.each("first", [])))
    unknown.tell(warn)
    return JobModels(models)


def _phase(row: Fields, unknown: Unknown) -> Phase:
    row.known(_PHASE, unknown, "phase")
    busy = row.number("busy_ratio", _RATIO)
    if busy > 1:
        raise row.wrong("busy_ratio", _RATIO)
    demand = Demand(
        minibatch_s=row.number("minibatch_s", "seconds, above 0", above=True),
        busy_ratio=busy,
        memory_bytes=round(row.number("memory_gib", "GiB, 0 or more") * GIB),
        weight=row.number("weight", "a number above 0", 1.0, above=True),
        sensitivity=_curve(row),
    )
    return Phase(row.number("work_s", "seconds, above 0", 1.0, above=True), demand)


def _curve(row: Fields) -> Curve:
    """Pairs of a part of the memory and a speed; from 0 to 1, ascending in both."""
    pairs = row.array("sensitivity", [])
    if not pairs:
        return EVEN
    found = []
    for place, pair in enumerate(pairs):
        where = f"{row.where('sensitivity')}[{place}]"
        numbers = [number_at(each, where, _RATIO) for each in array_at(pair, where)]
        if len(numbers) != 2:
            raise BadInput(where, str(pair), "[part of its memory that is on the GPU, part of its speed]")
        found.append((numbers[0], numbers[1]))
    rises = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(found))
    if not rises or found[0][0] != 0.0 or found[0][1] <= 0.0 or found[-1] != (1.0, 1.0):
        raise row.wrong("sensitivity", "pairs that rise from [0, a speed above 0] to [1, 1]")
    return tuple(found)
