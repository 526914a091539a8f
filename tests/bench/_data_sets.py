"""Data sets of a given size that are as their schema says, and ways in which their last file is not."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy
import pyarrow
import pyarrow.parquet

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
"""Of tables."""
SAMPLES = {
    "type": "object",
    "properties": {
        "jpg": {"type": "string", "format": "binary", "minLength": 1000},
        "cls": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["jpg", "cls"],
}
"""Of shards."""
PICTURE_BYTES = 40_000
FILES = 10
WRONG = ("column", "type", "range", "truncated")
"""What the last file may have that the schema does not allow."""


class Place(NamedTuple):
    """Where something is wrong."""

    file: str
    row: int | None
    column: str


def table(rows: int) -> pyarrow.Table:
    """As `SCHEMA` says."""
    luck = numpy.random.default_rng(0)
    return pyarrow.table(
        {
            "id": numpy.arange(rows),
            "score": luck.random(rows).round(6),
            "label": numpy.where(luck.random(rows) < 0.5, "cat", "dog"),
            "text": [f"a line of text with number {number} in it, as descriptions are" for number in range(rows)],
        }
    )


def shard(path: Path, samples: int, *, last: dict[str, bytes] | None = None) -> None:
    """A WebDataset shard as `SAMPLES` says, but for its last sample, where that is given: {column: content}."""
    picture = numpy.random.default_rng(0).bytes(PICTURE_BYTES)
    with tarfile.open(path, "w") as out:
        for number in range(samples):
            files = {"jpg": picture, "cls": str(number % 1000).encode()}
            for column, data in (last if last is not None and number == samples - 1 else files).items():
                info = tarfile.TarInfo(f"{path.stem}-{number:06d}.{column}")
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))


def cut(path: Path) -> None:
    """A third of the file is missing at its end."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3)


class Tables:
    """Parquet."""

    schema = SCHEMA
    pattern = "*.parquet"

    def write(self, folder: Path, size: int) -> None:
        """Files of so many bytes together, all as they should be."""
        rows = table(min(100_000, max(1, size // FILES // 100)))
        for number in range(FILES):
            with (folder / f"part-{number}.parquet").open("wb") as out:
                writer = pyarrow.parquet.ParquetWriter(out, rows.schema, compression="none", use_dictionary=False)
                while out.tell() < size // FILES:
                    writer.write_table(rows)
                writer.close()

    def add_wrong(self, folder: Path, wrong: str) -> Place:
        """One more file, the last by name: where the check is to find what in it."""
        path, rows = folder / "wrong.parquet", table(1000)
        changed = rows
        if wrong == "column":
            changed = rows.drop_columns("score")
        elif wrong == "type":
            changed = rows.set_column(1, "score", pyarrow.array(["high"] * rows.num_rows))
        elif wrong == "range":
            scores = [*rows["score"].to_pylist()[:-1], 1.5]
            changed = rows.set_column(1, "score", pyarrow.array(scores))
        pyarrow.parquet.write_table(changed, path)
        if wrong == "truncated":
            cut(path)
            return Place(str(path), None, "")
        return Place(str(path), {"column": None, "type": None, "range": rows.num_rows}[wrong], "score")


class Shards:
    """WebDataset."""

    schema = SAMPLES
    pattern = "*.tar"

    def write(self, folder: Path, size: int) -> None:
        """See `Tables`."""
        for number in range(FILES):
            shard(folder / f"train-{number}.tar", max(1, size // FILES // (PICTURE_BYTES + 2048)))

    def add_wrong(self, folder: Path, wrong: str) -> Place:
        """See `Tables`."""
        path, samples = folder / "wrong.tar", 30
        picture = bytes(PICTURE_BYTES)
        last = {
            "column": {"jpg": picture},
            "type": {"jpg": picture, "cls": b"cat"},
            "range": {"jpg": picture, "cls": b"5000"},
            "truncated": None,
        }[wrong]
        shard(path, samples, last=last)
        if wrong == "truncated":
            cut(path)
            return Place(str(path), samples * 2 // 3 + 1, "")
        return Place(str(path), samples, "cls")


FORMATS: dict[str, Tables | Shards] = {"parquet": Tables(), "webdataset": Shards()}
