"""Runs programs that fail, and judges what failure analysis says of them: `make failures`.

python -m tests.corpus run --out FILE [ID...]     # their logs, as records of failures/1
python -m tests.corpus judge FILE                 # status 0 if enough reasons are right
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from libs.failures.package import package_rules
from libs.failures.records import records
from tests.corpus.judging import enough, judged, markdown, summary
from tests.corpus.manifest import Program, programs
from tests.corpus.needs import missing
from tests.corpus.running import NotAsMeant, Recorded, record
from tests.corpus.store import store

app = typer.Typer(help=__doc__, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@app.command()
def run(
    out: Annotated[Path, typer.Option(help="Where the records go.")],
    ids: Annotated[list[str] | None, typer.Argument(help="Which programs; all if none is named.")] = None,
    jobs: Annotated[int, typer.Option(help="So many run at a time.")] = 2,
) -> None:
    """Run programs and record their logs; status 1 if one did not fail as it was meant to."""
    known = programs()
    if unknown := set(ids or ()) - {each.id for each in known}:
        raise typer.BadParameter(f"no such program: {', '.join(sorted(unknown))}")
    chosen = [each for each in known if not ids or each.id in ids]
    with store() as url, ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(lambda each: _recorded(each, url), chosen))
    out.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in done if isinstance(each, Recorded)))
    wrong = [each for each in done if isinstance(each, NotAsMeant)]
    typer.echo(f"{len(done) - done.count(None) - len(wrong)} of {len(done)} programs failed as they were meant to")
    sys.exit(1 if wrong else 0)


@app.command()
def judge(
    file: Annotated[Path, typer.Argument(help="Records that `run` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Write the tables to this file instead of printing them.")] = None,
) -> None:
    """Say how many reasons are right; status 1 if they are too few."""
    found = judged(programs(), records(file.name, file.read_text()), package_rules())
    tables = markdown(found)
    if out is None:
        typer.echo(tables)
    else:
        out.write_text(tables)
    for held_out in (False, True):
        typer.echo(summary(found, held_out))
    sys.exit(0 if enough(found) else 1)


def _recorded(program: Program, url: str) -> Recorded | NotAsMeant | None:
    if lacks := missing(program.needs):
        typer.echo(f"{program.id}: skipped, this machine lacks: {', '.join(lacks)}")
        return None
    try:
        return record(program, url)
    except NotAsMeant as error:
        typer.echo(f"{program.id}: {error}")
        return error


if __name__ == "__main__":
    app()
