"""`drain`: what becomes of each job of a node, told before it is done; and the wait for the node to be empty."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from libs.cli.context import FAILED, fail
from libs.cli.output import count, duration, is_terminal
from libs.client import Client
from libs.kernel.words import counted

THERE = ("STARTING", "RUNNING", "SUSPENDED", "MIGRATING", "STOPPING")
"""States of jobs with tasks on nodes."""
AT_ONCE = 100
"""Jobs in one request: a URL has no room for all."""
STARTED, MOVABLE = "job.started.v1", "job.movable.v1"


@dataclass(frozen=True)
class OnNode:
    """A job with a task on a node that is to be drained."""

    id: str
    name: str
    gpus: int
    state: str
    restartable: bool
    """It starts again from a checkpoint."""
    movable: bool
    """All of its tasks can hand over their state."""
    ran_s: float
    """Since its processes were started last."""
    minibatches: int
    held: bool = False
    """Its user has paused it."""


def fate(job: OnNode, *, moves_live: bool, now: bool) -> str:
    """What becomes of a job when its node is drained (`NodeDrainRequested`).

    Args:
        moves_live: of the policy in force; under one that does not, rounds take jobs to other nodes.
        now: whether jobs that would start again from zero leave at once, too.
    """
    again = "starts again from zero elsewhere"
    if job.minibatches:
        lost = f"{again}: {count(job.minibatches)} mini-batches in {duration(job.ran_s)} are lost"
    else:
        lost = f"{again}: {duration(job.ran_s)} of work is lost"
    if job.restartable:
        return "saves, and starts again from its checkpoint elsewhere"
    if not moves_live:
        return lost
    if job.held and not now:
        return "stays paused here, and goes on elsewhere when it is resumed, or here when the node is used again"
    if job.movable:
        return f"moves with its state; where there is no room {lost if now else 'it stays to its end'}"
    if now:
        return lost
    return "runs on here to its end, and loses nothing"


def jobs_on(cell: Client, node: str) -> list[OnNode]:
    """The jobs with a task on a node, in order of arrival."""
    live = {job["id"]: job for job in cell.jobs(state=list(THERE))}
    if not live:
        return []
    ids = list(live)
    asked = [ids[begin : begin + AT_ONCE] for begin in range(0, len(ids), AT_ONCE)]
    said = [event for some in asked for event in cell.events(job=some, type=[STARTED, MOVABLE])]
    found = []
    for job_id, job in reversed(live.items()):
        started = _nodes(said, STARTED, job)
        if node in started | {task["node_id"] for task in job["placement"]}:
            movable = bool(started) and started <= _nodes(said, MOVABLE, job)
            found.append(_on_node(job, restartable=cell.job(job_id)["spec"]["restartable"], movable=movable))
    return found


def _nodes(said: Iterable[dict[str, Any]], kind: str, job: dict[str, Any]) -> set[str]:
    """Nodes where the task of the job's latest attempt has said this."""
    datas = (event["data"] for event in said if event["type"] == kind)
    return {data["node_id"] for data in datas if (data["job_id"], data["attempt"]) == (job["id"], job["attempt"])}


def _on_node(job: dict[str, Any], *, restartable: bool, movable: bool) -> OnNode:
    return OnNode(
        id=job["id"],
        name=job["name"],
        gpus=job["gpus"],
        state=job["state"],
        restartable=restartable,
        movable=movable,
        ran_s=max(0.0, time.time() - (job["started_s"] or time.time())),
        minibatches=job["minibatches"],
        held=job["held"],
    )


def agreed(node: str, jobs: Sequence[OnNode], fates: Sequence[str], *, yes: bool) -> None:
    """Show what becomes of the jobs, on stderr, and ask on a terminal.

    Raises:
        typer.Abort: the answer is no.
    """
    typer.echo(f"{node} has {counted(len(jobs), 'job')}:", err=True)
    for job, becomes in zip(jobs, fates, strict=True):
        typer.echo(f"  {job.id}  {job.name}  {counted(job.gpus, 'GPU')}  {job.state}: {becomes}", err=True)
    if jobs and not yes and is_terminal() and sys.stdin.isatty():
        typer.confirm(f"drain {node}?", abort=True)


def wait_until_empty(cell: Client, node: str, offset: int) -> None:
    """Follow the log until the node is empty, and say which jobs are left whenever that changes.

    Ends with exit code 1 when the node is used again meanwhile.

    Args:
        offset: of the event that asks for it.
    """
    left: list[str] | None = None
    for state, jobs in _seen(cell, node, offset):
        if state not in ("DRAINING", "DRAINED"):
            fail(f"{node} is not drained any more: it is {state or 'gone'}", FAILED, f"sanjaya drain {node}")
        if state == "DRAINED":
            return
        if jobs != left:
            left = jobs
            typer.echo(f"waiting for {counted(len(jobs), 'job')}: {', '.join(jobs)}", err=True)


def _seen(cell: Client, node: str, offset: int) -> Iterator[tuple[str, list[str]]]:
    """State of the node, and the jobs there, as of each event that can have changed them."""
    for event in cell.events(follow=True, from_offset=offset):
        if _may_matter(event, (node,)):
            [found] = [each for each in cell.nodes(at_least_offset=event["offset"]) if each["id"] == node] or [{}]
            yield found.get("state", ""), [job.id for job in jobs_on(cell, node)] if found else []


def _may_matter(event: dict[str, Any], nodes: Collection[str]) -> bool:
    data = event["data"]
    return data.get("node_id") in nodes or event["type"].startswith(("job.queued", "job.moved", "job.cancelled"))
