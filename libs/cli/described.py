"""One job in words and numbers, for people."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

from libs.cli.group_views import waits_of
from libs.cli.output import age, count, duration, loss, pace
from libs.kernel.words import bytes_of, either, plural

Row = dict[str, Any]
SHOWN = 10
"""Attempts that are shown, the last ones; all with `-o wide`."""


def description(job: Row, *, wide: bool = False) -> list[str]:
    """What it is, how it is, and its attempts, line by line."""
    fields = [(name, text) for name, text in _fields(job, wide=wide) if text]
    width = max(len(name) for name, _ in fields)
    lines = [f"{name:<{width}}  {text}" for name, text in fields]
    attempts = job["attempts"] if wide else job["attempts"][-SHOWN:]
    return lines + [f"{'attempt ' + str(a['attempt']):<{width}}  {attempt(a)}" for a in attempts]


def _fields(job: Row, *, wide: bool) -> Iterator[tuple[str, str]]:
    spec = job["spec"]
    place = f", place {job['queue_position']}" if job["queue_position"] else ""
    yield "job", f"{job['id']}  {job['name']}"
    yield "state", f"{job['state']}{place}: {job['message']} ({job['reason']})"
    yield "status", job.get("status", "")
    yield "where", job["where"]
    for code, message in job.get("notices", {}).items():
        yield "notice", f"{message} ({code})"
    yield "failure", f"{job['failure']} ({job['failure_category']}): {job['deciding_line']}" if job["failure"] else ""
    yield "exit", _exit(job)
    yield "owner", f"tenant {job['tenant']}, user {job['user']}"
    yield "gpus", " ".join([str(job["gpus"]), ",".join(job["gpu_types"])]).strip()
    yield "cpus", _each(spec.get("cpus"), str, job)
    yield "memory", _each(spec.get("memory_bytes"), bytes_of, job)
    if len(job["widths"]) > 1:
        most = job["max_gpus"] or job["widths"][-1]
        yield "elastic", f"may have {either([width for width in job['widths'] if width <= most], 'GPU')}"
    yield "restartable", "keeps its work when it is stopped" if spec.get("restartable") else ""
    role = f", {job['role']} on its GPUs" if job["role"] == "guest" else ""
    yield "class", f"{job['class']}, priority {job['priority']}{role}{', paused' if job['held'] else ''}"
    yield "command", shlex.join(spec["command"])
    yield "directory", spec.get("code_id") or spec.get("working_dir") or ""
    yield "setup", spec.get("setup", "")
    yield "runs in", _runs_in(spec)
    yield "data", ", ".join(f"{name}:{path}" if path else name for name, path in spec.get("mounts", {}).items())
    yield "waits for", waits_of(job)
    yield "part of", job["group_id"] or ""
    yield "on the node", job["folder"] or ""
    yield "keeps", job["output_folder"] or ""
    yield "labels", ", ".join(f"{name}={value}" for name, value in job["labels"].items())
    yield "progress", _progress(job)
    yield "converged", _converged(job)
    retries = job.get("retries_used", job["failed_attempts"])  # of a gateway of before: as it was
    yield "retries", f"{retries} of {job['max_retries']}" if job["max_retries"] else ""
    yield "preemptions", str(job["preemptions"] or "")
    yield "submitted", f"{age(job['submitted_s'])} ago by {job['submitted_by']}"
    if wide:
        yield "environment", " ".join(f"{name}={shlex.quote(value)}" for name, value in spec.get("env", {}).items())
        yield "decided by", f"{job['reason_source']} at offset {job['reason_offset']}"


def _each(asked: int | None, in_words: Callable[[int], str], job: Row) -> str:
    """What it asks for of the host, for each GPU and together; empty for nothing."""
    if asked is None:
        return ""
    return f"{in_words(asked)} for each GPU, {in_words(asked * job['gpus'])} together"


def _runs_in(spec: Row) -> str:
    """The environment that the job has named."""
    named = {"image": "image", "venv": "virtual environment", "conda": "conda environment", "python": "interpreter"}
    return ", ".join(f"{words} {spec[field]}" for field, words in named.items() if spec.get(field))


def _progress(job: Row) -> str:
    if not job["minibatches"]:
        return ""
    peak = f", memory {bytes_of(job['memory_peak_bytes'])}" if job["memory_peak_bytes"] else ""
    done = f"{count(job['minibatches'])} {plural(job['minibatches'], 'mini-batch', 'mini-batches')}"
    return f"{done}, {pace(job)}, loss {loss(job)}{peak}"


def _converged(job: Row) -> str:
    if job.get("converged_epoch") is None:
        return ""
    since = f"{job['gpu_s_since_converged']:.1f} GPU seconds after that when it was found"
    return (
        f"at epoch {job['converged_epoch']:g}; best loss {job['best_loss']:.6g} at epoch {job['best_epoch']:g}; {since}"
    )


def attempt(row: Row) -> str:
    """Where, how long, and how it ended."""
    where = ", ".join(
        f"{task['node_id']}:{','.join(str(gpu) for gpu in task['gpu_indices'])}" for task in row["placement"]
    )
    if row["ended_s"] is None:
        return f"{where}, since {age(row['started_s'] or row['placed_s'])}"
    lasted = duration(row["ended_s"] - (row["started_s"] or row["placed_s"]))
    used = f"{row['gpu_s']:.1f} GPU seconds"
    return ", ".join(part for part in (where, lasted, used, row["outcome"], _exit(row), row["message"]) if part)


def _exit(row: Row) -> str:
    if row["signal"]:
        return f"signal {row['signal']}"
    return "" if row["exit_code"] is None else f"code {row['exit_code']}"
