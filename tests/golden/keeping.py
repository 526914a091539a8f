"""Writes the files of one version with the code of that version: `python keeping.py LOG FOLDER`.

Run by `keep.py` with the tree of the kept commit on the path. It uses only what every version so far has; a commit
that needs other calls changes them here, and is kept by its own copy of this file. So it shares no helper with tests.
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
import tempfile
import time
from contextlib import closing
from pathlib import Path

from torch_agent.journal import Journal

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.memory import MemoryBus, MemoryLog
from libs.bus.port import Bus, Message, Partition, TopicLayout
from libs.contracts.agent import JobStarted
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.placement import LaunchTask
from libs.inspect.sources import open_log
from libs.kernel.replica import Replica
from libs.runtime.snapshots import Snapshots
from services.projection.adapters.follow import Projection
from services.projection.adapters.store import Store
from services.roster import SERVICES

CELL, NODE = "golden", "n1"
CONTROL = Partition(Topic.CONTROL, 0)
WITHIN_S = 150.0
"""How long the agent's tasks may take: a script that imports torch is slow to begin on a busy machine."""
TRAINING = """
import torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for minibatch in range(3):
    optimizer.zero_grad()
    (weight * weight).sum().backward()
    optimizer.step()
print("trained")
raise SystemExit(3)
"""
"""A task that passes some mini-batch boundaries, so that it leaves a page, and fails, so that it leaves a result."""


def messages_of(path: Path) -> list[Message]:
    """The control records of an exported log."""
    with open_log(str(path), cell=CELL) as log:
        return [message for message in log.messages if message.partition == CONTROL]


def keep_snapshots(messages: list[Message], path: Path) -> None:
    """Save a snapshot of every service as it is in the middle of the log."""
    records = [codec.record(message) for message in messages[: len(messages) // 2]]
    snapshots = Snapshots(f"sqlite:///{path}", CELL)
    for service in SERVICES:
        replica = Replica(service)
        for record in records:
            replica.step(record)
        snapshots.save(replica.snapshot(), records[0].envelope.id, records[-1].appended_at_s)
    snapshots.close()


async def keep_read_models(messages: list[Message], path: Path) -> None:
    """Fold the whole log into a database of read models."""
    log = MemoryLog()
    log.create(CELL, TopicLayout())
    log.messages(CELL, CONTROL).extend(messages)
    store = Store(f"sqlite:///{path}", CELL)
    stored_at_s = messages[-1].appended_at_s
    await Projection(MemoryBus(CELL, log), store, asyncio.Event(), now=lambda: stored_at_s).catch_up()
    store.close()


async def keep_agent(state: Path, kept: Path) -> None:
    """Let an agent work, end it, and keep its journal and the folder of the task that has ended.

    The journal knows a second task, which was running when the agent ended, and a fact that never reached the log.
    That task's folder is not kept: the process ids in it will be those of strangers.
    """
    bus = await connect(f"sqlite:///{state / 'log.db'}", CELL)
    await bus.create_topics(TopicLayout())
    agent = subprocess.Popen(_agent_command(state))
    running = state / "agent" / "tasks" / "j-running.1"
    journal = state / "agent" / "journal.db"
    wanted = {"j-ended.1": "exited", "j-running.1": "running"}
    deadline = time.monotonic() + WITHIN_S
    try:
        while await bus.end_offset(CONTROL) == 0:  # until it has joined: orders from before are not for it
            await _pause(agent, deadline)
        await _order(bus, _launch("j-ended", [sys.executable, "-c", TRAINING], gpu=0))
        await _order(bus, _launch("j-running", ["sleep", "3600"], gpu=1))
        while _statuses(journal) != wanted:
            await _pause(agent, deadline)
    finally:
        agent.terminate()
        agent.wait()
        _kill(running)
        await bus.close()
    written = Journal(journal)
    started = JobStarted(job_id="j-running", attempt=1, node_id=NODE, pid=1)
    written.record(facts=[started], time_s=1.0)
    written.close()
    kept.mkdir()
    shutil.copy(journal, kept)
    shutil.copytree(state / "agent" / "tasks" / "j-ended.1", kept / "tasks" / "j-ended.1")


def _agent_command(state: Path) -> list[str]:
    bus = f"sqlite:///{state / 'log.db'}"
    options = ["--bus", bus, "--cell", CELL, "--node-id", NODE, "--state-dir", str(state / "agent")]
    gpus = ["--virtual-gpus", "2", "--gpu-memory", str(1 << 30)]
    return [sys.executable, "-m", "torch_agent.service", *options, *gpus, "--on-exit", "keep"]


def _launch(job_id: str, command: list[str], *, gpu: int) -> LaunchTask:
    return LaunchTask(
        node_id=NODE,
        job_id=job_id,
        attempt=1,
        name=job_id,
        tenant="research",
        command=command,
        env={},
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


async def _order(bus: Bus, order: LaunchTask) -> None:
    envelope = Envelope(id=f"e-{order.job_id}", source="placement", time_s=1.0, event=order)
    await bus.append([codec.outgoing(envelope)])


def _statuses(journal: Path) -> dict[str, str]:
    """{task: status} as the agent has noted it; read beside the agent, which owns the file."""
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as reader:
            rows = reader.execute("SELECT key, task FROM tasks").fetchall()
    except sqlite3.OperationalError:  # it has not been made yet
        return {}
    return {key: json.loads(task)["status"] for key, task in rows}


async def _pause(agent: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait a moment for the agent.

    Raises:
        TimeoutError: it is too late.
        RuntimeError: the agent has ended.
    """
    if agent.poll() is not None:
        raise RuntimeError(f"the agent ended with status {agent.returncode}")
    if time.monotonic() > deadline:
        raise TimeoutError(f"the agent's tasks have not come so far within {WITHIN_S:g} s")
    await asyncio.sleep(0.1)


def _kill(folder: Path) -> None:
    """End the task that the agent has left running; its shim takes the ranks along."""
    if (folder / "shim.json").exists():
        os.kill(json.loads((folder / "shim.json").read_text())["pid"], signal.SIGKILL)


def main() -> None:
    """Write all files of this version."""
    log, kept = Path(sys.argv[1]), Path(sys.argv[2])
    messages = messages_of(log)
    keep_snapshots(messages, kept / "snapshots.db")
    asyncio.run(keep_read_models(messages, kept / "readmodels.db"))
    with tempfile.TemporaryDirectory(prefix="state-") as state:
        asyncio.run(keep_agent(Path(state), kept / "agent"))


if __name__ == "__main__":
    main()
