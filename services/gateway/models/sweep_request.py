"""What a user may search for, and the specification that follows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, ConfigDict, Field, StrictFloat, StrictInt, ValidationInfo, field_validator

from libs.contracts.searching import Objective, Pruner, Sampler, SweepSpec
from services.gateway.models import forms
from services.gateway.models.job_request import JobRequest, Name, Strict
from services.gateway.models.search_space import LARGEST, Choice, Real, Space, as_float

MOST_TRIALS = 10_000
LONGEST_NUMBER = 24
"""Characters of any number that is drawn."""
MOST_TRIAL_BYTES = 65_536
GIVEN_LABELS = ("sweep", "trial")
CONTINUED = (Pruner.CURVE, Pruner.ASHA, Pruner.HYPERBAND)
"""Pruners that have to know how long a trial lasts."""

LastStep = Annotated[
    StrictFloat,
    Field(ge=1, le=LARGEST, allow_inf_nan=False),
    BeforeValidator(as_float, json_schema_input_type=Annotated[float, Field(ge=1, le=LARGEST)]),
]

EXAMPLE: dict[str, Any] = {
    "name": "digits",
    "trial": {"command": "python train.py --epochs 12 --lr {lr}", "gpus": 1},
    "space": {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "hidden": {"type": "int", "low": 16, "high": 128, "step": 16},
        "optimizer": {"type": "choice", "choices": ["sgd", "adam"]},
    },
    "objective": {"metric": "accuracy", "direction": "maximize", "target": 0.95},
    "trials": 32,
    "last_step": 12,
    "favourites": 2,
}


class ObjectiveRequest(Strict):
    """What is looked for."""

    metric: Annotated[str, Field(min_length=1, max_length=64, description="Its name, as the script reports it.")]
    direction: Literal["maximize", "minimize"]
    target: Real | None = Field(None, description="A trial that reports this, or better, ends the sweep.")

    @field_validator("metric")
    @classmethod
    def _can_be_reported(cls, metric: str) -> str:
        if not metric.isprintable():
            raise ValueError("expected printable characters: no script can report another name")
        return metric


class SweepRequest(Strict):
    """A search for good hyper-parameters: many trials of one script."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    name: Name | None = Field(None, description="Default: the name of the script.")
    trial: Annotated[
        JobRequest,
        Field(
            description="Every trial's job. `{name}` in a word of its command stands for the value of that parameter; "
            "all values are in the environment variable `SANJAYA_TRIAL_PARAMS`, as JSON."
        ),
    ]
    space: Space
    objective: ObjectiveRequest
    trials: Annotated[StrictInt, Field(ge=1, le=MOST_TRIALS, description="How many at most.")]
    at_once: Annotated[StrictInt, Field(ge=1, le=MOST_TRIALS)] | None = Field(
        None, description="How many may be under way together. Default: all, so that each shows early what it promises."
    )
    sampler: Sampler = Sampler.TPE
    last_step: LastStep | None = Field(
        None, description="The step of a trial's last report: learning curves are continued up to it."
    )
    pruner: Pruner | None = Field(
        None, description="The rule by which trials are given up. Default: `curve` with `last_step`, `median` without."
    )
    warmup_reports: Annotated[StrictInt, Field(ge=1, le=10_000)] = Field(
        3, description="Reports before a trial is judged."
    )
    favourites: Annotated[StrictInt, Field(ge=0, le=MOST_TRIALS)] = Field(
        0, description="Most trials at once that go before the others, because they promise most; needs `last_step`."
    )
    favourite_priority: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        1, description="Added to the priority of a favourite."
    )
    seed: Annotated[StrictInt, Field(ge=0, le=2**53)] = 0

    @field_validator("trial")
    @classmethod
    def _labels_are_free(cls, trial: JobRequest) -> JobRequest:
        taken = [label for label in GIVEN_LABELS if label in trial.labels]
        if taken:
            raise ValueError(f"the sweep gives its trials the label {taken[0]!r} itself")
        return trial

    @field_validator("space")
    @classmethod
    def _trials_are_small(cls, space: Space, info: ValidationInfo) -> Space:
        """Placeholders are replaced after this check, in a service that has to get the jobs onto the log."""
        size = _longest_trial(info.data["trial"], space) if "trial" in info.data else 0
        if size > MOST_TRIAL_BYTES:
            raise ValueError(f"a trial of the longest values has {size} bytes; at most {MOST_TRIAL_BYTES} are accepted")
        return space

    @field_validator("pruner")
    @classmethod
    def _pruner_knows_the_end(cls, pruner: Pruner | None, info: ValidationInfo) -> Pruner | None:
        if pruner in CONTINUED and info.data.get("last_step", 0) is None:
            raise ValueError(f"{pruner} needs last_step, the step of a trial's last report")
        return pruner

    @field_validator("favourites")
    @classmethod
    def _favourites_are_some(cls, favourites: int, info: ValidationInfo) -> int:
        if favourites > info.data.get("trials", favourites):
            raise ValueError(f"more than the {info.data['trials']} trials")
        if favourites and info.data.get("last_step", 0) is None:
            raise ValueError("favourites are chosen by what their curves come to: give last_step as well")
        return favourites

    def spec(self, user: str) -> SweepSpec:
        """The specification that goes on the log.

        Args:
            user: the sender, for a request that names no user.
        """
        return SweepSpec(
            name=self.name or self.trial.name or forms.job_name(self.trial.command),
            trial=self.trial.spec(user),
            space={name: values.parameter() for name, values in self.space.items()},
            objective=Objective(
                metric=self.objective.metric,
                maximize=self.objective.direction == "maximize",
                target=self.objective.target,
            ),
            trials=self.trials,
            at_once=self.at_once,
            sampler=self.sampler,
            pruner=self.pruner or (Pruner.MEDIAN if self.last_step is None else Pruner.CURVE),
            warmup_reports=self.warmup_reports,
            last_step=self.last_step,
            favourites=self.favourites,
            favourite_priority=self.favourite_priority,
            seed=self.seed,
        )


def _longest_trial(trial: JobRequest, space: Space) -> int:
    """Most bytes of a trial's job, as JSON."""
    longest = dict.fromkeys(space, LONGEST_NUMBER)
    for name, values in space.items():
        if isinstance(values, Choice):
            longest[name] = max(len(msgspec.json.encode(value)) for value in values.choices)
    in_command = sum(word.count(f"{{{name}}}") * size for word in trial.command for name, size in longest.items())
    in_environment = sum(len(name) + size for name, size in longest.items())
    return len(trial.canonical()) + in_command + in_environment


class CancelSweepRequest(Strict):
    """How a sweep is to be ended."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"note": "wrong data"}]})

    note: Annotated[str, Field(max_length=1000)] = ""
