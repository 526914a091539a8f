"""A job's files on their way to its cell: the working directory of a command is uploaded with it."""

from __future__ import annotations

import hashlib
import posixpath
import tempfile
from pathlib import Path
from typing import Any

from libs.cli.context import USAGE, fail
from libs.cli.following import tell
from libs.cli.runnable import require_files
from libs.cli.workdir import Limits, Selection, pack, placed_at, select, select_file
from libs.client import Client
from libs.contracts.bad_input import BadInput
from libs.kernel.ids import code_id
from libs.kernel.words import bytes_of


def with_files(
    cell: Client, job: dict[str, Any], workdir: Path | None, *, no_upload: bool, send: bool = True
) -> dict[str, Any]:
    """The job with its working directory uploaded, unless it is to run in one that the nodes have.

    Args:
        workdir: as given; None: the current directory, where the job does not say otherwise.
        no_upload: the job is to begin in an empty directory.
        send: False: only look whether the files that the command names are there.

    Raises:
        BadInput: the directory cannot be uploaded, or lacks a file that the command names.
    """
    if no_upload:
        if workdir is not None:
            fail("--workdir and --no-upload contradict each other", USAGE, "one of them")
        return job
    if workdir is None and ("working_dir" in job or "code_id" in job):
        return job
    limits = Limits(**cell.upload_limits())
    found = _selected(workdir, limits)
    if isinstance(command := job.get("command"), str | list):  # else the gateway says what is wrong with it
        require_files(command, found)
    job = {field: value for field, value in job.items() if field != "working_dir"}
    return {**job, "code_id": _uploaded(cell, found, limits)} if send and found.entries else job


def add_files(cell: Client, job: str, source: Path, path: str) -> None:
    """Add a file, or what is in a folder, to the upload that a job will start with.

    Args:
        path: where it goes below the job's working directory; empty or ending in a slash: into that folder.

    Raises:
        BadInput: the source is not there or cannot be uploaded, or the path leads out of the working directory.
        ApiError: the job was placed before.
    """
    if not source.exists():
        raise BadInput(str(source), "there is no such file", "a file or a folder")
    at = posixpath.join(path, source.name) if not path or path.endswith("/") else path
    if at.startswith("/") or ".." in at.split("/"):
        raise BadInput(f"{job}:{path}", "it leads out of the job's working directory", "a path below it")
    limits = Limits(**cell.upload_limits())
    chosen = select(source, limits.files) if source.is_dir() else select_file(source)
    found = placed_at(chosen, posixpath.normpath(at) if at else "")
    known_as = cell.job(job)["spec"].get("code_id")
    with tempfile.TemporaryDirectory() as folder:
        onto = Path(folder) / "before.tar.gz" if known_as else None
        if onto is not None:
            cell.save_code(known_as, onto)
        changed = cell.change_code(job, cell.upload_code(pack(found, limits, onto)))
    tell(f"{found.size()} added to {changed['id']}")
    if changed["attempt"] and changed["placed_s"] is not None:
        tell(f"it was placed in this moment: attempt {changed['attempt']} runs without them")


def _selected(workdir: Path | None, limits: Limits) -> Selection:
    """What is uploaded. A home directory is uploaded only when it is named: it is large, and holds secrets."""
    here = Path.cwd()
    if workdir is None and here in (Path.home(), Path("/")):
        tell(f"{here} is not uploaded: it is no directory of a job alone (--workdir . uploads it)")
        return Selection(here, [], [])
    found = select(workdir or here, limits.files)
    for phrase in found.left_out:
        tell(f"not uploaded: {phrase}")
    return found


def _uploaded(cell: Client, found: Selection, limits: Limits) -> str:
    """The id of what was selected. What the cell has already is not sent again."""
    archive = pack(found, limits)
    known_as = code_id(hashlib.sha256(archive).digest())
    if cell.has_code(known_as):
        tell(f"{found.folder}: {found.size()}, not sent: the cell has it already")
        return known_as
    tell(f"uploading {found.folder}: {found.size()}, {bytes_of(len(archive))} packed")
    return cell.upload_code(archive)
