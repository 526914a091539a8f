"""The options that describe a job, one list for `submit` and `run`.

Most come from the table of a job's fields; here are those that are read in a way of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from libs.cli import spec
from libs.cli.env_files import all_variables
from libs.contracts.bad_input import BadInput
from libs.contracts.job_fields import JOB_FIELDS, type_of
from libs.contracts.jobs import JobSpec

Given = dict[str, Any]
"""{parameter: what was given}; None: it was not."""

Workdir = Annotated[Path | None, typer.Option(help="Directory to upload and run in; by default this one.")]
NoUpload = Annotated[bool, typer.Option("--no-upload", help="Upload nothing: run in an empty directory.")]

WHAT_RUNS: dict[str, Any] = {
    "command": Annotated[
        list[str] | None, typer.Argument(help="Behind `--`: the command; or a script with #SBATCH lines.")
    ],
    "file": Annotated[str | None, typer.Option("-f", "--file", help="Job as YAML or JSON; - for standard input.")],
}
HOW_IT_STANDS: dict[str, Any] = {
    "array": Annotated[
        str | None,
        typer.Option("-a", "--array", help="A job per index: 0-99, 1,3,7, 0-99:10; 0-99%4: four at once."),
    ],
    "after": Annotated[
        list[str] | None,
        typer.Option(help="JOB[:ok|any|fail]: what has to end before: jobs, arrays, DAGs; commas, or repeat."),
    ],
}
"""How the job stands to others."""
READ_OTHERWISE: dict[str, dict[str, Any]] = {
    "gpus": {"nodes": Annotated[int | None, typer.Option(help="Most servers to spread over.")]},
    "env": {
        "env": Annotated[list[str] | None, typer.Option(help="Variable of its environment, NAME=VALUE; repeat.")],
        "env_file": Annotated[
            list[str] | None, typer.Option(help="File of NAME=VALUE lines; repeat. --env outweighs it.")
        ],
    },
    "code_id": {"workdir": Workdir, "no_upload": NoUpload},
    "time_limit_s": {
        "time": Annotated[str | None, typer.Option(help="Limit of one attempt: seconds, or H:MM:SS.")],
    },
    "labels": {
        "label": Annotated[list[str] | None, typer.Option("-l", "--label", help="To find it by, NAME=VALUE; repeat.")]
    },
    "throughputs": {
        "rate": Annotated[list[str] | None, typer.Option(help="TYPE=STEPS a second alone on this GPU type; repeat.")],
    },
    "data": {
        "data_schema": Annotated[
            Path | None,
            typer.Option("--data-schema", help="What its data is like: JSON Schema of a row, or Arrow schema."),
        ],
        "data": Annotated[
            list[str] | None, typer.Option("--data", help="Files, folders or patterns with its data; repeat.")
        ],
        "data_on_nodes": Annotated[
            bool, typer.Option("--data-on-nodes", help="Only the nodes have the data: it is not looked for here.")
        ],
    },
    "when_converged": {
        "stop_when_converged": Annotated[
            bool, typer.Option("--stop-when-converged", help="Stop it when its loss improves no more.")
        ],
    },
    "mounts": {
        "mount": Annotated[
            list[str] | None, typer.Option(help="DATA[:PATH IN THE IMAGE]: data that nodes have by name; repeat.")
        ],
    },
}
"""{field of a job: the options that also say something about it}."""
_FIELDS = {field.name: field for field in msgspec.structs.fields(JobSpec)}


def _options() -> Iterator[tuple[str, Any]]:
    """Each parameter and its annotated type: what runs, then field by field."""
    yield from WHAT_RUNS.items()
    for name, row in JOB_FIELDS.items():
        if row.options:
            kind, _ = type_of(_FIELDS[name])
            # What is no number and no flag is text, which the gateway reads: it says best what is wrong with it.
            kind = kind if kind in (int, float, bool) and not row.has_forms else str
            yield name, Annotated[kind | None, typer.Option(*row.options, help=row.help or None)]
        yield from READ_OTHERWISE.get(name, {}).items()
    yield from HOW_IT_STANDS.items()


OPTIONS = dict(_options())


def describes_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Put the options of a job before a command's own; it is called with a `Given` first.

    typer reads the options of a command from its signature, so the command gets one that has them all.
    """
    own = list(signature(command, eval_str=True).parameters.values())[1:]
    job = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=OPTIONS[name]) for name in OPTIONS]

    @wraps(command)
    def called(**arguments: Any) -> None:
        command({name: arguments.pop(name) for name in OPTIONS}, **arguments)

    called.__signature__ = Signature([*job, *own])  # type: ignore[attr-defined]
    return called


def members(given: Given, request: dict[str, Any]) -> dict[str, Any]:
    """The members of a request that options give; what is added to comes from the request of the file.

    Raises:
        BadInput: text that is no pair.
    """
    found = {_FIELDS[name].encode_name: given[name] for name, row in JOB_FIELDS.items() if row.options}
    found["time_limit_s"] = given["time"]
    found["throughputs"] = spec.rates(given["rate"], "--rate") if given["rate"] else None
    found["array"] = given["array"]
    found |= data_of(given["data_schema"], given["data"] or [], on_nodes=bool(given["data_on_nodes"]))
    if given["stop_when_converged"]:
        found["when_converged"] = "stop"
    found["after"] = ",".join(given["after"]) if given["after"] else None
    found = {member: value for member, value in found.items() if value is not None}
    if given["nodes"] is not None:
        found["gpus"] = gpus_of(found.get("gpus", request.get("gpus", 1)), given["nodes"])
    if given["mount"]:
        found["mounts"] = given["mount"]
    if given["env_file"]:
        found["env"] = {**request.get("env", {}), **all_variables(given["env_file"])}
    for member, option in (("env", "env"), ("labels", "label")):
        if given[option]:
            before = found.get(member, request.get(member, {}))
            found[member] = {**before, **spec.pairs(given[option], f"--{option}")}
    return found


def data_of(schema: Path | None, data: list[str], *, on_nodes: bool) -> dict[str, Any]:
    """The members that say what data a job has, and what it is like.

    Raises:
        BadInput: the schema is none; there is no file of the data here, where it should be.
    """
    if schema is None and not data:
        return {}
    if not data:
        raise BadInput("--data-schema", "no --data", "the files that are to be as the schema says: --data PATH")
    from libs.datasets.checking import files_of, schema_text

    found: dict[str, Any] = {"data": data}
    if schema is not None:
        found["data_schema"] = schema_text(schema)
    if not on_nodes:
        files_of(data)
    return found


def gpus_of(wanted: Any, nodes: int | None) -> Any:
    """What is asked for, as it is written, or with a bound on the servers."""
    if nodes is None or not isinstance(wanted, dict | int | str):
        return wanted
    if isinstance(wanted, dict):
        return {**wanted, "max_nodes": nodes}
    types, _, number = str(wanted).rpartition(":")
    if not types and not number.lstrip("-").isdigit():
        types, number = number, "1"
    if not number.lstrip("-").isdigit():
        return wanted  # the gateway says what is wrong with it
    return {"count": int(number), **({"types": types.split(",")} if types else {}), "max_nodes": nodes}
