"""`sanjaya archive`: the oldest part of a log into files, and its space given back."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libs.cli.audit import Cell
from libs.cli.config import configured
from libs.cli.context import DONE, FAILED, USAGE, fail
from libs.cli.progress import Watch, progress
from libs.kernel.words import counted

if TYPE_CHECKING:
    from libs.bus.port import Bus
    from libs.inspect.archive import Archive

FILE = "sqlite:///"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(archive)


def archive(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of the archive; it is continued if there is one.")],
    before: Annotated[
        int, typer.Option(min=1, metavar="OFFSET", help="The first record of control that is not archived.")
    ],
    log: Annotated[Path | None, typer.Argument(metavar="[LOG]", help="A log.db; or --bus.", exists=True)] = None,
    bus: Annotated[str | None, typer.Option(help="URL of the bus; default: SANJAYA_BUS.")] = None,
    cell: Cell = None,
    keep: Annotated[bool, typer.Option("--keep", help="Archive, and leave the log as it is.")] = False,
    database: Annotated[
        str | None, typer.Option(help="URL of snapshots and read models; default: read_models.db beside a log.db.")
    ] = None,
) -> None:
    """Write what the log has before an offset to files, then remove it from the log.

    Control and the orders that it has caused, as compressed JSON lines and as Parquet, with a manifest of hashes.
    A record is removed when the archive was read again and has it, and when every service can start without it.
    """
    from libs.bus.port import BusError
    from libs.inspect.archive import NotGivenBack
    from libs.inspect.parquet import ParquetMissing
    from libs.runtime.starts import StartsUnknown

    url = bus_url(log, bus)
    name = configured("cell", cell).value
    needed = None if keep else database or database_beside(url)
    try:
        with progress("archiving") as watch:
            asyncio.run(_archive(url, name, directory, before, needed, watch))
    except BusError as error:
        fail(str(error), USAGE)
    except (ParquetMissing, StartsUnknown) as error:
        fail(str(error), FAILED)
    except NotGivenBack as error:
        fail(f"{error}; nothing was removed from the log", FAILED, "the same again later; until then the archive stays")
    sys.exit(DONE)


def bus_url(log: Path | None, bus: str | None) -> str:
    """The bus that is meant; ends the process with 2 when none or two are."""
    if log is not None and bus is not None:
        fail("LOG and --bus name two logs", USAGE)
    if log is not None:
        return f"{FILE}{log.absolute()}"
    url = bus or os.environ.get("SANJAYA_BUS")
    if not url:
        fail("no log is named", USAGE, "sanjaya archive --before OFFSET DIR ~/.sanjaya/CELL/log.db")
    if url.startswith(FILE) and not _file_of(url).exists():
        fail(f"{_file_of(url)}: no such file", USAGE)
    return url


def _file_of(url: str) -> Path:
    return Path(url.partition("?")[0].removeprefix(FILE)).expanduser()


def database_beside(url: str) -> str:
    """The database of a cell on this machine; ends the process with 2 when there is none."""
    if named := os.environ.get("SANJAYA_DATABASE"):
        return named
    path = _file_of(url).with_name("read_models.db")
    if not url.startswith(FILE) or not path.exists():
        hint = "--database URL, or --keep to archive and remove nothing"
        fail("there is no database that says from where the services can start", USAGE, hint)
    return f"{FILE}{path.absolute()}"


async def _archive(url: str, cell: str, directory: Path, before: int, database: str | None, watch: Watch) -> None:
    from libs.bus.connect import connect
    from libs.inspect import archive as archives
    from libs.inspect.extent import has_no_gaps

    bus = await connect(url, cell)
    try:
        archived = await archives.archive(
            bus, directory, before, contiguous=has_no_gaps(url), watch=lambda records: watch(records, None)
        )
        segments = archived.manifest.segments
        records = counted(sum(segment.records for segment in segments), "record")
        typer.echo(f"{directory}: {records} in {counted(len(segments), 'segment')}")
        if database is not None:
            await _give_back(bus, archived, before, database)
    finally:
        await bus.close()


async def _give_back(bus: Bus, archived: Archive, before: int, database: str) -> None:
    from libs.bus.naming import CONTROL
    from libs.inspect import archive as archives
    from libs.runtime.roster import roster
    from libs.runtime.starts import starts

    needed = await asyncio.to_thread(starts, database, bus.cell, archived.manifest.log_id, roster().NAMES)
    given = await archives.give_back(bus, archived, before, needed)
    typer.echo(f"control of cell {bus.cell} begins at offset {given.befores[CONTROL]} now")
    for partition, node_id in given.waiting.items():
        place = f"{partition.topic}/{partition.index}"
        typer.echo(
            f"{place}: the orders from offset {given.befores[partition]} on stay until node {node_id} reads them"
        )
