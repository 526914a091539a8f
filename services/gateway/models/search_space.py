"""The values that hyper-parameters may have, as a user writes them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    Tag,
    model_validator,
)

from libs.contracts.searching import Parameter, Scale, Value
from services.gateway.models.job_request import Strict

MOST_PARAMETERS = 64
LARGEST = 1e15
_LARGEST_INT = 2**53
"""Beyond it floats, which carry ranges on the log, skip integers."""
_LONGEST_TEXT = 256
_SLACK = 1e-9
"""Of a step: 0.7 is seven steps of 0.1 only nearly."""


def _choice(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, str) and len(value) <= _LONGEST_TEXT):
        return value
    if isinstance(value, int | float) and abs(value) <= LARGEST:
        return value
    raise ValueError(f"expected true or false, a number up to {LARGEST:g}, or up to {_LONGEST_TEXT} characters")


def as_float(value: object) -> object:
    """An integer that JSON has for a float; everything else, for the validator to refuse, as it is."""
    return float(value) if type(value) is int and abs(value) <= _LARGEST_INT else value


Real = Annotated[
    StrictFloat,
    Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False),
    BeforeValidator(as_float, json_schema_input_type=Annotated[float, Field(ge=-LARGEST, le=LARGEST)]),
]
Whole = Annotated[StrictInt, Field(ge=-_LARGEST_INT, le=_LARGEST_INT)]
OneValue = Annotated[
    Value,
    PlainValidator(_choice, json_schema_input_type=bool | Real | Annotated[str, Field(max_length=_LONGEST_TEXT)]),
]


class FloatRange(Strict):
    """Any number from `low` to `high`, or with a step: `low`, `low + step`, …, `high`."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"type": "float", "low": 1e-4, "high": 1.0, "log": True}]}
    )

    type: Literal["float"]
    low: Real
    high: Real
    log: StrictBool = Field(False, description="Draw evenly by the logarithm; not with a step.")
    step: Real | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        _check_range(self.low, self.high, self.step)
        if self.log and self.low <= 0:
            raise ValueError(f"log is for values above 0, and low is {self.low:g}")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other")
        return self

    def parameter(self) -> Parameter:
        """As it goes on the log."""
        return Parameter(scale=Scale.FLOAT, low=self.low, high=self.high, log=self.log, step=self.step)


class IntRange(Strict):
    """Any integer from `low` to `high`, or with a step: `low`, `low + step`, …, `high`."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"type": "int", "low": 16, "high": 128, "step": 16}]}
    )

    type: Literal["int"]
    low: Whole
    high: Whole
    log: StrictBool = Field(False, description="Draw evenly by the logarithm; not with a step.")
    step: Whole | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        _check_range(self.low, self.high, self.step)
        if self.log and self.low < 1:
            raise ValueError(f"log is for integers from 1 on, and low is {self.low}")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other")
        return self

    def parameter(self) -> Parameter:
        """As it goes on the log."""
        step = None if self.step is None else float(self.step)
        return Parameter(scale=Scale.INT, low=float(self.low), high=float(self.high), log=self.log, step=step)


class Choice(Strict):
    """One of these values."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"type": "choice", "choices": ["sgd", "adam"]}]}
    )

    type: Literal["choice"]
    choices: Annotated[
        list[OneValue], Field(min_length=1, max_length=1000, description="Texts, numbers, true or false; each once.")
    ]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: set[tuple[bool, Value]] = set()
        for choice in self.choices:
            known = (isinstance(choice, bool), choice)  # true is no 1
            if known in seen:
                raise ValueError(f"{choice!r} is there twice")
            seen.add(known)
        return self

    def parameter(self) -> Parameter:
        """As it goes on the log."""
        return Parameter(scale=Scale.CHOICE, choices=list(self.choices))


def _type_of(value: object) -> object:
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)


Range = Annotated[
    Annotated[FloatRange, Tag("float")] | Annotated[IntRange, Tag("int")] | Annotated[Choice, Tag("choice")],
    Discriminator(
        _type_of,
        custom_error_type="parameter",
        custom_error_message='expected {"type": "float" or "int", "low": …, "high": …} or '
        '{"type": "choice", "choices": […]}',
    ),
]
Space = Annotated[
    dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")], Range],
    Field(min_length=1, max_length=MOST_PARAMETERS, description="By the parameters' names."),
]


def _check_range(low: float, high: float, step: float | None) -> None:
    """Raises ValueError when nothing can be drawn from it, or `high` is never drawn."""
    if low >= high:
        raise ValueError(f"low ({low:g}) must be below high ({high:g})")
    if step is None:
        return
    if step <= 0:
        raise ValueError(f"step ({step:g}) must be above 0")
    steps = (high - low) / step
    if abs(steps - round(steps)) > _SLACK * max(1.0, steps):
        nearest = low + int(steps) * step
        raise ValueError(f"high ({high:g}) is no whole number of steps above low; {nearest:g} would be")
