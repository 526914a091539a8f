"""Files of jobs: `ls`, `cp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.following import tell
from libs.cli.listing import AsJson, NoHeaders, Output
from libs.cli.output import Column, Form, age, show, show_document
from libs.cli.progress import progress
from libs.cli.references import Job, resolve
from libs.client import Client
from libs.client.fetching import FILE, FOLDER, Damaged, Found, fetch_file, walked
from libs.kernel.words import bytes_of, counted

Rank = Annotated[int, typer.Option(min=0, help="Of a gang: from the node that ran this rank.")]

COLUMNS = (
    Column("NAME", lambda row: f"{row['name']}/" if row["kind"] == FOLDER else row["name"]),
    Column("SIZE", lambda row: bytes_of(row["bytes"]) if row["kind"] == FILE else row["kind"]),
    Column("CHANGED", lambda row: f"{age(row['changed_s'])} ago"),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("ls")(list_files)
    app.command("cp")(copy)


def list_files(
    job: Job,
    path: Annotated[str, typer.Argument(help="Below the job's working directory.")] = "",
    rank: Rank = 0,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    gateway: Gateway = None,
) -> None:
    """List a folder of a job: `sanjaya ls JOB`, `sanjaya ls JOB runs`. The files are its latest attempt's."""
    if not path and ":" in job:
        job, _, path = job.partition(":")
    with client(gateway) as cell:
        found = cell.job_files(resolve(cell, job), path, rank=rank)
    items = [{**row, "name": row["name"] or Path(path).name} for row in found["items"]]
    if as_json:
        show_document({**found, "items": items}, Form.JSON)
    else:
        show(items, COLUMNS, output, headers=not no_headers)


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="JOB:PATH, or a file or a folder here.")],
    target: Annotated[str, typer.Argument(metavar="DEST", help="A name or a folder here, or JOB:PATH.")],
    rank: Rank = 0,
    gateway: Gateway = None,
) -> None:
    """Fetch files of a job, or add files to one that was not placed yet.

    `sanjaya cp JOB:runs/model.pt .`, `sanjaya cp JOB: results`, `sanjaya cp conf.yaml JOB:`. A fetch that was broken
    off goes on where it was when it is asked for again.
    """
    fetches, sends = _is_of_a_job(source), _is_of_a_job(target)
    if fetches == sends:
        fail("one of the two has to be of a job", USAGE, "sanjaya cp JOB:PATH DEST, or sanjaya cp SRC JOB:")
    job, _, path = (source if fetches else target).partition(":")
    with client(gateway) as cell:
        job = resolve(cell, job)
        if sends:
            from libs.cli.files import add_files

            add_files(cell, job, Path(source), path)
            return
        try:
            fetched, left_out = _fetch(cell, job, path.strip("/"), Path(target), rank)
        except Damaged as error:
            fail(str(error), FAILED)
        except OSError as error:
            fail(f"{error.filename or target}: {error.strerror or error}", FAILED)
    for found in left_out:
        tell(f"not fetched: {found.path} ({found.row['kind']})")
    tell(f"{counted(len(fetched), 'file')}, {bytes_of(sum(found.row['bytes'] for found in fetched))}, from {job}")


def _is_of_a_job(text: str) -> bool:
    """Whether it names a job before a colon; `./a:b` is a file."""
    job, colon, _ = text.partition(":")
    return bool(colon and job) and "/" not in job


def _fetch(cell: Client, job: str, path: str, target: Path, rank: int) -> tuple[list[Found], list[Found]]:
    """Copy as `cp -r` does. Returns the files that were fetched, and what cannot be."""
    into = target / Path(path).name if path and target.is_dir() else target
    fetched: list[Found] = []
    left_out: list[Found] = []
    with progress(f"fetching {job}:{path}") as watch:
        done = 0

        def more(number: int) -> None:
            nonlocal done
            done += number
            watch(done, None)

        for found in walked(cell, job, path, rank=rank):
            here = into / found.below if found.below else into
            if found.row["kind"] == FOLDER:
                here.mkdir(parents=True, exist_ok=True)
            elif found.row["kind"] != FILE:
                left_out.append(found)
            else:
                here.parent.mkdir(parents=True, exist_ok=True)
                fetch_file(cell, job, found.path, here, rank=rank, on_bytes=more)
                here.chmod(0o755 if found.row["executable"] else 0o644)
                fetched.append(found)
    if path and not fetched and not left_out:
        into.mkdir(parents=True, exist_ok=True)  # an empty folder
    return fetched, left_out
