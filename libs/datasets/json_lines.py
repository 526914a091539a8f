"""JSON lines: whole blocks of lines are decoded and checked at once, and line by line where one is wrong."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from libs.datasets.findings import Findings
from libs.datasets.records import place_of, type_of_rows
from libs.datasets.schema import DataSchema

BLOCK_BYTES = 8 << 20
BROKEN = (OSError, EOFError, zlib.error)


def check_json_lines(findings: Findings, schema: DataSchema, path: str) -> None:
    """Check one file; `.gz` is unpacked on the way. A row is a line, blank ones are passed over."""
    decoder = msgspec.json.Decoder(type_of_rows(schema))
    line = 1
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            for block in _blocks(file):
                try:
                    findings.rows += len(decoder.decode_lines(block))
                except (msgspec.DecodeError, RecursionError):
                    _check_lines(findings, schema, path, block, line, decoder)
                line += block.count(b"\n")
                if findings.is_full:
                    return
    except BROKEN as error:
        findings.add(path, line, "", str(error), "a whole file: it cannot be read from about this row on")


def _blocks(file: gzip.GzipFile | io.BufferedReader) -> Iterator[bytes]:
    """Whole lines; the last block may end without a line's end."""
    rest = b""
    while data := file.read(BLOCK_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
    if rest:
        yield rest


def _check_lines(
    findings: Findings, schema: DataSchema, path: str, block: bytes, first: int, decoder: msgspec.json.Decoder[Any]
) -> None:
    for number, line in enumerate(block.split(b"\n"), first):
        if not line.strip():
            continue
        findings.rows += 1
        try:
            decoder.decode(line)
        except msgspec.ValidationError as error:
            column, expected = place_of(error)
            findings.add(path, number, column, _value(line, column), expected)
        except (msgspec.DecodeError, RecursionError) as error:
            findings.add(path, number, "", line[:200].decode(errors="replace"), f"a whole JSON object: {error}")
        if findings.is_full:
            return


def _value(line: bytes, column: str) -> str:
    """The value of the column, as JSON."""
    row = msgspec.json.decode(line)
    shown = row.get(column) if column and isinstance(row, dict) else row
    if isinstance(row, dict) and column and column not in row:
        return f"no such field among {', '.join(row)}"
    return msgspec.json.encode(shown).decode()
