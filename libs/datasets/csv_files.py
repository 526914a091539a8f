"""CSV with a line of names: read in the types of the schema, block by block."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pyarrow
import pyarrow.csv

from libs.contracts.bad_input import BadInput
from libs.datasets.findings import Findings
from libs.datasets.schema import Column, DataSchema, Kind
from libs.datasets.values import check_values

BLOCK_BYTES = 8 << 20
TYPES = {
    Kind.INTEGER: pyarrow.int64(),
    Kind.NUMBER: pyarrow.float64(),
    Kind.BOOLEAN: pyarrow.bool_(),
    Kind.STRING: pyarrow.string(),
    None: pyarrow.string(),
}
"""{kind: the type that its cells are read as}."""
_CELL = re.compile(r"In CSV column #(\d+): Row #(\d+): .*?invalid value '(.*)'", re.DOTALL)
_LINE = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
"""What pyarrow says of a cell, and of a line; it counts the line of names as the first row."""


def check_csv(findings: Findings, schema: DataSchema, path: str) -> None:
    """Check one file; one that is compressed (`.gz`) is unpacked on the way.

    A cell of another type, and a line with more or fewer cells, end the check of the file: what follows cannot be
    told apart from it. Values out of range do not.

    Raises:
        BadInput: the schema has a column that no cell can hold.
    """
    nested = next((column for column in schema.columns if column.kind not in TYPES), None)
    if nested is not None:
        raise BadInput(f"{path}: column {nested.name}", f"CSV has no {nested.expected}", "columns of numbers or text")
    before, names = findings.rows, list[str]()
    try:
        names = _names(path)
        there = findings.check_names(schema, path, names)
        _check_blocks(findings, path, [column for column in schema.columns if column.name in there])
    except (pyarrow.ArrowException, OSError) as error:
        _name_place(findings, schema, path, str(error), names, findings.rows - before)


def _names(path: str) -> list[str]:
    with pyarrow.input_stream(path, compression="detect") as file:
        first = io.TextIOWrapper(file, "utf-8", errors="replace", newline="").readline()
    return next(csv.reader([first]), [])


def _check_blocks(findings: Findings, path: str, columns: list[Column]) -> None:
    convert = pyarrow.csv.ConvertOptions(
        column_types={column.name: TYPES[column.kind] for column in columns},
        include_columns=[column.name for column in columns],
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    # One thread: with several, pyarrow does not say in which row it stands.
    reading = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
    row = 1
    for block in pyarrow.csv.open_csv(path, read_options=reading, convert_options=convert):
        for column in columns:
            check_values(findings, path, column, block.column(column.name), row)
        row += block.num_rows
        findings.rows += block.num_rows
        if findings.is_full:
            return


def _name_place(findings: Findings, schema: DataSchema, path: str, message: str, names: list[str], rows: int) -> None:
    """Name where a file could not be read on; `rows`: so many were read."""
    if found := _CELL.search(message):
        name, row, value = names[int(found[1])], int(found[2]) - 1, found[3]
        column: Any = next(column for column in schema.columns if column.name == name)
        findings.add(path, row, name, value, column.expected)
    elif found := _LINE.search(message):
        findings.add(path, int(found[1]) - 1, "", found[4], f"{found[2]} cells, not {found[3]}")
    else:
        findings.add(path, rows + 1, "", message.splitlines()[0], "a whole CSV file, from about this row on")
