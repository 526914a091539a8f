"""Data against its schema: what is wrong is named with file, row, column, value and expectation."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest

from libs.cli.job_options import data_of
from libs.contracts.bad_input import BadInput
from libs.datasets.checking import ToolsMissing, check_files, files_of, read_schema, schema_text
from libs.datasets.findings import MOST_VIOLATIONS, Report
from libs.datasets.schema import DataSchema, schema_of

ROWS: list[dict[str, Any]] = [{"id": n, "score": n / 10, "label": "cat" if n % 2 else "dog"} for n in range(100)]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "score": {"type": "number", "minimum": 0, "exclusiveMaximum": 10},
        "label": {"type": "string", "enum": ["cat", "dog"]},
    },
    "required": ["id", "score", "label"],
    "additionalProperties": False,
    "x-rows": 100,
}


def schema(**changes: Any) -> DataSchema:
    return schema_of(json.dumps({**SCHEMA, **changes}), "schema")


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    lines = [",".join(rows[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in rows)]
    return "\n".join([*lines, ""]).encode()


def as_json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


def as_shard(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as shard:
        for number, row in enumerate(rows):
            for name, value in row.items():
                data = value if isinstance(value, bytes) else str(value).encode()
                info = tarfile.TarInfo(f"train/{number:05d}.{name}")
                info.size = len(data)
                shard.addfile(info, io.BytesIO(data))
    return out.getvalue()


WRITTEN = {"csv": as_csv, "jsonl": as_json_lines, "parquet": as_parquet, "tar": as_shard}


def checked(folder: Path, name: str, data: bytes, against: DataSchema | None = None) -> Report:
    (folder / name).write_bytes(data)
    return check_files(against or schema(), [str(folder / name)])


def found(report: Report) -> list[tuple[int | None, str, str]]:
    return [(each.row, each.column, each.value) for each in report.violations]


def changed(row: int, **values: Any) -> list[dict[str, Any]]:
    return [{**each, **values} if number == row else dict(each) for number, each in enumerate(ROWS, 1)]


@pytest.mark.parametrize("form", WRITTEN)
def test_data_that_is_as_it_should_be(form: str, tmp_path: Path):
    report = checked(tmp_path, f"a.{form}", WRITTEN[form](ROWS))
    assert report == Report(files=1, rows=100, complete=True, violations=[])


@pytest.mark.parametrize("form", WRITTEN)
def test_a_value_out_of_its_range_and_one_that_is_not_allowed(form: str, tmp_path: Path):
    rows = changed(7, score=10.5)
    rows[41]["label"] = "fox"
    report = checked(tmp_path, f"a.{form}", WRITTEN[form](rows))
    assert [(row, column) for row, column, _ in found(report)] == [(7, "score"), (42, "label")]
    assert "10.5" in report.violations[0].value and "fox" in report.violations[1].value
    assert "10" in report.violations[0].expected and report.violations[0].file.endswith(f"a.{form}")


@pytest.mark.parametrize("form", ["csv", "jsonl", "tar"])
def test_a_value_of_another_type(form: str, tmp_path: Path):
    report = checked(tmp_path, f"a.{form}", WRITTEN[form](changed(7, id="seven")), schema(**{"x-rows": None}))
    [(row, column, value)] = found(report)
    assert (row, column) == (7, "id") and "seven" in value


def test_a_column_of_another_type_in_parquet(tmp_path: Path):
    rows = [{**row, "id": str(row["id"])} for row in ROWS]
    report = checked(tmp_path, "a.parquet", as_parquet(rows))
    assert found(report) == [(None, "id", "string")] and report.violations[0].expected == "integer"


def test_footers_of_parquet_are_looked_at_before_values(tmp_path: Path):
    (tmp_path / "1.parquet").write_bytes(as_parquet(changed(7, score=10.5)))
    (tmp_path / "2.parquet").write_bytes(as_parquet([{**row, "id": str(row["id"])} for row in ROWS]))
    (tmp_path / "3.parquet").write_bytes(as_parquet(ROWS)[:-100])
    report = check_files(schema(), [str(tmp_path)])
    places = [(Path(each.file).name, each.column) for each in report.violations]
    assert places == [("2.parquet", "id"), ("3.parquet", "")]
    assert (report.files, report.rows, report.complete) == (3, 0, False)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_column_of_another_name(form: str, tmp_path: Path):
    rows = [{"id": row["id"], "points": row["score"], "label": row["label"]} for row in ROWS]
    report = checked(tmp_path, f"a.{form}", WRITTEN[form](rows))
    assert {column for _, column, _ in found(report)} & {"score", "points"}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_null_where_there_may_be_none(form: str, tmp_path: Path):
    report = checked(tmp_path, f"a.{form}", WRITTEN[form](changed(7, score=None)))
    assert [(row, column) for row, column, _ in found(report)] == [(7, "score")]
    allowed = schema(properties={**SCHEMA["properties"], "score": {"type": ["number", "null"]}})
    assert checked(tmp_path, f"a.{form}", WRITTEN[form](changed(7, score=None)), allowed).violations == []


@pytest.mark.parametrize("form", WRITTEN)
def test_a_file_that_is_cut_off(form: str, tmp_path: Path):
    data = WRITTEN[form](ROWS)
    end = data.index(b"\n60,6") + 5 if form == "csv" else int(len(data) * 0.6)
    report = checked(tmp_path, f"a.{form}", data[:end])
    assert any(word in report.violations[0].expected for word in ("whole", "cells"))
    if form != "parquet":  # its rows are in the footer, which is gone
        assert 50 <= (report.violations[0].row or 0) <= 70


def test_a_shard_that_is_cut_off_between_two_samples(tmp_path: Path):
    data = as_shard(ROWS)
    [first, *_] = checked(tmp_path, "a.tar", data[: 1024 * 3 * 40], schema(**{"x-rows": None})).violations
    assert (first.row, first.value) == (40, "no end of the archive")


def test_rows_that_are_missing_from_the_whole(tmp_path: Path):
    (tmp_path / "1.csv").write_bytes(as_csv(ROWS[:30]))
    (tmp_path / "2.jsonl").write_bytes(as_json_lines(ROWS[:30]))
    report = check_files(schema(), [str(tmp_path / "1.csv"), str(tmp_path / "2.jsonl")])
    assert (report.files, report.rows, found(report)) == (2, 60, [(None, "", "60 rows")])
    assert report.violations[0].expected == "100 rows"


def test_no_more_than_twenty_are_named(tmp_path: Path):
    report = checked(tmp_path, "a.csv", as_csv([{**row, "score": -1} for row in ROWS]))
    assert len(report.violations) == MOST_VIOLATIONS and not report.complete
    assert [each.row for each in report.violations] == list(range(1, 21))


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_files_that_are_compressed(form: str, tmp_path: Path):
    whole = gzip.compress(WRITTEN[form](ROWS))
    assert checked(tmp_path, f"a.{form}.gz", whole).violations == []
    cut = checked(tmp_path, f"b.{form}.gz", whole[:-40])
    assert cut.violations and "whole" in cut.violations[0].expected


def test_shapes_of_arrays(tmp_path: Path):
    shaped = {
        "type": "object",
        "properties": {"x": {"type": "array", "x-shape": [2, 3], "items": {"type": "number", "minimum": 0}}},
        "required": ["x"],
    }
    against = schema_of(json.dumps(shaped), "schema")
    rows: list[dict[str, Any]] = [{"x": [[1.0, 2.0, 3.0]] * 2} for _ in range(9)]
    for form in ("jsonl", "parquet"):
        assert checked(tmp_path, f"a.{form}", WRITTEN[form](rows), against).violations == []
        for wrong in ([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0], [1.0]], [[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]):
            report = checked(tmp_path, f"b.{form}", WRITTEN[form]([*rows, {"x": wrong}]), against)
            assert [(each.row, each.column) for each in report.violations] == [(10, "x")], wrong


def test_arrays_of_numpy_and_objects_in_shards(tmp_path: Path):
    wanted = {
        "type": "object",
        "properties": {
            "npy": {"type": "array", "x-shape": [2, None], "items": {"type": "number"}},
            "json": {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]},
            "jpg": {"type": "string", "format": "binary", "minLength": 3},
        },
        "required": ["npy", "json", "jpg"],
    }

    def sample(shape: tuple[int, ...], age: int, size: int) -> dict[str, Any]:
        out = io.BytesIO()
        numpy.save(out, numpy.zeros(shape))
        return {"npy": out.getvalue(), "json": json.dumps({"age": age}), "jpg": b"x" * size}

    rows = [sample((2, 5), 3, 9), sample((5, 2), 3, 9), sample((2, 1), -3, 9), sample((2, 1), 3, 2)]
    report = checked(tmp_path, "a.tar", as_shard(rows), schema_of(json.dumps(wanted), "schema"))
    assert [(each.row, each.column) for each in report.violations] == [(2, "npy"), (3, "json"), (4, "jpg")]
    assert report.violations[0].value == "shape [5, 2] of float64"


def test_an_arrow_schema(tmp_path: Path):
    fields = [
        pyarrow.field("id", pyarrow.int64(), nullable=False, metadata={"minimum": "0", "maximum": "50"}),
        pyarrow.field("score", pyarrow.float64()),
        pyarrow.field("label", pyarrow.string()),
    ]
    path = tmp_path / "schema.arrow"
    path.write_bytes(pyarrow.schema(fields).serialize().to_pybytes())
    assert found(checked(tmp_path, "a.parquet", as_parquet(ROWS), read_schema(path)))[0] == (52, "id", "51")
    carried = schema_of(schema_text(path), "schema")
    assert [column.name for column in carried.columns] == ["id", "score", "label"] and carried.columns[0].maximum == 50
    rows = [{**row, "id": numpy.int32(row["id"])} for row in ROWS]
    table = pyarrow.Table.from_pylist(rows).set_column(0, "id", pyarrow.array(range(100), pyarrow.int32()))
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    report = check_files(read_schema(path), [str(tmp_path / "b.parquet")])
    assert found(report) == [(None, "id", "int32")] and report.violations[0].expected == "int64"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "schema"),
        ("[]", "Expected `object`"),
        ('{"type": "string"}', "a field per column"),
        ('{"type": "object", "properties": {"x": {"oneOf": []}}}', "oneOf"),
        ('{"type": "object", "properties": {"x": {"type": "float"}}}', "'float'"),
        ('{"type": "object", "properties": {"x": {"type": "string", "minimum": 1}}}', "a range of a column"),
        ('{"type": "object", "properties": {"x": {"type": "number", "minimum": 2, "maximum": 1}}}', "from 2 to 1"),
        ('{"type": "object", "properties": {"x": {}}, "required": ["y"]}', "'y'"),
    ],
)
def test_schemas_that_are_none_are_refused(text: str, says: str):
    with pytest.raises(BadInput, match="schema") as error:
        schema_of(text, "schema")
    assert says in str(error.value) and "expected" in str(error.value)


def test_data_that_is_not_there_is_refused(tmp_path: Path):
    (tmp_path / "a.txt").touch()
    for pattern in ("none.csv", "*.parquet", "a.txt", "."):
        with pytest.raises(BadInput, match="expected files that end in"):
            files_of([str(tmp_path / pattern)])


def test_the_command_names_what_is_wrong(tmp_path: Path):
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "a.csv").write_bytes(as_csv(changed(7, score=-1)))
    sanjaya = Path(sys.executable).with_name("sanjaya")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(sanjaya), "data", "check", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("s.json", "a.csv")
    assert (done.returncode, done.stdout) == (1, "a.csv, row 7, column score: -1.0; expected 0 or more\n")
    assert done.stderr == "1 file, 100 rows: 1 violation\n"
    assert json.loads(run("s.json", "a.csv", "--json").stdout)["violations"][0]["row"] == 7
    assert run("s.json", "nothing-*.csv").returncode == 2


@pytest.mark.parametrize(
    ("schema", "data", "says"),
    [
        ("s.json", ["none-*.csv"], "none-*.csv: no file; expected files that end in"),
        ("s.json", [], "--data-schema: no --data"),
        ("a.csv", ["a.csv"], "a.csv: "),
        ("none.json", ["a.csv"], "none.json: No such file"),
    ],
)
def test_submission_says_what_is_wrong_with_schema_and_data(
    schema: str, data: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "a.csv").write_bytes(as_csv(ROWS))
    with pytest.raises(BadInput) as error:
        data_of(Path(schema), data, on_nodes=False)
    assert says in str(error.value)
    found = data_of(Path("s.json"), ["a.csv"], on_nodes=False)
    assert schema_of(found["data_schema"], "request").names == ["id", "score", "label"] and found["data"] == ["a.csv"]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "schema.arrow"])
def test_without_pyarrow_it_is_said_how_to_get_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "schema.arrow").write_bytes(pyarrow.schema([("id", pyarrow.int64())]).serialize().to_pybytes())
    for module in [module for module in sys.modules if module.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    for module in ("arrow_schema", "csv_files", "parquet_files", "values"):
        monkeypatch.delitem(sys.modules, f"libs.datasets.{module}", raising=False)
    path = tmp_path / name
    path.touch()
    with pytest.raises(ToolsMissing, match="pip install 'pyarrow"):
        if name == "schema.arrow":
            read_schema(path)
        else:
            check_files(schema(), [str(path)])
