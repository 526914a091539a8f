"""Records what an agent stores, for tests/golden/test_old_agent_files.py; run with that code.

    cd TREE && PYTHONPATH=.:torch_agent/src python PATH/make.py STATE_DIR FOLDER

The agent of that code runs in STATE_DIR, where it finishes one task, fails another and trains a third; what it stores
goes to FOLDER, with an `expected.json` of what that code reads there. The paths get into the files: use neutral ones.
It shares no helper with tests: in the trees that it is run with they are others.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
from torch_agent.harness import page as page_module
from torch_agent.harness.page import PageWriter
from torch_agent.journal import Journal

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, TopicLayout
from libs.contracts.agent import GpuRecovered, JobExited
from libs.contracts.base import Event
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.placement import LaunchTask, SuspendTask
from libs.contracts.wire import encode_data
from libs.node.task import Task, Want

try:
    from torch_agent.pages import read_page
except ImportError:  # in code of older versions
    from torch_agent.harness.page import read_page

TRAINS = """
import time, torch
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""
FULL = (19, 23.0, 0.125, 0.75, 29, 31)
"""Of a page that has another value in each place."""


def launch(job_id: str, gpu: int, *command: str) -> LaunchTask:
    """An order to run a command on one GPU."""
    return LaunchTask(
        node_id="n1",
        job_id=job_id,
        attempt=1,
        name=job_id,
        tenant="default",
        command=list(command),
        env={"SEED": "7"},
        working_dir=None,
        code_id=None,
        gpu_indices=[gpu],
        launcher="ranks",
        first_rank=0,
        world_size=1,
        node_rank=0,
        node_count=1,
        rendezvous_host=None,
        rendezvous_port=None,
        time_limit_s=None,
    )


async def order(bus: Bus, *orders: Event) -> None:
    """Give orders."""
    now_s = whole_microseconds(time.time())
    session = await bus.open_session("placement")
    envelopes = [
        Envelope(id=f"{event.wire_type}/{number}", source="placement", time_s=now_s, event=event)
        for number, event in enumerate(orders)
    ]
    await session.commit([codec.outgoing(envelope) for envelope in envelopes])
    await session.close()


async def run(state: Path) -> None:
    """Let the agent work until the three tasks are where they should be, and kill it and them."""
    url = f"sqlite:///{state}/log.db"
    bus = await connect(url, "test")
    await bus.create_topics(TopicLayout())
    command = [sys.executable, "-m", "torch_agent.service", "--bus", url, "--cell", "test", "--node-id", "n1"]
    command += ["--state-dir", str(state / "n1"), "--virtual-gpus", "4"]
    agent = subprocess.Popen(command)
    tasks = state / "n1" / "tasks"
    while not (state / "n1" / "journal.db").exists():
        await asyncio.sleep(0.1)
    await asyncio.sleep(3.0)  # it has joined
    await order(
        bus,
        launch("trained", 0, "python", "-c", "print('done')"),
        launch("failed", 1, "python", "-c", "import sys; sys.exit('no data')"),
        launch("running", 2, "python", "-c", TRAINS),
    )
    while not all((tasks / f"{job}.1" / "exit.json").exists() for job in ("trained", "failed")):
        await asyncio.sleep(0.1)
    while not any(page["minibatches_total"] > 50 for page in readings(tasks / "running.1").values()):
        await asyncio.sleep(0.1)
    await order(bus, SuspendTask(node_id="n1", job_id="running", attempt=1))
    await asyncio.sleep(3.0)
    agent.kill()
    agent.wait()
    os.kill(json.loads((tasks / "running.1" / "shim.json").read_text())["pid"], signal.SIGKILL)
    await bus.close()


def readings(folder: Path) -> dict[str, dict[str, Any]]:
    """{path in the folder: what this code reads there} of all pages."""
    found = {str(path.relative_to(folder)): read_page(path) for path in sorted(folder.rglob("*.page"))}
    return {path: asdict(page) for path, page in found.items() if page is not None}


def full_page(folder: Path) -> None:
    """Write a page as a process does, with a value of its own in each place that this code knows."""
    folder.mkdir()
    writer = PageWriter(str(folder), 3, 4)
    writer.write(*FULL)
    numbers = iter(range(41, 99))
    for name in (
        "obeyed",
        "acknowledged",
        "handover",
        "memory",
        "gate",
    ):  # the first name is that of versions up to 2026-11-24
        part = getattr(page_module, name.capitalize(), None)
        if part is None:
            continue
        values = {key: _another(value, next(numbers)) for key, value in asdict(part()).items()}
        if name == "gate" and "gates" in signature(writer.gate).parameters:  # its values, since 2026-11-25
            writer.gate(**values)
        else:
            getattr(writer, name)(part(**values))
    if hasattr(writer, "met"):
        writer.met(next(numbers))
    if hasattr(writer, "rhythm"):
        writer.rhythm(next(numbers), next(numbers))
        writer.sign(next(numbers))


def _another(value: float, number: int) -> float:
    return number % 2 == 0 if isinstance(value, bool) else type(value)(number)


def moving() -> list[Task]:
    """A task that takes over a state, where this code has such tasks."""
    if "restore" not in Task.__struct_fields__:
        return []
    from libs.contracts.placement import RestoreTask, StateSource

    source = StateSource(node_id="n2", address="10.0.0.2", port=29600, first_rank=0)
    restore = RestoreTask(node_id="n1", job_id="moving", attempt=1, from_attempt=0, sources=[source])
    order = msgspec.structs.replace(launch("moving", 3, "python", "train.py"), restores=True)
    return [Task(order=order, restore=restore, want=Want.SUSPEND, gpu_indices=[3], wanted_gpus=[3])]


def expected(folder: Path, paths: list[str]) -> dict[str, Any]:
    """What this code reads."""
    journal = Journal(folder / "journal.db")
    facts = journal.unpublished(99)
    found = {
        "journal_id": journal.id,
        "next_order": journal.next_order,
        "tasks": {key: msgspec.to_builtins(task) for key, task in journal.tasks().items()},
        "facts": [
            [fact.number, fact.time_s, fact.event.wire_type, json.loads(encode_data(fact.event))] for fact in facts
        ],
        "tails": {path: journal.tail(path) for path in paths},
        "pages": readings(folder),
    }
    journal.close()
    return found


def main(state: Path, folder: Path) -> None:
    """See the module."""
    asyncio.run(run(state))
    folder.mkdir(parents=True)
    shutil.copytree(state / "n1" / "tasks", folder / "tasks")
    journal = Journal(state / "n1" / "journal.db")
    exited = JobExited(job_id="trained", attempt=1, node_id="n1", exit_code=0, signal=None, outcome="exited")
    journal.record(moving(), [exited, GpuRecovered(node_id="n1", index=0)], time_s=1.5)
    journal.close()
    db = sqlite3.connect(state / "n1" / "journal.db")
    paths = [row[0] for row in db.execute("SELECT path FROM tails ORDER BY path")]
    db.execute("PRAGMA journal_mode=DELETE")  # all of it in one file
    db.close()
    shutil.copy(state / "n1" / "journal.db", folder)
    full_page(folder / "pages")
    content = expected(folder, paths)
    shutil.copy(state / "n1" / "journal.db", folder)
    for leftover in folder.glob("journal.db-*"):
        leftover.unlink()
    (folder / "expected.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
