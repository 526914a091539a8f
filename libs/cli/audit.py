"""The log as a whole: replay and verify, compare, look at a state, export."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libs.cli.config import configured
from libs.cli.context import DONE, FAILED, USAGE, Gateway, client, fail
from libs.cli.listing import AsJson
from libs.cli.output import Form, show_document
from libs.cli.progress import progress
from libs.kernel.words import counted

if TYPE_CHECKING:
    from libs.inspect.logs import Log

Source = Annotated[
    str | None, typer.Argument(help="An exported file, an archive, a log.db, a bus URL, or -; default: the live cell.")
]
ArchiveDir = Annotated[
    Path | None, typer.Option("--archive", metavar="DIR", help="Where the log's archive is; default: where it was.")
]
Cell = Annotated[str | None, typer.Option(help="Which cell of a bus.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (replay, diff, state, export):
        app.command()(command)


@contextmanager
def opened(source: str | None, cell: str | None, gateway: str | None, archive: Path | None = None) -> Iterator[Log]:
    """The log to look at; a live cell's is fetched from its gateway first."""
    from libs.bus.port import BusError
    from libs.inspect.sources import open_log
    from libs.runtime.roster import roster

    name = configured("cell", cell).value
    try:
        if source is not None:
            with open_log(source, cell=name, sessions=roster().NAMES, archive=archive) as log:
                yield log
            return
        if archive is not None:
            fail("--archive belongs to a LOG; a live cell's gateway knows its own", USAGE)
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            with client(gateway) as live:
                file.writelines(live.export())
            file.flush()
            with open_log(file.name, cell=name) as log:
                yield log
    except FileNotFoundError as error:
        fail(f"{error.filename}: no such file", USAGE)
    except BusError as error:
        fail(str(error), USAGE)


def replay(
    log: Source = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every decision; exit 1 at a difference.")] = False,
    as_json: AsJson = False,
    cell: Cell = None,
    archive: ArchiveDir = None,
    gateway: Gateway = None,
) -> None:
    """Feed the whole log to the cores again; with --verify, compare every decision byte by byte."""
    from libs.inspect.verify import verify as audit
    from libs.runtime.roster import roster

    began = time.perf_counter()
    with opened(log, cell, gateway, archive) as found, progress("replaying") as watch:
        result = audit(found, roster().SERVICES, watch=lambda done: watch(done, None))
    if as_json:
        import msgspec

        show_document(msgspec.to_builtins(result), Form.JSON)
    else:
        typer.echo(f"{result.summary}  ({time.perf_counter() - began:.1f} s)")
        if not verify or result.ok:
            for service, state_hash in result.state_hashes.items():
                typer.echo(f"  {service:<17} state {state_hash[:16]}")
    if not result.ok:
        if not as_json and result.first is not None:
            typer.echo("\n".join(result.first.lines()))
        sys.exit(FAILED)
    sys.exit(DONE)


def diff(
    a: Annotated[str, typer.Argument(help="An exported file, an archive, a log.db or a bus URL.")],
    b: Annotated[str, typer.Argument(help="The other log.")],
    cell: Cell = None,
) -> None:
    """Where two logs tell different stories, job by job, without regard to times; exit 1 when they do."""
    from libs.inspect.diff import diff as compare

    with opened(a, cell, None) as left, opened(b, cell, None) as right:
        found = compare(left.control(), right.control())
    for difference in found:
        typer.echo("\n".join(difference.lines()))
    typer.echo(counted(len(found), "difference"))
    sys.exit(FAILED if found else DONE)


def state(
    log: Source = None,
    at: Annotated[int | None, typer.Option("--at", help="After the record at this offset; default: the end.")] = None,
    service: Annotated[str | None, typer.Option(help="Only the state of this service.")] = None,
    cell: Cell = None,
    archive: ArchiveDir = None,
    gateway: Gateway = None,
) -> None:
    """The state of the cores at any offset, as JSON."""
    import msgspec

    from libs.inspect.replay import state_at
    from libs.runtime.roster import roster

    with opened(log, cell, gateway, archive) as found:
        states = state_at(found.control(), roster().SERVICES, sys.maxsize if at is None else at)
    if service is not None:
        if service not in states:
            fail(f"no service {service!r}; there are {', '.join(states)}", USAGE)
        states = {service: states[service]}
    typer.echo(json.dumps({name: msgspec.to_builtins(value) for name, value in states.items()}, indent=1))


def export(
    log: Source = None,
    form: Annotated[str, typer.Option("--format", help="jsonl, parquet or chrome-trace.")] = "jsonl",
    out: Annotated[str, typer.Option("--out", help="File; - for standard output (jsonl).")] = "-",
    cell: Cell = None,
    archive: ArchiveDir = None,
    gateway: Gateway = None,
) -> None:
    """The log as a file: for replay, for analytics, for a timeline."""
    from libs.inspect.chrome_trace import write_chrome_trace
    from libs.inspect.jsonl import write_jsonl
    from libs.inspect.parquet import ParquetMissing, write_parquet

    if form not in ("jsonl", "parquet", "chrome-trace"):
        fail(f"--format {form!r}: expected jsonl, parquet or chrome-trace", USAGE)
    if out == "-" and form == "parquet":
        fail("parquet needs a file", USAGE, "--out log.parquet")
    with opened(log, cell, gateway, archive) as found:
        if form == "parquet":
            try:
                written = write_parquet(found, Path(out))
            except ParquetMissing as error:
                fail(str(error), FAILED)
        elif out == "-":
            written = _write(form, found, sys.stdout.buffer, write_jsonl, write_chrome_trace)
        else:
            with Path(out).open("wb") as file:
                written = _write(form, found, file, write_jsonl, write_chrome_trace)
    typer.echo(counted(written, "record"), err=True)


def _write(form: str, log: Log, file: Any, jsonl: Callable[..., int], chrome: Callable[..., int]) -> int:
    return jsonl(log, file) if form == "jsonl" else chrome(log.control(), file)
