"""How long a check of a data set of a gigabyte takes, and what it names: one wrong value near its end, one cut shard.

python -m tests.bench.data_checks [--gigabytes 1] [--only alone|in-trials]

The baseline of each row is reading the same bytes once, in the same run. `in-trials` is of live jobs: their data set
has ten files and one more that is wrong, and the time is from the placement of the trial to what it has found. The CPU
time is that of the same check outside a trial, a moment before; what the machine does besides is in the load.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from libs.cli.cell import Cell
from libs.datasets.checking import check_files
from libs.datasets.findings import Report as Findings
from libs.datasets.schema import schema_of
from tests.bench._data_sets import FORMATS, PICTURE_BYTES, SAMPLES, SCHEMA, WRONG, Place, cut, shard, table
from tests.bench.report import Report
from tests.e2e.trial_data import found_in_trial, plan_in, start

ROWS = 200_000
"""Of a file's repeated part."""
LIMIT_S = 10.0


def csv_file(path: Path, size: int) -> str:
    out = io.BytesIO()
    pyarrow.csv.write_csv(table(ROWS), out)
    head, _, body = out.getvalue().partition(b"\n")
    with path.open("wb") as file:
        file.write(head + b"\n")
        while file.tell() < size:
            file.write(body)
        file.write(b'7,1.5,cat,"the wrong one"\n')
    return str(path)


def json_file(path: Path, size: int) -> str:
    body = b"".join(json.dumps(row).encode() + b"\n" for row in table(ROWS).to_pylist())
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(body)
        file.write(b'{"id": 7, "score": 1.5, "label": "cat", "text": "the wrong one"}\n')
    return str(path)


def parquet_file(path: Path, size: int) -> str:
    rows = table(ROWS)
    wrong = rows.slice(0, 1).set_column(1, "score", pyarrow.array([1.5]))
    with pyarrow.parquet.ParquetWriter(path, rows.schema, compression="none", use_dictionary=False) as file:
        for _ in range(max(1, size // rows.nbytes)):
            file.write_table(rows)
        file.write_table(wrong)
    return str(path)


def shards(path: Path, size: int) -> str:
    """Ten of them; the last one is cut off."""
    path.mkdir()
    for number in range(10):
        shard(path / f"train-{number}.tar", size // 10 // (PICTURE_BYTES + 2048))
    cut(path / "train-9.tar")
    return str(path)


CASES: dict[str, tuple[Callable[[Path, int], str], dict[str, object]]] = {
    "data.csv": (csv_file, SCHEMA),
    "data.jsonl": (json_file, SCHEMA),
    "data.parquet": (parquet_file, SCHEMA),
    "shards": (shards, SAMPLES),
}


def read_s(path: Path) -> tuple[float, int]:
    """Seconds to read all bytes once, and how many they are."""
    began, size = time.perf_counter(), 0
    for file in sorted(path.glob("*")) if path.is_dir() else [path]:
        with file.open("rb") as stream:
            while data := stream.read(8 << 20):
                size += len(data)
    return time.perf_counter() - began, size


def timed_check(schema: dict[str, Any], pattern: str) -> tuple[Findings, float, float]:
    """What the check has found, its seconds, and those of all CPUs."""
    began, cpu_began = time.perf_counter(), time.process_time()
    report = check_files(schema_of(json.dumps(schema), "data.schema.json"), [pattern])
    return report, time.perf_counter() - began, time.process_time() - cpu_began


def load() -> float:
    """Processes that want a core, for each of them, over the last minute."""
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)


def measure(results: Report, name: str, folder: Path, size: int) -> None:
    """One row."""
    make, schema = CASES[name]
    path = Path(make(folder / name, size))
    read_s(path)
    plain_s, found = read_s(path)
    report, took_s, cpu_s = timed_check(schema, str(path))
    [violation] = report.violations
    results.row(
        name,
        gigabytes=round(found / 1e9, 2),
        rows=report.rows,
        check_s=round(took_s, 2),
        cpu_s=round(cpu_s, 2),
        load_per_core=load(),
        reading_s=round(plain_s, 2),
        times_reading=round(took_s / plain_s, 1),
        named=f"{Path(violation.file).name}, row {violation.row}, {violation.column or 'the row'}: {violation.value}"[
            :80
        ],
        within_limit=took_s < LIMIT_S,
    )


def measure_in_trials(results: Report, form: str, folder: Path, size: int) -> None:
    """A row for each way in which the last file may be wrong, each of a job of one live cell."""
    data = folder / form
    data.mkdir()
    FORMATS[form].write(data, size)
    with Cell(plan_in(folder)) as cell:
        start(cell)
        for wrong in WRONG:
            place = FORMATS[form].add_wrong(data, wrong)
            plain_s, there = read_s(data)
            _, _, cpu_s = timed_check(FORMATS[form].schema, str(data / FORMATS[form].pattern))
            found = found_in_trial(cell, data, form)
            [named] = found.places
            results.row(
                f"{form}, {wrong}",
                gigabytes=round(there / 1e9, 2),
                rows=found.rows,
                check_s=round(found.took_s, 2),
                cpu_s=round(cpu_s, 2),
                load_per_core=load(),
                reading_s=round(plain_s, 2),
                times_reading=round(found.took_s / plain_s, 1),
                named=_words(named),
                within_limit=found.took_s < LIMIT_S and named == place,
            )


def _words(place: Place) -> str:
    row = f", row {place.row}" if place.row is not None else ""
    return f"{Path(place.file).name}{row}, {place.column or ('the row' if row else 'the whole file')}"


def alone(size: int) -> None:
    """Each format, by itself."""
    results = Report(
        "data_checks", "A data set against its schema: one wrong value at its end, or a shard that is cut off"
    )
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            measure(results, name, Path(folder), size)
    results.write()


def in_trials(size: int) -> None:
    """Jobs of live cells."""
    title = "A data set against its schema, in the trial of a live job: its last file is wrong"
    results = Report("data_checks_in_trials", title, module="data_checks")
    for form in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            measure_in_trials(results, form, Path(folder), size)
    results.write()


def main() -> None:
    """Both, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--only", choices=("alone", "in-trials"))
    arguments = parser.parse_args()
    size = int(arguments.gigabytes * 1e9)
    if arguments.only != "in-trials":
        alone(size)
    if arguments.only != "alone":
        in_trials(size)


if __name__ == "__main__":
    main()
