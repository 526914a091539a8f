"""How long a check of a data set of a gigabyte takes, and what it names: one wrong value near its end, one cut shard.

python -m tests.bench.data_checks [--gigabytes 1]

The baseline of each row is reading the same bytes once, in the same run.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from libs.datasets.checking import check_files
from libs.datasets.schema import schema_of
from tests.bench.report import Report

ROWS = 200_000
"""Of a file's repeated part."""
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "label": {"type": "string", "enum": ["cat", "dog"]},
        "text": {"type": "string", "maxLength": 200},
    },
    "required": ["id", "score", "label", "text"],
}
LIMIT_S = 10.0
SAMPLES = {
    "type": "object",
    "properties": {
        "jpg": {"type": "string", "format": "binary", "minLength": 1000},
        "cls": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["jpg", "cls"],
}


def table(rows: int) -> pyarrow.Table:
    luck = numpy.random.default_rng(0)
    return pyarrow.table(
        {
            "id": numpy.arange(rows),
            "score": luck.random(rows).round(6),
            "label": numpy.where(luck.random(rows) < 0.5, "cat", "dog"),
            "text": [f"a line of text with number {number} in it, as descriptions are" for number in range(rows)],
        }
    )


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
    picture = numpy.random.default_rng(0).bytes(40_000)
    for number in range(10):
        name = path / f"train-{number}.tar"
        with tarfile.open(name, "w") as shard:
            for sample in range(size // 10 // (len(picture) + 2048)):
                for end, data in (("jpg", picture), ("cls", str(sample % 1000).encode())):
                    info = tarfile.TarInfo(f"{number}-{sample:06d}.{end}")
                    info.size = len(data)
                    shard.addfile(info, io.BytesIO(data))
    with name.open("r+b") as file:
        file.truncate(name.stat().st_size * 2 // 3)
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


def measure(results: Report, name: str, folder: Path, size: int) -> None:
    """One row."""
    make, schema = CASES[name]
    path = Path(make(folder / name, size))
    read_s(path)
    plain_s, found = read_s(path)
    began = time.perf_counter()
    report = check_files(schema_of(json.dumps(schema), name), [str(path)])
    took_s = time.perf_counter() - began
    [violation] = report.violations
    results.row(
        name,
        gigabytes=round(found / 1e9, 2),
        rows=report.rows,
        check_s=round(took_s, 2),
        reading_s=round(plain_s, 2),
        times_reading=round(took_s / plain_s, 1),
        named=f"{Path(violation.file).name}, row {violation.row}, {violation.column or 'the row'}: {violation.value}"[
            :80
        ],
        within_limit=took_s < LIMIT_S,
    )


def main() -> None:
    """Each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    size = int(parser.parse_args().gigabytes * 1e9)
    results = Report(
        "data_checks", "A data set against its schema: one wrong value at its end, or a shard that is cut off"
    )
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            measure(results, name, Path(folder), size)
    results.write()


if __name__ == "__main__":
    main()
