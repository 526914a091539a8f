"""From an empty directory to a verified log."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.cli.demo import workload
from libs.cli.demo.view import screen, summary
from libs.client import Client
from libs.client.client import FINAL
from libs.inspect.sources import open_log
from libs.inspect.verify import Verification, verify
from libs.runtime.roster import roster

ASK_EVERY_S = 0.5
GIVE_UP_AFTER_S = 230.0
LOG = "log.jsonl"
"""The exported log, in the state directory."""
AGENTS, GPUS = 2, 4


def run(kafka: str | None, keep: Path | None, steps: int | None = None, *, auth: bool = True) -> int:
    """Run the demonstration.

    Args:
        kafka: None for the embedded log; the brokers; or an empty text for a broker of the cell's own.
        keep: where the state stays; None: in a temporary directory that is removed.
        steps: how long jobs train that are expected to succeed; None: as long as it takes to see them at work.
        auth: whether requests need the cell's token.

    Returns:
        0 when every job ended as expected and the audit found no difference, else 1.
    """
    console = Console(soft_wrap=not sys.stdout.isatty())
    state_dir = keep or Path(tempfile.mkdtemp(prefix="sanjaya-demo-"))
    plan = CellPlan(
        state_dir=state_dir.absolute(),
        cell=f"demo-{int(time.time())}" if kafka else "demo",
        kafka=kafka,
        agents=AGENTS,
        gpus_per_agent=GPUS,
        gateway_port=free_port(),
        auth=auth,
    )
    try:
        return _run(plan, console, steps)
    finally:
        if keep is None:
            shutil.rmtree(state_dir, ignore_errors=True)


def _run(plan: CellPlan, console: Console, steps: int | None) -> int:
    news: list[str] = []

    def say(text: str) -> None:
        news.append(text)
        if not console.is_terminal:
            console.print(text)

    console.print(f"starting a cell with {AGENTS} nodes of {GPUS} virtual GPUs on {_bus_name(plan)} …")
    with Cell(plan, say) as cell, Client(cell.plan.gateway_url, cell.token()) as client:
        console.print(f"page: {cell.page_link()}", highlight=False)
        expected = _submit(client, steps)
        began = time.monotonic()
        _follow(cell, client, expected, console, news, began)
        jobs = {job_id: client.job(job_id) for job_id in expected}
        console.print(summary(list(jobs.values()), time.monotonic() - began))
        _story(console, client, jobs)
        log = plan.state_dir / LOG
        with log.open("wb") as file:
            file.writelines(client.export())
        result = _audit(log, console)
    wrong = [
        f"{job['name']} ({job['state']}, not {expected[job_id]})"
        for job_id, job in jobs.items()
        if job["state"] != expected[job_id]
    ]
    if wrong:
        console.print(f"[red]ended otherwise than expected: {', '.join(wrong)}[/red]")
    return 0 if not wrong and result.ok else 1


def _bus_name(plan: CellPlan) -> str:
    return "the embedded log" if plan.kafka is None else "Apache Kafka"


def _submit(client: Client, steps: int | None) -> dict[str, str]:
    """Set the tenants' limits and submit everything. Returns {job id: expected final state}."""
    work = workload.read(steps=steps)
    for name, gpus in work.tenants.items():
        client.set_tenant(name, gpus)
    return {client.submit(job.request)["id"]: job.expect for job in work.jobs}


def _follow(
    cell: Cell, client: Client, expected: dict[str, str], console: Console, news: list[str], began: float
) -> None:
    """Show the cell until every job has ended; cancel those that are there to be cancelled."""
    told: dict[str, str] = {}
    cancelled: list[str] = []
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            cell.require_supervisor()
            jobs = [job for job in client.jobs() if job["id"] in expected][::-1]
            for job in jobs:
                if job["labels"].get("demo") == "cancel" and job["minibatches"] and job["id"] not in cancelled:
                    client.cancel(job["id"], grace_s=3, note="the demonstration has seen enough")
                    cancelled.append(job["id"])
            elapsed_s = time.monotonic() - began
            if console.is_terminal:
                live.update(screen(jobs, client.gpus(), elapsed_s, news), refresh=True)
            else:
                _tell_changes(jobs, told, elapsed_s)
            if all_ended(jobs, expected) or elapsed_s > GIVE_UP_AFTER_S:
                return
            time.sleep(ASK_EVERY_S)


def all_ended(listed: list[dict[str, Any]], expected: Collection[str]) -> bool:
    """Whether every job has ended: one that is not listed has been accepted, and the read models lack it still."""
    return {job["id"] for job in listed if job["state"] in FINAL} >= set(expected)


def _tell_changes(jobs: list[dict[str, Any]], told: dict[str, str], elapsed_s: float) -> None:
    """One plain line per change of state."""
    for job in jobs:
        if told.get(job["id"]) != job["state"]:
            told[job["id"]] = job["state"]
            print(
                f"{elapsed_s:6.1f} s  {job['name']:<18}{job['state']:<11}{job['where'] or ''}  {job['message']}",
                flush=True,
            )


def _story(console: Console, client: Client, jobs: dict[str, dict[str, Any]]) -> None:
    """Of the job with most attempts."""
    chosen = max(jobs.values(), key=lambda job: (job["attempt"], job["submitted_s"]))
    console.print(f"\nThe story of {chosen['name']} ({chosen['id']}):", style="bold")
    for line in client.story(chosen["id"])["lines"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _audit(log: Path, console: Console) -> Verification:
    """Replay the whole log and compare."""
    with open_log(str(log), cell="") as exported:
        result = verify(exported, roster().SERVICES)
    style = "bold green" if result.ok else "bold red"
    console.print(f"\naudit: {result.summary}", style=style)
    if result.first is not None:
        console.print("\n".join(result.first.lines()), markup=False)
    return result
