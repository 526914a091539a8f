"""The short forms that people write."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from services.gateway.models import forms
from services.gateway.models.job_request import EXAMPLE, JobRequest


def spec(**body: Any) -> Any:
    return JobRequest.model_validate({"command": ["x"], **body}).spec("alice")


@pytest.mark.parametrize(
    ("written", "count", "types"),
    [
        (4, 4, []),
        ("4", 4, []),
        ("v100", 1, ["v100"]),
        ("V100:2", 2, ["v100"]),
        ("v100,a100:8", 8, ["v100", "a100"]),
        ({"count": 3, "types": ["K80"]}, 3, ["k80"]),
        ({}, 1, []),
    ],
)
def test_gpus(written: Any, count: int, types: list[str]) -> None:
    gpus = spec(gpus=written).gpus
    assert (gpus.count, gpus.types) == (count, types)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("45m", 2700.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("2d", 172_800.0),
        ("4:00", 14_400.0),
        ("4:00:30", 14_430.0),
        ("2-12:00:00", 216_000.0),
    ],
)
def test_times(written: Any, seconds: float) -> None:
    assert spec(time_limit_s=written).time_limit_s == seconds


@pytest.mark.parametrize("written", ["", "h", "4:60", "1h 30m", "-5", "4:00:00:00", "٣"])
def test_times_of_no_sense(written: str) -> None:
    with pytest.raises(ValidationError):
        spec(time_limit_s=written)


def test_elastic() -> None:
    elastic = spec(gpus=4, elastic="2:8").elastic
    assert (elastic.min_gpus, elastic.max_gpus) == (2, 8)


def test_a_line_is_for_the_shell_and_a_list_is_run_as_it_is() -> None:
    assert spec(command="cd a && python b.py").command == ["/bin/sh", "-c", "cd a && python b.py"]
    assert spec(command=["echo", "a b", "$HOME"]).command == ["echo", "a b", "$HOME"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "nets/train.py", "--lr", "1"], "train"),
        (["/usr/bin/env"], "env"),
        (["/bin/sh", "-c", "cd /data && python3 fit.py"], "fit"),
        (["/bin/sh", "-c", "sleep 1"], "sleep"),
        (["/bin/sh", "-c", "$(weird) | thing"], "weird"),
        (["***"], "job"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_script(command: list[str], name: str) -> None:
    assert forms.job_name(command) == name


def test_the_same_request_in_another_order_is_the_same() -> None:
    one = JobRequest.model_validate({"command": "x", "gpus": "v100:2", "time_limit_s": "1h"})
    same = JobRequest.model_validate(
        {"time_limit_s": 3600, "gpus": {"types": ["v100"], "count": 2}, "command": ["/bin/sh", "-c", "x"]}
    )
    other = JobRequest.model_validate({"command": "x", "gpus": "v100:2", "time_limit_s": "2h"})
    assert one.canonical() == same.canonical() != other.canonical()


def test_the_example_is_valid_and_the_user_defaults_to_the_caller() -> None:
    example = JobRequest.model_validate(EXAMPLE)
    assert example.spec("alice").user == "alice"
    assert JobRequest.model_validate(EXAMPLE | {"user": "bob"}).spec("alice").user == "bob"


@pytest.mark.parametrize(
    ("body", "launcher"),
    [
        ({}, "ranks"),
        ({"command": ["torchrun", "train.py"]}, "command"),
        ({"command": "torchrun train.py"}, "command"),
        ({"command": ["torchrun", "train.py"], "launcher": "per-gpu"}, "ranks"),
        ({"launcher": "per-node"}, "command"),
        ({"launcher": "command"}, "command"),
    ],
)
def test_a_command_that_starts_ranks_is_started_once_per_node_unless_its_user_says_otherwise(
    body: dict[str, Any], launcher: str
):
    assert spec(**body).launcher == launcher


def test_numbers_of_a_launcher_that_contradict_the_job_are_refused():
    with pytest.raises(ValidationError, match=r"--nproc_per_node=4 starts 4 processes, but the job has 2 GPUs"):
        spec(command=["torchrun", "--nproc_per_node=4", "train.py"], gpus=2)
    assert spec(command=["torchrun", "--nproc_per_node=4", "t.py"], gpus=2, launcher="per-gpu").launcher == "ranks"
