"""Reading experiments (`experiment/1`, YAML): every combination of policy, load, seed and options is one run.

    format: experiment/1
    name: las-against-load
    workload: {kind: continuous-single, jobs: 1200}     # or  trace: jobs.csv
    cluster: v100=8,p100=8,k80=8
    measure: [400, 800]
    policies:
      - max_min_fairness
      - {policy: max_min_fairness, heterogeneity_agnostic: true}
    jobs_per_hour: [0.4, 0.8, 1.2]                      # or  loads: [0.5, 0.9], parts of what can be sustained
    seeds: [0, 1, 2]
    vary: {round_s: [360, 1440]}

What is not listed under `policies`, `jobs_per_hour`, `loads`, `seeds` and `vary` holds for every run. Paths are
relative to the file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import yaml

from libs.contracts.bad_input import BadInput
from libs.kernel.yaml_text import read_yaml
from libs.policies.table import POLICIES
from libs.sim.clusters import parse_cluster
from libs.sim.inputs import Warn, finite, open_input, warn_on_stderr
from libs.studies.experiments.runs import RunSpec
from libs.studies.generators.capacity import sustainable_jobs_per_hour
from libs.studies.generators.gavel import GavelWorkload

FORMAT = "experiment/1"
_AXES = ("policies", "jobs_per_hour", "loads", "seeds", "vary")
_COMMON = tuple(each.name for each in fields(RunSpec) if each.name not in ("policy", "seed"))
_WORKLOAD = tuple(each.name for each in fields(GavelWorkload))
_CHOICES = ("policy", *(name for name in _COMMON if name not in ("workload", "trace")))


@dataclass(frozen=True)
class Grid:
    """An experiment: its runs in the order of the file's axes."""

    name: str
    runs: tuple[RunSpec, ...]


def read_grid(source: str | Path, warn: Warn = warn_on_stderr) -> Grid:
    """Read a file (or standard input, `-`).

    Raises:
        BadInput: with file, path, the value seen and what was expected.
    """
    with open_input(source) as (file, name):
        document = read_yaml(file.read(), name, yaml.safe_load, f"YAML of an {FORMAT} document")
    base = Path() if str(source) == "-" else Path(source).parent
    return parse_grid(document, name, base, warn)


def parse_grid(document: Any, name: str, base: Path | None = None, warn: Warn = warn_on_stderr) -> Grid:
    """As `read_grid`, from decoded YAML; `base` is the folder that relative paths begin at."""
    if not isinstance(document, dict):
        raise BadInput(f"{name}: $", f"{type(document).__name__}", "an object")
    if document.get("format") != FORMAT:
        raise BadInput(f"{name}: $.format", repr(document.get("format")), repr(FORMAT))
    for key in document:
        if key not in ("format", "name", *_AXES, *_COMMON):
            warn(f"{name}: $.{key} is not part of {FORMAT} and is ignored")
    workload = document.get("workload")
    for key in workload if isinstance(workload, dict) else ():
        if key not in _WORKLOAD:
            warn(f"{name}: $.workload.{key} is not part of {FORMAT} and is ignored")
    common = {key: document[key] for key in _COMMON if key in document}
    for key in ("trace", "throughputs"):
        if isinstance(common.get(key), str):
            common[key] = str((base or Path()) / common[key])
    choices = [_choice(each, f"{name}: $.policies[{i}]") for i, each in enumerate(_listed(document, "policies", name))]
    seeds = _listed(document, "seeds", name) if "seeds" in document else [0]
    variations = _variations(document.get("vary", {}), f"{name}: $.vary")
    runs = [
        spec
        for varied, choice in product(variations, choices)
        for at_load in _at_loads(_spec({**common, **varied, **choice}, name), document, name)
        for spec in _seeded(at_load, seeds, name)
    ]
    return Grid(str(document.get("name") or Path(name).stem), tuple({spec.cell_id: spec for spec in runs}.values()))


def _listed(document: dict[str, Any], key: str, name: str) -> list[Any]:
    value = document.get(key)
    if not isinstance(value, list) or not value:
        raise BadInput(f"{name}: $.{key}", "nothing" if value is None else repr(value)[:80], "a list, not empty")
    return value


def _choice(each: Any, where: str) -> dict[str, Any]:
    """A policy by name, or with options of its own."""
    choice = {"policy": each} if isinstance(each, str) else each
    seen = choice.get("policy") if isinstance(choice, dict) else each
    if not isinstance(choice, dict) or not isinstance(seen, str) or seen not in POLICIES:
        raise BadInput(where, repr(seen), f"one of {', '.join(POLICIES)}")
    _known(choice, _CHOICES, where)
    return choice


def _variations(axes: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(axes, dict):
        raise BadInput(where, repr(axes)[:80], "an object of lists")
    _known(axes, _CHOICES, where)
    for option, values in axes.items():
        if not isinstance(values, list) or not values:
            raise BadInput(f"{where}.{option}", repr(values)[:80], "a list, not empty")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _known(given: dict[str, Any], options: tuple[str, ...], where: str) -> None:
    for option in given:
        if option not in options:
            raise BadInput(where, f"unknown option {option!r}", f"one of {', '.join(options)}")


def _spec(values: dict[str, Any], name: str) -> RunSpec:
    try:
        spec = msgspec.convert(values, RunSpec, dec_hook=_workload)
    except msgspec.ValidationError as error:
        where, what = _place_and_fault(error)
        raise BadInput(f"{name}: {where}", what, "a value that fits") from None
    except BadInput as error:
        raise BadInput(f"{name}: $.workload.{error.where}", error.what, error.expected) from None
    parse_cluster(spec.cluster, spec.gpus_per_server)
    return spec


def _workload(kind: type, value: Any) -> GavelWorkload:
    """The workload that a file describes."""
    try:
        return msgspec.convert(value, GavelWorkload)
    except msgspec.ValidationError as error:
        where, what = _place_and_fault(error)
        raise BadInput(where.removeprefix("$").removeprefix("."), what, "a value that fits") from None


def _place_and_fault(error: msgspec.ValidationError) -> tuple[str, str]:
    """Of a value that does not fit: its JSON path, and what is wrong with it."""
    what, _, where = str(error).partition(" - at ")
    return where.strip("`") or "$", what


def _at_loads(spec: RunSpec, document: dict[str, Any], name: str) -> list[RunSpec]:
    """The run at every load of the file, or as it is."""
    axes = [axis for axis in ("jobs_per_hour", "loads") if axis in document]
    if not axes:
        return [spec]
    if len(axes) > 1:
        raise BadInput(f"{name}: $.loads", "given beside jobs_per_hour", "one of them")
    workload, (axis,) = spec.workload, axes
    if not isinstance(workload, GavelWorkload) or not workload.arrives:
        raise BadInput(f"{name}: $.{axis}", "given", "nothing, where the arrivals are known")
    given = _listed(document, axis, name)
    for value in given:
        if (finite(value) or 0.0) <= 0:
            raise BadInput(f"{name}: $.{axis}", repr(value), "numbers above 0")
    unit = sustainable_jobs_per_hour(workload, spec.rates(), spec.gpus) if axis == "loads" else 1.0
    return [replace(spec, workload=replace(workload, jobs_per_hour=value * unit)) for value in given]


def _seeded(spec: RunSpec, seeds: list[Any], name: str) -> list[RunSpec]:
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise BadInput(f"{name}: $.seeds", repr(seed), "whole numbers")
    return [replace(spec, seed=seed) for seed in seeds]
