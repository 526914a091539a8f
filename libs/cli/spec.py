"""From what a user types, or has in a file, to a job request."""

from __future__ import annotations

import sys
from pathlib import Path

from libs.cli.scripts import Request, from_script
from libs.contracts.bad_input import BadInput


def from_file(path: str) -> Request:
    """A job, or a DAG (`dag_of`), from YAML or JSON (`-`: standard input).

    Or a job from a script with `#SBATCH` or `#SANJAYA` lines.

    Raises:
        BadInput: the file is not there, or is no such document; the message says where and what was expected.
    """
    text = _read(path, "a job file or a script")
    if text.startswith("#!"):
        if path == "-":
            return from_script(text, "standard input", ["/bin/bash", "-c", text], "script")
        return from_script(text, path, ["/bin/bash", str(Path(path).absolute())], Path(path).stem)
    from libs.cli.documents import document

    return document(text, path, "an object with at least `command`, or with `jobs`")


def dag_of(document: Request, path: str) -> Request | None:
    """The DAG that a file has: an object with `jobs`, a list or {name: job}. None: the file is about one job.

    Raises:
        BadInput: it has jobs that are none.
    """
    if "jobs" not in document:
        return None
    jobs = document["jobs"]
    if isinstance(jobs, dict):
        jobs = [{"name": name, **job} if isinstance(job, dict) else job for name, job in jobs.items()]
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        expected = "a list of jobs with names, or an object {name: job}"
        raise BadInput(f"{path}: jobs", f"{document['jobs']!r:.100}", expected)
    named = {} if path == "-" else {"name": Path(path).stem}
    return {**named, **document, "jobs": jobs}


def sweep_from_file(path: str) -> Request:
    """A sweep from YAML or JSON (`-`: standard input).

    Raises:
        BadInput: the file is not there, or is no such document; the message says where and what was expected.
    """
    expected = "an object with `trial`, `space`, `objective` and `trials`"
    from libs.cli.documents import document

    sweep = document(_read(path, "a sweep file"), path, expected)
    if not isinstance(sweep.get("trial"), dict):
        raise BadInput(f"{path}: trial", f"{sweep.get('trial')!r:.100}", "a job: an object with at least `command`")
    return sweep


def _read(path: str, expected: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(path, str(error), expected) from None


def pairs(texts: list[str], flag: str) -> dict[str, str]:
    """`K=V` arguments.

    Raises:
        BadInput: one without `=`.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInput(flag, repr(text), "NAME=VALUE")
        found[key] = value
    return found


def rates(texts: list[str], flag: str) -> dict[str, float]:
    """`TYPE=STEPS` arguments.

    Raises:
        BadInput: one that is no such pair.
    """
    found = {}
    for gpu_type, text in pairs(texts, flag).items():
        try:
            found[gpu_type] = float(text)
        except ValueError:
            raise BadInput(flag, repr(f"{gpu_type}={text}"), "TYPE=STEPS, such as v100=12.5") from None
    return found
