"""Exported logs as Parquet, for DuckDB, pandas and the like. Needs pyarrow (`pip install 'pyarrow>=17'`)."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from libs.bus.port import Message
from libs.inspect.logs import FORMAT, Log

ROWS_PER_GROUP = 10_000


class ParquetMissing(Exception):
    """pyarrow is not installed; the message says how to get it."""


def write_parquet(log: Log, path: Path) -> int:
    """Write a log as one Parquet file; returns the number of records.

    One row per record: its place, the CloudEvents attributes that people query by, and `data` as JSON text.

    Raises:
        ParquetMissing: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ParquetMissing("Parquet needs pyarrow: pip install 'pyarrow>=17'") from None
    schema = pyarrow.schema(
        [
            ("topic", pyarrow.string()),
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("appended_at_s", pyarrow.float64()),
            ("key", pyarrow.string()),
            ("id", pyarrow.string()),
            ("type", pyarrow.string()),
            ("source", pyarrow.string()),
            ("subject", pyarrow.string()),
            ("time", pyarrow.string()),
            ("causation_id", pyarrow.string()),
            ("data", pyarrow.string()),
        ],
        metadata={"format": FORMAT, "cell": log.header.cell},
    )
    count, messages = 0, iter(log.messages)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while rows := [_row(message) for message in islice(messages, ROWS_PER_GROUP)]:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            count += len(rows)
    return count


def _row(message: Message) -> dict[str, Any]:
    headers = {name: value.decode(errors="replace") for name, value in message.headers}
    return {
        "topic": str(message.partition.topic),
        "partition": message.partition.index,
        "offset": message.offset,
        "appended_at_s": message.appended_at_s,
        "key": message.key,
        "id": headers.get("ce_id"),
        "type": headers.get("ce_type"),
        "source": headers.get("ce_source"),
        "subject": headers.get("ce_subject"),
        "time": headers.get("ce_time"),
        "causation_id": headers.get("ce_causationid"),
        "data": message.value.decode(errors="replace"),
    }
