"""From what a user types, or has in a file, to a job request."""

from __future__ import annotations

import gzip
import io
import re
import shlex
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from libs.contracts.bad_input import BadInput

Request = dict[str, Any]

DIRECTIVE = re.compile(r"^#(?:SBATCH|SANJAYA)\s+(.*)$")
SBATCH = {
    "job-name": "name",
    "J": "name",
    "gpus": "gpus",
    "G": "gpus",
    "time": "time_limit_s",
    "t": "time_limit_s",
    "partition": "tenant",
    "p": "tenant",
    "account": "tenant",
    "A": "tenant",
    "chdir": "working_dir",
    "D": "working_dir",
    "tenant": "tenant",
    "priority": "priority",
    "max-retries": "max_retries",
}
"""{directive: field of the request}."""
NUMBERS = ("priority", "max_retries")
ALWAYS_IGNORED = (".git", "__pycache__", "*.pyc", ".venv")


def from_file(path: str) -> Request:
    """A job from YAML or JSON (`-`: standard input), or from a script with `#SBATCH` or `#SANJAYA` lines.

    Raises:
        BadInput: the file is not there, or is no such document; the message says where and what was expected.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(path, str(error), "a job file or a script") from None
    if path != "-" and text.startswith("#!"):
        return from_script(Path(path), text)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(path, str(error).replace("\n", " "), "YAML or JSON") from None
    if not isinstance(document, dict):
        raise BadInput(path, f"a {type(document).__name__}", "an object with at least `command`")
    return document


def from_script(path: Path, text: str) -> Request:
    """A batch script: its directives are the request, the script itself is the command."""
    request: Request = {"name": path.stem, "command": ["/bin/bash", str(path.absolute())]}
    request["working_dir"] = str(Path.cwd())
    for number, line in enumerate(text.splitlines(), start=1):
        if match := DIRECTIVE.match(line):
            _apply_directives(request, match.group(1), f"{path}:{number}")
    return request


def _apply_directives(request: Request, text: str, where: str) -> None:
    words = shlex.split(text.split(" #")[0])
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("-") else ""
        field = SBATCH.get(name)
        if field is None:
            print(f"warning: {where}: {word} has no meaning here and is ignored", file=sys.stderr)
        elif field in NUMBERS and not value.lstrip("-").isdigit():
            raise BadInput(where, f"{word} {value!r}", "a whole number")
        else:
            request[field] = int(value) if field in NUMBERS else value


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


def pack(folder: Path) -> bytes:
    """A tar.gz of a directory, without what `.sanjayaignore` names (one shell pattern per line).

    The same files give the same bytes, so that they are stored once.

    Raises:
        BadInput: there is no such directory.
    """
    if not folder.is_dir():
        raise BadInput("--workdir", f"{folder} is no directory", "a directory to upload")
    ignore_file = folder / ".sanjayaignore"
    lines = ignore_file.read_text().splitlines() if ignore_file.exists() else []
    ignored = [*ALWAYS_IGNORED, *(line.strip() for line in lines if line.strip() and not line.startswith("#"))]
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not _is_ignored(name, ignored):
                tar.add(path, arcname=str(name), filter=_anonymous)
    return buffer.getvalue()


def _is_ignored(name: Path, patterns: list[str]) -> bool:
    return any(fnmatch(part, p.rstrip("/")) for p in patterns for part in name.parts) or any(
        fnmatch(str(name), pattern) for pattern in patterns
    )


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member
