"""Reading throughput tables (`throughputs/1`): steps per second of whole jobs, per GPU type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.bad_input import BadInput
from libs.sim.documents import Fields, Unknown, read_json, seen, text_at
from libs.sim.inputs import Warn, warn_on_stderr

Config = tuple[str, int | None, int]
"""Model, batch size (None: the model has none) and GPUs."""

FORMAT = "throughputs/1"
_KNOWN = ("format", "gpu_types", "isolated", "colocated")
_SOURCE_NOTES = ("unit", "source")
"""Fields that published tables carry to say where they come from."""
LEAST_RATE = 1e-9
"""Steps per second; a slower job does not run."""
_CONFIG = ("model", "batch_size", "gpus")
_RATE = "steps per second, 0 or more"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two jobs that share GPUs: the rate of each; 0: they cannot be packed."""

    a: Config
    b: Config
    gpu_type: str
    consolidated: bool
    a_steps_per_s: float
    b_steps_per_s: float


class Throughputs:
    """A throughput table. A pair or a rate that is missing is unknown."""

    def __init__(
        self, gpu_types: list[str], isolated: Mapping[tuple[Config, bool], Mapping[str, float]], pairs: list[Pair]
    ) -> None:
        self.gpu_types = gpu_types
        self.isolated = isolated
        self.pairs = pairs
        self._together: dict[tuple[Config, Config, str], float] = {}
        for pair in pairs:
            if pair.consolidated:
                self._together[pair.a, pair.b, pair.gpu_type] = pair.a_steps_per_s
                self._together[pair.b, pair.a, pair.gpu_type] = pair.b_steps_per_s

    def rate(self, config: Config, gpu_type: str, consolidated: bool) -> float | None:
        """Steps per second of the whole job alone; 0: it cannot run there; None: nothing is known of `config`.

        Where the table has only one of consolidated and spread, it stands for both.
        """
        row = self.isolated.get((config, consolidated))
        if row is None:
            row = self.isolated.get((config, not consolidated))
        return None if row is None else row.get(gpu_type, 0.0)

    def packed_rate(self, config: Config, partner: Config, gpu_type: str) -> float | None:
        """Steps per second of `config` while it shares its GPUs with `partner`; None: unknown."""
        return self._together.get((config, partner, gpu_type))

    def knows(self, config: Config) -> bool:
        """Whether there is any row for the configuration."""
        return (config, True) in self.isolated or (config, False) in self.isolated


NO_THROUGHPUTS = Throughputs([], {}, [])


def read_throughputs(source: str | Path, warn: Warn = warn_on_stderr) -> Throughputs:
    """Read a file (or standard input, `-`).

    Raises:
        BadInput: with file, JSON path, the value seen and what was expected.
    """
    return parse_throughputs(*read_json(source, FORMAT), warn)


def parse_throughputs(document: Any, name: str, warn: Warn = warn_on_stderr) -> Throughputs:
    """As `read_throughputs`, from decoded JSON; `name` is what messages call the file."""
    top = Fields(document, name)
    top.must_be("format", FORMAT)
    unknown = Unknown(name, FORMAT)
    top.known(_KNOWN + _SOURCE_NOTES, unknown, "table")
    types: list[str] = []
    for index, item in enumerate(top.array("gpu_types")):
        types.append(text_at(item, f"{name}: $.gpu_types[{index}]"))
        if types.count(item) > 1:
            raise BadInput(f"{name}: $.gpu_types[{index}]", f"{item!r} a second time", "each type once")
    isolated: dict[tuple[Config, bool], dict[str, float]] = {}
    for row in top.each("isolated"):
        row.known((*_CONFIG, "consolidated", "steps_per_s"), unknown, "row")
        key = (_config(row), row.flag("consolidated"))
        if key in isolated:
            raise BadInput(f"{name}: {row.path}", "a second row for the same configuration", "one per configuration")
        isolated[key] = _rates(row.inside("steps_per_s"), types)
    pairs = [_pair(row, types, unknown) for row in top.each("colocated", [])]
    unknown.tell(warn)
    return Throughputs(types, isolated, pairs)


def _pair(row: Fields, types: list[str], unknown: Unknown) -> Pair:
    row.known(Pair.__struct_fields__, unknown, "pair")
    a, b = row.inside("a"), row.inside("b")
    for config in (a, b):
        config.known(_CONFIG, unknown, "configuration")
    pair = Pair(
        a=_config(a),
        b=_config(b),
        gpu_type=_one_of(row.given.get("gpu_type"), types, row.where("gpu_type")),
        consolidated=row.flag("consolidated"),
        a_steps_per_s=row.number("a_steps_per_s", _RATE),
        b_steps_per_s=row.number("b_steps_per_s", _RATE),
    )
    if pair.a[2] != pair.b[2]:
        raise b.wrong("gpus", f"{pair.a[2]}, as many as in {a.path}")
    return pair


def _config(row: Fields) -> Config:
    return (row.text("model"), row.whole("batch_size", None), row.whole("gpus"))


def _rates(rates: Fields, types: list[str]) -> dict[str, float]:
    where = f"{rates.name}: {rates.path}"
    found = {_one_of(gpu_type, types, where): rates.number(gpu_type, _RATE) for gpu_type in rates.given}
    for gpu_type, rate in found.items():
        if 0 < rate < LEAST_RATE:
            raise rates.wrong(gpu_type, f"0, or at least {LEAST_RATE:g} steps per second")
    return found


def _one_of(value: Any, types: list[str], where: str) -> str:
    if value not in types:
        raise BadInput(where, seen(value), f"one of $.gpu_types ({', '.join(types)})")
    return str(value)
