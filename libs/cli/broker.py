"""What Kafka is set to, against what a cell needs: the doctor's second table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

import typer

from libs.bus.kafka.inspection import look
from libs.bus.kafka.needs import Compared, compare
from libs.cli.output import Column, Form, show

COLUMNS = (
    Column("", lambda row: "ok" if row["ok"] else "BAD"),
    Column("WHERE", lambda row: row["where"]),
    Column("SETTING", lambda row: row["setting"]),
    Column("FOUND", lambda row: row["found"]),
    Column("NEEDED", lambda row: row["needed"]),
    Column("WHY", lambda row: row["why"]),
)


def settings_of_kafka(url: str, cell: str) -> list[Compared]:
    """Every setting of the brokers and of the cell's topics that a cell depends on.

    Raises:
        BusError: the URL cannot be understood, or Kafka cannot be reached.
    """
    return compare(asyncio.run(look(url, cell)))


def show_settings(compared: Sequence[Compared]) -> None:
    """The table, then what to change, one line for each setting that is not as needed."""
    typer.echo("")
    show([asdict(row) for row in compared], COLUMNS, Form.TABLE)
    for row in compared:
        if not row.ok:
            typer.echo(f"{row.where}, {row.setting}: {row.change}")
