"""What may be searched for, and how everything else is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from starlette.requests import Request

from libs.contracts.searching import Objective, Parameter, Pruner, Sampler, Scale, SweepSpec
from services.gateway.api.errors import from_validation
from services.gateway.models.sweep_request import EXAMPLE, MOST_TRIAL_BYTES, CancelSweepRequest, SweepRequest

FLOAT = {"type": "float", "low": 0.5, "high": 1}
INT = {"type": "int", "low": 1, "high": 9}


def changed(**fields: Any) -> dict[str, Any]:
    """The smallest request, with other fields; None: without this one."""
    whole = {
        "trial": {"command": ["python", "train.py"]},
        "space": {"lr": FLOAT},
        "objective": {"metric": "loss", "direction": "minimize"},
        "trials": 10,
    } | fields
    return {name: value for name, value in whole.items() if value is not None}


def spec(**fields: Any) -> SweepSpec:
    return SweepRequest.model_validate(changed(**fields)).spec("ada")


def errors_of(body: Any) -> dict[str, str]:
    """{pointer: message} of what the gateway says of a body."""
    with pytest.raises(ValidationError) as caught:
        SweepRequest.model_validate(body)
    found = [error | {"loc": ("body", *error["loc"])} for error in caught.value.errors()]
    problem = from_validation(Request({"type": "http"}), found, body)
    return {error["pointer"]: error["message"] for error in problem.errors}


def test_the_example_is_accepted_as_it_is_meant() -> None:
    found = SweepRequest.model_validate(EXAMPLE).spec("ada")
    assert (found.name, found.trials, found.at_once, found.seed) == ("digits", 32, None, 0)
    assert found.trial.command == ["/bin/sh", "-c", "python train.py --epochs 12 --lr {lr}"]
    assert (found.trial.user, found.trial.gpus.count) == ("ada", 1)
    assert found.space == {
        "lr": Parameter(scale=Scale.FLOAT, low=1e-4, high=1.0, log=True),
        "hidden": Parameter(scale=Scale.INT, low=16.0, high=128.0, step=16.0),
        "optimizer": Parameter(scale=Scale.CHOICE, choices=["sgd", "adam"]),
    }
    assert found.objective == Objective(metric="accuracy", maximize=True, target=0.95)
    assert (found.sampler, found.pruner, found.last_step, found.favourites) == (Sampler.TPE, Pruner.CURVE, 12.0, 2)


def test_it_reads_the_same_when_it_comes_back_from_the_log() -> None:
    found = SweepRequest.model_validate(EXAMPLE).spec("ada")
    encoded = msgspec.json.encode(found)
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=SweepSpec)) == encoded


def test_what_is_not_said_has_a_default() -> None:
    found = spec()
    assert (found.name, found.objective.maximize, found.objective.target) == ("train", False, None)
    assert (found.pruner, found.warmup_reports, found.favourites, found.favourite_priority) == (Pruner.MEDIAN, 3, 0, 1)
    assert spec(last_step=5).pruner is Pruner.CURVE
    assert spec(last_step=5, pruner="none").pruner is Pruner.NONE
    assert spec(trial={"command": ["x"], "name": "of-the-trial"}).name == "of-the-trial"


def test_equal_requests_are_equal_in_whatever_form() -> None:
    def canonical(**fields: Any) -> bytes:
        return SweepRequest.model_validate(changed(**fields)).canonical()

    assert canonical(space={"a": INT, "b": FLOAT}) == canonical(space={"b": FLOAT, "a": INT})
    assert canonical(trial={"command": "x"}) == canonical(trial={"command": ["/bin/sh", "-c", "x"]})
    assert canonical(trials=3) != canonical(trials=4)


@pytest.mark.parametrize(
    "values",
    [
        {"type": "float", "low": -1, "high": 1},
        {"type": "float", "low": 0, "high": 0.7, "step": 0.1},
        {"type": "int", "low": 1, "high": 1024, "log": True},
        {"type": "int", "low": 16, "high": 128, "step": 16},
        {"type": "choice", "choices": ["one"]},
        {"type": "choice", "choices": [True, 1, "1", 1.5, False]},
    ],
)
def test_ranges_and_choices(values: dict[str, Any]) -> None:
    assert spec(space={"p": values}).space["p"].scale == values["type"]


FORM = "expected {"
WRONG_VALUES: list[tuple[str, Any, str, str]] = [
    ("of no type", {"low": 1, "high": 2}, "", FORM),
    ("of an unknown type", {"type": "real", "low": 1, "high": 2}, "", FORM),
    ("no object", 3, "", FORM),
    ("without a bound", {"type": "float", "low": 1}, "/high", "field required"),
    ("another form's member", {"type": "choice", "choices": [1], "low": 1}, "/low", "unknown member"),
    ("a bound as text", FLOAT | {"low": "1e-4"}, "/low", "input should be a valid number"),
    ("true as bound", FLOAT | {"low": True}, "/low", "input should be a valid number"),
    ("no number", FLOAT | {"high": float("nan")}, "/high", "input should be"),
    ("out of all bounds", FLOAT | {"high": 1e300}, "/high", "input should be less than or equal"),
    ("an endless integer", FLOAT | {"high": 10**400}, "/high", "input should be a valid number"),
    ("half an integer", INT | {"high": 2.5}, "/high", "input should be a valid integer"),
    ("an integer that floats skip", INT | {"high": 2**53 + 1}, "/high", "input should be less than or equal"),
    ("upside down", FLOAT | {"low": 2}, "", "low (2) must be below high (1)"),
    ("of one value", INT | {"low": 9}, "", "low (9) must be below high (9)"),
    ("the logarithm of nothing", FLOAT | {"low": 0, "log": True}, "", "log is for values above 0, and low is 0"),
    ("an integer's logarithm", INT | {"low": 0, "log": True}, "", "log is for integers from 1 on, and low is 0"),
    ("log as text", FLOAT | {"log": "yes"}, "/log", "input should be a valid boolean"),
    ("log with steps", FLOAT | {"log": True, "step": 0.1}, "", "log and step exclude each other"),
    ("log with whole steps", INT | {"log": True, "step": 1}, "", "log and step exclude each other"),
    ("no step", FLOAT | {"step": 0}, "", "step (0) must be above 0"),
    ("a step back", INT | {"step": -2}, "", "step (-2) must be above 0"),
    ("steps that miss", INT | {"step": 5}, "", "high (9) is no whole number of steps above low; 6 would be"),
    ("a step too far", FLOAT | {"step": 2}, "", "high (1) is no whole number of steps above low; 0.5 would be"),
    ("nothing to choose", {"type": "choice", "choices": []}, "/choices", "list should have at least 1 item"),
    ("too much to choose", {"type": "choice", "choices": list(range(1001))}, "/choices", "list should have at most"),
    ("a choice twice", {"type": "choice", "choices": ["a", 1, 1.0]}, "", "1.0 is there twice"),
    ("a list to choose", {"type": "choice", "choices": ["a", [1]]}, "/choices/1", "expected true or false, a number"),
    ("a long text to choose", {"type": "choice", "choices": ["a" * 257]}, "/choices/0", "expected true or false"),
]


@pytest.mark.parametrize(
    ("values", "pointer", "message"), [case[1:] for case in WRONG_VALUES], ids=[case[0] for case in WRONG_VALUES]
)
def test_values_that_cannot_be_searched_are_refused_at_their_place(values: Any, pointer: str, message: str) -> None:
    found = errors_of(changed(space={"fine": INT, "p": values}))
    assert list(found) == [f"/space/p{pointer}"]
    assert found[f"/space/p{pointer}"].startswith(message)


def parameters(number: int) -> dict[str, Any]:
    return {f"p{place}": INT for place in range(number)}


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("no trial", {"trial": None}, "/trial", "field required"),
    ("a trial that does nothing", {"trial": {"gpus": 1}}, "/trial/command", "field required"),
    (
        "a trial's label",
        {"trial": {"command": ["x"], "labels": {"trial": "7"}}},
        "/trial",
        "the sweep gives its trials",
    ),
    ("no space", {"space": {}}, "/space", "dictionary should have at least 1 item"),
    ("a space of 65 dimensions", {"space": parameters(65)}, "/space", "dictionary should have at most 64 items"),
    ("a name of two words", {"space": {"learning rate": FLOAT}}, "/space/learning rate", "string should match"),
    ("a name that begins with a digit", {"space": {"2nd": FLOAT}}, "/space/2nd", "string should match"),
    ("no objective", {"objective": None}, "/objective", "field required"),
    ("no direction", {"objective": {"metric": "m"}}, "/objective/direction", "field required"),
    ("up", {"objective": {"metric": "m", "direction": "up"}}, "/objective/direction", "input should be 'maximize'"),
    ("no metric", {"objective": {"metric": "", "direction": "minimize"}}, "/objective/metric", "string should have"),
    (
        "a metric of two lines",
        {"objective": {"metric": "a\nb", "direction": "minimize"}},
        "/objective/metric",
        "expected",
    ),
    ("a target as text", {"objective": EXAMPLE["objective"] | {"target": "0.9"}}, "/objective/target", "input should"),
    ("no number of trials", {"trials": None}, "/trials", "field required"),
    ("no trials", {"trials": 0}, "/trials", "input should be greater"),
    ("10,001 trials", {"trials": 10_001}, "/trials", "input should be less"),
    ("none at once", {"at_once": 0}, "/at_once", "input should be greater"),
    ("another sampler", {"sampler": "grid"}, "/sampler", "input should be 'random' or 'tpe'"),
    ("another pruner", {"pruner": "axe"}, "/pruner", "input should be 'none'"),
    ("curves without an end", {"pruner": "curve"}, "/pruner", "curve needs last_step"),
    ("halving without an end", {"pruner": "asha"}, "/pruner", "asha needs last_step"),
    ("hyperband without an end", {"pruner": "hyperband"}, "/pruner", "hyperband needs last_step"),
    ("a last step before the first", {"last_step": 0}, "/last_step", "input should be greater"),
    ("judged unheard", {"warmup_reports": 0}, "/warmup_reports", "input should be greater"),
    ("more favourites than trials", {"favourites": 11, "last_step": 5}, "/favourites", "more than the 10 trials"),
    ("favourites of unknown promise", {"favourites": 1}, "/favourites", "favourites are chosen by what"),
    ("no preference", {"favourite_priority": 0}, "/favourite_priority", "input should be greater"),
    ("half a seed", {"seed": 0.5}, "/seed", "input should be a valid integer"),
    ("something else", {"epochs": 12}, "/epochs", "unknown member"),
]


@pytest.mark.parametrize(
    ("fields", "pointer", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_what_makes_no_sense_is_refused_at_its_place(fields: dict[str, Any], pointer: str, message: str) -> None:
    found = errors_of(changed(**fields))
    assert list(found) == [pointer]
    assert found[pointer].startswith(message)


def test_several_errors_are_told_at_once() -> None:
    found = errors_of(changed(trials=0, space={"a": FLOAT | {"low": "x"}, "b": {}}, objective=None))
    assert set(found) == {"/trials", "/space/a/low", "/space/b", "/objective"}


def test_a_parameter_may_be_called_like_a_form() -> None:
    assert set(errors_of(changed(space={"float": FLOAT | {"low": "x"}}))) == {"/space/float/low"}


def test_trials_that_would_not_fit_on_the_log_are_refused() -> None:
    many = {"command": ["{p}" * 1000]}
    assert spec(trial=many, space={"p": {"type": "choice", "choices": ["a" * 50]}}).trials == 10
    found = errors_of(changed(trial=many, space={"p": {"type": "choice", "choices": ["a", "b" * 100]}}))
    assert list(found) == ["/space"] and f"at most {MOST_TRIAL_BYTES}" in found["/space"]


def test_why_a_sweep_is_cancelled_may_be_said() -> None:
    assert CancelSweepRequest.model_validate({}).note == ""
    with pytest.raises(ValidationError):
        CancelSweepRequest.model_validate({"grace_s": 10})
