"""Traces: what is read, and what is said about files that are wrong."""

from __future__ import annotations

import io

import pytest

from libs.contracts.bad_input import BadInput
from libs.contracts.jobs import JobClass
from libs.sim.traces import REQUIRED, parse_trace, read_trace, write_trace
from libs.sim.workloads import generate

HEADER = ",".join(REQUIRED)


def parse(text: str, warnings: list[str] | None = None):
    return parse_trace(io.StringIO(text), "t.csv", (warnings if warnings is not None else []).append)


def test_rows_are_sorted_by_time_and_empty_cells_are_unknown():
    late, early = parse(f"{HEADER}\nb,60,,LM,20,4,5000,\na,0.5,vision,,,1,,90\n")[::-1]
    assert (early.job_id, early.tenant, early.duration_s, early.total_steps) == ("a", "vision", 90.0, None)
    assert (late.tenant, late.model, late.batch_size, late.gpus, late.total_steps) == ("default", "LM", 20, 4, 5000.0)


def test_optional_columns():
    (job,) = parse(
        f"{HEADER},user,class,priority,weight,deadline_s,gpu_type,status,attempts,elastic_min,elastic_max\n"
        "a,0,t,m,1,2,10,,ada,opportunistic,7,2.5,600,V100|p100,failed,3,1,4\n"
    )
    spec = job.spec()
    assert (spec.user, spec.job_class, spec.priority, spec.deadline_s) == ("ada", JobClass.OPPORTUNISTIC, 7, 600.0)
    assert spec.gpus.types == ["v100", "p100"]
    assert spec.elastic is not None and (spec.elastic.min_gpus, spec.elastic.max_gpus) == (1, 4)
    assert spec.weight == 2.5 and spec.labels == {}
    assert (job.status, job.attempts) == ("failed", 3)


@pytest.mark.parametrize(
    ("row", "where", "expected"),
    [
        ("a,x,t,m,1,1,10,", "column submit_time_s: 'x'", "seconds, 0 or more"),
        ("a,-1,t,m,1,1,10,", "column submit_time_s: '-1'", "seconds, 0 or more"),
        ("a,nan,t,m,1,1,10,", "column submit_time_s: 'nan'", "seconds, 0 or more"),
        (",0,t,m,1,1,10,", "column job_id: ''", "an id"),
        ("a,0,t,m,1,0,10,", "column gpus: '0'", "a whole number from 1 on"),
        ("a,0,t,m,1,1.5,10,", "column gpus: '1.5'", "a whole number from 1 on"),
        ("a,0,t,m,1,,10,", "column gpus: ''", "a whole number from 1 on"),
        ("a,0,t,m,none,1,10,", "column batch_size: 'none'", "or nothing"),
        ("a,0,t,m,1,1,inf,", "column total_steps: 'inf'", "steps above 0"),
        ("a,0,t,m,1,1,,-3", "column duration_s: '-3'", "seconds above 0"),
        ("a,0,t,m,1,1,,", "columns total_steps and duration_s: both empty", "one of them"),
        ("a,0,t,m,1,1,10", "too few cells", "as many cells"),
        ("a,0,t,m,1,1,10,,9", "1 cells too many", "as many cells"),
    ],
)
def test_a_wrong_cell_is_named(row, where, expected):
    with pytest.raises(BadInput) as error:
        parse(f"{HEADER}\nok,0,t,m,1,1,10,\n{row}\n")
    assert str(error.value).startswith("t.csv:3")
    assert where in str(error.value)
    assert expected in str(error.value)


def test_a_class_must_exist():
    expected = "guaranteed, opportunistic or automatic"
    with pytest.raises(BadInput, match=rf"t\.csv:2, column class: 'vip'; expected {expected}"):
        parse(f"{HEADER},class\na,0,t,m,1,1,10,,vip\n")


def test_ids_are_unique():
    with pytest.raises(BadInput, match=r"t\.csv:3, column job_id: 'a' a second time"):
        parse(f"{HEADER}\na,0,t,m,1,1,10,\na,1,t,m,1,1,10,\n")


def test_a_missing_column_and_a_doubled_one_are_named():
    with pytest.raises(BadInput, match=r"t\.csv:1: no column duration_s"):
        parse(f"{HEADER.removesuffix(',duration_s')}\n")
    with pytest.raises(BadInput, match=r"t\.csv:1: column gpus 2 times"):
        parse(f"{HEADER},gpus\n")
    with pytest.raises(BadInput, match=r"t\.csv: an empty file"):
        parse("")


def test_a_quote_that_never_ends_is_no_csv():
    with pytest.raises(BadInput, match=r"t\.csv:\d: no CSV"):
        parse(f'{HEADER}\n"a,0,t,m,1,1,10,\n')


def test_unknown_columns_are_ignored_with_a_warning():
    warnings: list[str] = []
    (job,) = parse(f"{HEADER},colour\na,0,t,m,1,1,10,,red\n", warnings)
    assert job.job_id == "a"
    assert warnings == ["t.csv:1: column 'colour' is not part of traces/1 and is ignored"]


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"\n\xff,0,t,m,1,1,10,\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_trace(tmp_path / "latin.csv")


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{HEADER}\na,0,t,m,1,x,10,\n"))
    with pytest.raises(BadInput, match=r"standard input:2, column gpus"):
        read_trace("-")


def test_what_is_written_is_read_back():
    jobs = generate(20, seed=3, max_retries=0)
    out = io.StringIO()
    write_trace(jobs, out)
    assert parse(out.getvalue()) == jobs
