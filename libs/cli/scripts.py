"""Batch scripts: the `#SBATCH` and `#SANJAYA` lines at their head are the request, the script is the command.

As with Slurm, a batch script is run once per node and not once per GPU; `srun`, or another launcher in it, starts the
ranks. A script without such lines that starts no ranks either is a command like any other.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libs.contracts.bad_input import BadInput
from libs.kernel.launchers import found_in
from libs.kernel.words import bytes_in

Request = dict[str, Any]

DIRECTIVE = re.compile(r"#(SBATCH|SANJAYA)\s+(.*)")
SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm")
"""Of files that are taken for batch scripts."""
SLURM_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def _text(text: str) -> Any:
    return text


def _number(text: str) -> Any:
    return int(text)


def slurm_seconds(text: str) -> float:
    """`30` and `30:00` are minutes, `1:30:00` hours, `2-12` and `2-12:00` days and hours.

    Raises:
        ValueError: none of these.
    """
    found = SLURM_TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def _memory(text: str) -> Any:
    """As with Slurm, a number without a unit counts MiB."""
    found = bytes_in(text, "M")
    if found is None:
        raise ValueError(text)
    return found


def _gres(text: str) -> Any:
    """`gpu:2` and `gpu:v100:2`."""
    kind, _, gpus = text.partition(":")
    if kind != "gpu" or not gpus:
        raise ValueError(text)
    return gpus


_SLURMS_CONDITIONS = {"afterok": "ok", "afterany": "any", "afternotok": "fail"}


def _dependency(text: str) -> Any:
    """`afterok:ID:ID,afterany:ID`: all of them; Slurm's other kinds, and `?` for any of them, have no counterpart."""
    found = []
    for part in text.split(","):
        kind, *ids = part.split(":")
        if kind not in _SLURMS_CONDITIONS or not all(ids) or not ids or "?" in part:
            raise ValueError(part)
        found += [f"{job}:{_SLURMS_CONDITIONS[kind]}" for job in ids]
    return found


Field = tuple[str, Callable[[str], Any], str]
"""Member of the request, how it is read, and what was expected."""

OURS: dict[str, Field] = {
    "name": ("name", _text, "a name"),
    "n": ("name", _text, "a name"),
    "gpus": ("gpus", _text, "a number, or type:number"),
    "tenant": ("tenant", _text, "a name"),
    "q": ("tenant", _text, "a name"),
    "queue": ("tenant", _text, "a name"),
    "time": ("time_limit_s", _text, "a time"),
    "priority": ("priority", _number, "a whole number"),
    "max-retries": ("max_retries", _number, "a whole number"),
    "elastic": ("elastic", _text, "least:most"),
    "class": ("class", _text, "guaranteed"),
    "launch": ("launcher", _text, "per-gpu or per-node"),
    "workdir-on-node": ("working_dir", _text, "a directory"),
    "env-file": ("env_file", _text, "a file"),
    "setup": ("setup", _text, "a command"),
    "python": ("python", _text, "an interpreter"),
    "venv": ("venv", _text, "a directory"),
    "conda": ("conda", _text, "a name or a prefix"),
    "image": ("image", _text, "an image"),
    "mount": ("mounts", _text, "DATA[:PATH]"),
    "array": ("array", _text, "indices such as 0-99%4"),
    "a": ("array", _text, "indices such as 0-99%4"),
    "after": ("after", _text, "JOB[:ok|any|fail], with commas between"),
    "cpus": ("cpus", _number, "a whole number"),
    "mem": ("memory_bytes", _text, "a size such as 32GB"),
}
"""{directive of #SANJAYA: what it sets}: the names of our own flags."""
CPUS_PER_TASK, MEMORY_PER_NODE = "cpus per task", "memory per node"
"""What Slurm counts otherwise: no members of a request, `_per_gpu` makes some of them."""
REPEATED = ("env_file", "mounts")
"""Members to which each directive adds."""
MINUTES = "minutes, hours:minutes:seconds or days-hours"
SLURMS: dict[str, Field] = {
    "job-name": ("name", _text, "a name"),
    "J": ("name", _text, "a name"),
    "gpus": ("gpus", _text, "a number, or type:number"),
    "G": ("gpus", _text, "a number, or type:number"),
    "gres": ("gpus", _gres, "gpu:number, or gpu:type:number"),
    "time": ("time_limit_s", slurm_seconds, MINUTES),
    "t": ("time_limit_s", slurm_seconds, MINUTES),
    "partition": ("tenant", _text, "a name"),
    "p": ("tenant", _text, "a name"),
    "account": ("tenant", _text, "a name"),
    "A": ("tenant", _text, "a name"),
    "chdir": ("working_dir", _text, "a directory"),
    "D": ("working_dir", _text, "a directory"),
    "array": ("array", _text, "indices such as 0-99%4"),
    "a": ("array", _text, "indices such as 0-99%4"),
    "dependency": ("after", _dependency, "afterok:ID, afterany:ID or afternotok:ID, with commas between"),
    "d": ("after", _dependency, "afterok:ID, afterany:ID or afternotok:ID, with commas between"),
    "cpus-per-task": (CPUS_PER_TASK, _number, "a whole number"),
    "c": (CPUS_PER_TASK, _number, "a whole number"),
    "mem": (MEMORY_PER_NODE, _memory, "a size such as 64G; a number alone counts MiB"),
    "cpus-per-gpu": ("cpus", _number, "a whole number"),
    "mem-per-gpu": ("memory_bytes", _memory, "a size such as 32G; a number alone counts MiB"),
}
"""The same of #SBATCH."""
TASKS = {"ntasks": "SLURM_NTASKS", "n": "SLURM_NTASKS", "ntasks-per-node": "SLURM_NTASKS_PER_NODE"}
"""{directive of #SBATCH: the variable that tells `srun`, as with Slurm, how many ranks there are}."""


