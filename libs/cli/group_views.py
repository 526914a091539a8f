"""Arrays and DAGs in words and numbers, for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from libs.cli.output import age
from libs.client.client import FINAL
from libs.kernel.words import counted

Row = dict[str, Any]


def counts_of(group: Row) -> str:
    """`312 of 1000 ended: 4 running, 684 queued, 310 succeeded, 2 failed`."""
    ended = sum(group["counts"].get(state, 0) for state in FINAL)
    ordered = sorted(group["counts"].items(), key=lambda item: item[0] in FINAL)
    states = ", ".join(f"{number} {state.lower()}" for state, number in ordered)
    return f"{ended} of {group['jobs']} ended{f': {states}' if states else ''}"


def as_row(job: Row) -> Row:
    """The row of a listing: an array or a DAG in place of its first job, which stands for it there."""
    group = job.pop("group", None)
    if group is None:
        return job
    words = counts_of(group)
    row: Row = {**job, **group, "message": words, "reason": words, "where": words, "deciding_line": None}
    of_jobs = dict.fromkeys(
        ("queue_position", "minibatches", "rate_per_s", "loss", "loss_nonfinite", "converged_epoch")
    )
    return row | of_jobs | {"held": False, "notices": {}, "status": ""}


def described(group: Row, jobs: list[Row]) -> list[str]:
    """An array or a DAG line by line, without its jobs."""
    fields = [
        (group["kind"], f"{group['id']}  {group['name']}"),
        ("state", f"{group['state']}: {counts_of(group)}"),
        ("at once", f"at most {counted(group['at_once'], 'job')}" if group["at_once"] else ""),
        ("owner", f"tenant {group['tenant']}, user {group['user']}"),
        ("waits for", waits_of(jobs[0]) if jobs and group["kind"] == "array" else ""),
        ("submitted", f"{age(group['submitted_s'])} ago"),
    ]
    width = max(len(name) for name, text in fields if text)
    return [f"{name:<{width}}  {text}" for name, text in fields if text]


def waits_of(job: Row) -> str:
    """What a job has, or had, to wait for: `j-7f3a to succeed, a-9kq2 to end`."""
    how = {"ok": "to succeed", "any": "to end", "fail": "to fail"}
    return ", ".join(f"{dependency['on']} {how[dependency['condition']]}" for dependency in job["after"])


def reasons(jobs: list[Row], most: int = 10) -> list[str]:
    """How many jobs are where they are for the same reason, the most frequent first."""
    same = Counter((job["state"], job["message"], job["reason"]) for job in jobs)
    lines = [
        f"{counted(times, 'job'):<12} {state}: {message} ({reason})"
        for (state, message, reason), times in same.most_common(most)
    ]
    return lines + ([f"and {counted(len(same) - most, 'other reason')}"] if len(same) > most else [])
