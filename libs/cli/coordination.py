"""What the coordination of a node's GPUs has decided in its recorded minutes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from libs.cli.config import configured
from libs.cli.context import FAILED, USAGE, fail
from libs.cli.running import StateDir, state_dir_of
from libs.kernel.words import counted


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="How tasks share a GPU.", no_args_is_help=True)
    group.command()(replay)
    app.add_typer(group, name="coordination")


def replay(
    gpu: Annotated[str, typer.Argument(metavar="NODE:GPU", help="Such as n1:0.")],
    records: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The node's folder of records; default: that of the cell on this machine."),
    ] = None,
    state_dir: StateDir = None,
    cell: Annotated[str | None, typer.Option(help="Which cell of this machine.")] = None,
) -> None:
    """Derive the recorded steps of a GPU again, and compare byte by byte; exit 1 at a difference.

    Files that an agent with other rules has left, before it was replaced, are named and passed over.
    """
    node, _, index = gpu.rpartition(":")
    if not node or not index.isdecimal():
        fail(f"{gpu!r}: expected a node and the index of a GPU, as n1:0", USAGE)
    folder = records or _records_of(state_dir, configured("cell", cell).value, node)
    files = sorted((folder / index).glob("*.jsonl"))
    if not files:
        fail(f"{folder / index}: no step is recorded there; the node has records of GPUs with guests", USAGE)
    steps = [same for path in files if (same := _compare(path)) is not None]
    typer.echo(f"{counted(sum(steps), 'step')} of {node}:{index} in {counted(len(steps), 'file')}, 0 differences")


def _records_of(state_dir: Path | None, cell: str, node: str) -> Path:
    return state_dir_of(state_dir, cell) / "nodes" / node / "coordination"


def _compare(path: Path) -> int | None:
    """Number of the steps of one file, all of which are the same; else the process ends with the first difference.

    None: other rules have taken them.
    """
    from libs.coordination.recording import NotARecord, OtherFormat, derive

    steps = 0
    try:
        with path.open("rb") as lines:
            for found in derive(lines):
                if not found.is_same:
                    typer.echo(f"{path}:{found.line}: a difference at {found.now_s:.3f} s")
                    typer.echo(f"  recorded {found.recorded.decode()}")
                    typer.echo(f"  derived  {found.derived.decode()}")
                    sys.exit(FAILED)
                steps += 1
    except OtherFormat as error:
        typer.echo(f"{path}: passed over: {error}", err=True)
        return None
    except NotARecord as error:
        fail(f"{path}: {error}", FAILED)
    return steps
