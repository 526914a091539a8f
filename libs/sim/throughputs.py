"""Reading throughput tables (`throughputs/1`): steps per second of whole jobs, per GPU type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.bad_input import BadInput
from libs.sim.inputs import Warn, finite, open_input, warn_on_stderr

Config = tuple[str, int | None, int]
"""Model, batch size (None: the model has none) and GPUs."""

FORMAT = "throughputs/1"
_KNOWN = ("format", "gpu_types", "isolated", "colocated")
_SOURCE_NOTES = ("unit", "source")
"""Fields that published tables carry to say where they come from."""


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
    with open_input(source) as (file, name):
        text = file.read()
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(name, f"no JSON: {error}", f"a {FORMAT} document") from None
    return parse_throughputs(document, name, warn)


def parse_throughputs(document: Any, name: str, warn: Warn = warn_on_stderr) -> Throughputs:
    """As `read_throughputs`, from decoded JSON; `name` is what messages call the file."""
    top = _object(document, f"{name}: $")
    if top.get("format") != FORMAT:
        raise BadInput(f"{name}: $.format", repr(top.get("format")), repr(FORMAT))
    for field in top:
        if field not in _KNOWN + _SOURCE_NOTES:
            warn(f"{name}: $.{field} is not part of {FORMAT} and is ignored")
    types = [_text(x, f"{name}: $.gpu_types[{i}]") for i, x in enumerate(_array(top, "gpu_types", name))]
    isolated: dict[tuple[Config, bool], dict[str, float]] = {}
    for i, row in enumerate(_array(top, "isolated", name)):
        where = f"{name}: $.isolated[{i}]"
        key = (_config(row, where), _flag(row, where))
        if key in isolated:
            raise BadInput(where, "a second row for the same configuration", "one row per configuration")
        isolated[key] = _rates(row, types, where)
    pairs = [_pair(row, types, f"{name}: $.colocated[{i}]") for i, row in enumerate(_array(top, "colocated", name))]
    return Throughputs(types, isolated, pairs)


def _pair(row: Any, types: list[str], where: str) -> Pair:
    fields = _object(row, where)
    return Pair(
        a=_config(fields.get("a"), f"{where}.a"),
        b=_config(fields.get("b"), f"{where}.b"),
        gpu_type=_one_of(fields.get("gpu_type"), types, f"{where}.gpu_type"),
        consolidated=_flag(fields, where),
        a_steps_per_s=_rate(fields.get("a_steps_per_s"), f"{where}.a_steps_per_s"),
        b_steps_per_s=_rate(fields.get("b_steps_per_s"), f"{where}.b_steps_per_s"),
    )


def _config(row: Any, where: str) -> Config:
    fields = _object(row, where)
    return (
        _text(fields.get("model"), f"{where}.model"),
        None if fields.get("batch_size") is None else _count(fields["batch_size"], f"{where}.batch_size"),
        _count(fields.get("gpus"), f"{where}.gpus"),
    )


def _rates(row: Any, types: list[str], where: str) -> dict[str, float]:
    rates = _object(row.get("steps_per_s"), f"{where}.steps_per_s")
    return {
        _one_of(gpu_type, types, f"{where}.steps_per_s"): _rate(value, f"{where}.steps_per_s.{gpu_type}")
        for gpu_type, value in rates.items()
    }


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(where, _seen(value), "an object")
    return value


def _array(fields: dict[str, Any], field: str, name: str) -> list[Any]:
    value = fields.get(field, [] if field == "colocated" else None)
    if not isinstance(value, list):
        raise BadInput(f"{name}: $.{field}", _seen(value), "an array")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(where, _seen(value), "a text")
    return value


def _one_of(value: Any, types: list[str], where: str) -> str:
    if value not in types:
        raise BadInput(where, _seen(value), f"one of $.gpu_types ({', '.join(types)})")
    return str(value)


def _flag(fields: dict[str, Any], where: str) -> bool:
    value = fields.get("consolidated")
    if not isinstance(value, bool):
        raise BadInput(f"{where}.consolidated", _seen(value), "true or false")
    return value


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(where, _seen(value), "a whole number from 1 on")
    return value


def _rate(value: Any, where: str) -> float:
    number = finite(value)
    if number is None or number < 0:
        raise BadInput(where, _seen(value), "steps per second, 0 or more")
    return number


def _seen(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]
