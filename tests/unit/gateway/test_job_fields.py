"""A field of a job is described once: the request and the command line's options are made from its row."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import typer
from pydantic import ValidationError

from libs.cli.job_options import OPTIONS, describes_a_job, members
from libs.contracts.job_fields import JOB_FIELDS
from libs.contracts.jobs import JobSpec
from services.gateway.models.job_request import JobRequest


def test_every_field_of_a_job_has_a_row_and_every_row_a_field():
    assert set(JOB_FIELDS) == {field.name for field in msgspec.structs.fields(JobSpec)}


def test_a_request_has_the_fields_in_the_order_of_their_rows_and_a_type_for_each():
    assert list(JobRequest.model_fields) == list(JOB_FIELDS)
    assert [name for name, member in JobRequest.model_fields.items() if member.annotation is Any] == []


@pytest.mark.parametrize(
    ("field", "accepted", "refused"),
    [
        ("max_retries", [0, 1000], [-1, 1001, 1.5, "1", None]),
        ("weight", [1, 0.5], [0, float("inf"), float("nan"), 1e7]),
        ("batch_size", [None, 1], [0, 2**31 + 1, 1.0]),
        ("working_dir", [None, "/data"], ["", 3]),
        ("restartable", [True], ["yes", 1]),
        ("cpus", [None, 1, 64], [0, 1.5, "4", True]),
        ("memory_bytes", [None, 1 << 20], [0, "32 parsecs", "GB", 1.5, "1KB"]),
        ("code_id", [None, "c-" + "a2" * 16], ["c-1"]),
    ],
)
def test_a_row_says_what_the_gateway_accepts(field: str, accepted: list[Any], refused: list[Any]):
    for value in accepted:
        found = JobRequest.model_validate({"command": "x", field: value}).spec("ada")
        assert getattr(found, field) == value
    for value in refused:
        with pytest.raises(ValidationError, match=field):
            JobRequest.model_validate({"command": "x", field: value})


def test_an_option_gives_the_member_that_the_gateway_reads():
    nothing = dict.fromkeys(OPTIONS)
    assert members(nothing, {}) == {}
    given = nothing | {"job_class": "guaranteed", "max_retries": 0, "restartable": False, "time": "1h", "nodes": 2}
    found = members(given, {"gpus": "v100:4", "env": {"A": "1"}})
    assert found == {
        "class": "guaranteed",
        "max_retries": 0,
        "restartable": False,
        "time_limit_s": "1h",
        "gpus": {"count": 4, "types": ["v100"], "max_nodes": 2},
    }
    spec = JobRequest.model_validate({"command": "x"} | found).spec("ada")
    assert (spec.gpus.count, spec.gpus.max_nodes, spec.time_limit_s) == (4, 2, 3600.0)


def test_what_is_added_to_keeps_what_the_file_says():
    given = dict.fromkeys(OPTIONS) | {"env": ["B=2"], "label": ["team=a"], "rate": ["v100=2.5"]}
    assert members(given, {"env": {"A": "1"}}) == {
        "env": {"A": "1", "B": "2"},
        "labels": {"team": "a"},
        "throughputs": {"v100": 2.5},
    }


def test_a_command_has_the_options_of_a_job_before_its_own():
    calls = []

    @describes_a_job
    def enter(given: dict[str, Any], loudly: bool = False) -> None:
        calls.append((given, loudly))

    app = typer.Typer()
    app.command()(enter)
    app(["--priority", "3", "-q", "vision", "--loudly", "--", "python", "train.py"], standalone_mode=False)
    [(given, loudly)] = calls
    assert loudly
    assert {name: value for name, value in given.items() if value is not None} == {
        "command": ["python", "train.py"],
        "priority": 3,
        "tenant": "vision",
    }


@pytest.mark.parametrize(
    ("written", "read"), [("32GB", 32 * 10**9), ("32GiB", 32 << 30), ("32G", 32 << 30), ("1.5TiB", 3 << 39)]
)
def test_memory_is_written_with_its_unit(written: str, read: int):
    given = members(dict.fromkeys(OPTIONS) | {"memory_bytes": written, "cpus": 4}, {})
    spec = JobRequest.model_validate({"command": "x"} | given).spec("ada")
    assert (spec.memory_bytes, spec.cpus) == (read, 4)