def is_script(word: str) -> bool:
    """Whether the first word of a command is a batch script."""
    return word.endswith(SUFFIXES) and Path(word).is_file()


def from_script(text: str, where: str, command: list[str], name: str) -> Request:
    """The request that stands in a script.

    Args:
        text: of the script.
        where: its name, for messages.
        command: what runs it.
        name: of the job, unless the script says otherwise.

    Raises:
        BadInput: a directive has a value that makes no sense; the message says in which line.
    """
    request: Request = {"name": name, "command": command, "working_dir": str(Path.cwd())}
    per_node = found_in(text) is not None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            break  # as with Slurm: directives stand before the first command
        if match := DIRECTIVE.fullmatch(line.rstrip()):
            per_node = True
            _apply(request, match.group(2), OURS if match.group(1) == "SANJAYA" else SLURMS, f"{where}:{number}")
    _per_gpu(request, where)
    return {"launcher": "per-node", **request} if per_node else request


def _per_gpu(request: Request, where: str) -> None:
    """CPUs for each rank and memory of a node, as Slurm counts them, by the GPUs; what is said per GPU wins.

    The job is taken to be on one node. What leaves nothing for a GPU is ignored, with a word.
    """
    ranks = max((int(request.get("env", {}).get(name, 1)) for name in TASKS.values()), default=1)
    text = str(request.get("gpus", 1)).rpartition(":")[2]
    gpus = int(text) if text.isdecimal() and int(text) else 1
    for given, member, times in ((CPUS_PER_TASK, "cpus", ranks), (MEMORY_PER_NODE, "memory_bytes", 1)):
        amount = request.pop(given, None)
        if amount is None or member in request:
            continue
        if amount * times // gpus:
            request[member] = amount * times // gpus
        else:
            print(f"warning: {where}: {given} {amount} is too little for {gpus} GPUs and is ignored", file=sys.stderr)


def _apply(request: Request, text: str, known: dict[str, Field], where: str) -> None:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise BadInput(where, str(error), "words as for a shell") from None
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("-") else ""
        if known is SLURMS and name in TASKS:
            if not value.isdecimal() or int(value) == 0:
                raise BadInput(where, f"{word} {value!r}", "a number of ranks")
            request.setdefault("env", {})[TASKS[name]] = value
            continue
        if name not in known:
            print(f"warning: {where}: {word} has no meaning here and is ignored", file=sys.stderr)
            continue
        member, read, expected = known[name]
        try:
            request[member] = [*request.get(member, []), read(value)] if member in REPEATED else read(value)
        except ValueError:
            raise BadInput(where, f"{word} {value!r}", expected) from None
