"""What a user asks for to find good hyper-parameters: the specification of a sweep."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.jobs import JobSpec

PARAMETERS_VARIABLE = "SANJAYA_TRIAL_PARAMS"
"""Environment variable of a trial's processes: its parameters, as JSON."""

Value = bool | int | float | str
"""Of one hyper-parameter."""


class Scale(StrEnum):
    """What the values of a parameter are."""

    FLOAT = "float"
    INT = "int"
    CHOICE = "choice"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """The values that one hyper-parameter may have."""

    scale: Scale
    low: float = 0.0
    high: float = 0.0
    """`low` and `high` are possible values themselves. Unused for a choice."""
    log: bool = False
    """Whether values are drawn evenly by their logarithm."""
    step: float | None = None
    """Distance between neighbouring values, counted from `low`; None: any float, every integer."""
    choices: list[Value] = []


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

    metric: str
    """Name under which the trials report it."""
    maximize: bool = True
    target: float | None = None
    """A trial that reports at least (or at most) this ends the sweep."""


class Sampler(StrEnum):
    """What proposes the parameters of the next trial."""

    RANDOM = "random"
    TPE = "tpe"


class Pruner(StrEnum):
    """What says that a trial is hopeless."""

    NONE = "none"
    MEDIAN = "median"
    """It is worse than the median of the others at the same step."""
    ASHA = "asha"
    """Asynchronous successive halving."""
    HYPERBAND = "hyperband"
    CURVE = "curve"
    """Its learning curve is not going to reach the target, or the best value so far (Gandiva, section 6.2)."""


class SweepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Many trials of one script (the paper's multi-job), as their user described them. Valid by construction."""

    name: str
    trial: JobSpec
    """Every trial's job; `{name}` in a word of its command stands for the value of that parameter."""
    space: dict[str, Parameter]
    objective: Objective
    trials: int
    """How many at most."""
    at_once: int | None = None
    """How many may be under way together; None: all of them, so that each shows early what it promises."""
    sampler: Sampler = Sampler.TPE
    pruner: Pruner = Pruner.CURVE
    warmup_reports: int = 3
    """Reports before a trial is judged."""
    give_up_below: float | None = None
    """What `Pruner.CURVE` wants a curve to promise; None: the target, or where there is none the best value so far."""
    last_step: float | None = None
    """The step of a trial's last report, where the user knows it: curves are continued up to it."""
    favourites: int = 0
    """Most trials at once that go before the others, because they promise most (0: none)."""
    favourite_priority: int = 1
    """Added to the priority of a favourite."""
    seed: int = 0
