"""Suspend, move and resume of real training processes: not a bit of their results changes, and the device is free."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch_agent.harness.control import current_turn, suspends
from torch_agent.pages import minibatches_done, pages
from torch_agent.processes import lives

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined
from libs.contracts.base import Event
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.testing.builders import launch, stop
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase, has_state
from tests.integration.example_scripts import EXAMPLES, LOSSES, SCRIPTS, STEPS, losses_in, losses_of

SUSPENSIONS = 10


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    async with AgentCase(tmp_path) as case:
        await case.fact(NodeJoined)
        yield case
    assert nothing_left_of(tmp_path) == []


async def reaches(agent: AgentCase, job_id: str, minibatches: int) -> None:
    """Until the job has done so many."""
    while minibatches_done(agent.task_folder(job_id) / "pages") < minibatches:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("script", SCRIPTS)
async def test_losses_are_the_same_to_the_bit(agent: AgentCase, undisturbed: Path, tmp_path: Path, script: str):
    chance = random.Random(script)
    boundaries = sorted(chance.sample(range(1, STEPS - 60), SUSPENSIONS))
    open_gate(tmp_path, boundaries[0])  # it waits in the mini-batch after it until it is told to stand still
    await agent.order(launch("a", *losses_of(tmp_path, script), env={"GATE": str(tmp_path / "gate")}))
    pid = (await agent.fact(JobStarted)).pid
    slots = [0] * 7 + [1, 3, 2]
    chance.shuffle(slots)
    for (boundary, following), slot in zip(pairwise([*boundaries, sys.maxsize]), slots, strict=True):
        await reaches(agent, "a", boundary)
        await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
        await goes_to_the_boundary(agent)
        suspended = await agent.fact(JobSuspended)
        open_gate(tmp_path, following)
        assert suspended.parked and suspended.minibatches_total >= boundary
        assert suspended.left_bytes < suspended.parked_bytes / 100
        await has_state(pid, "T")
        await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1, gpu_indices=[slot]))
        assert (await agent.fact(JobResumed)).gpu_indices == [slot]
    assert (await agent.fact(JobExited)).exit_code == 0
    losses = losses_in(tmp_path, script)
    assert losses == losses_in(undisturbed, script) and len(losses) == STEPS


async def test_a_gang_stands_still_at_one_boundary(agent: AgentCase):
    command = [sys.executable, str(EXAMPLES / "mlp.py"), "--steps", "1000000"]
    await agent.order(launch("a", *command, gpus=2))
    await agent.fact(JobStarted)
    for boundary in (20, 150):
        await reaches(agent, "a", boundary)
        await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
        suspended = await agent.fact(JobSuspended)
        counts = [page.minibatches_total for page in pages(agent.task_folder("a") / "pages")]
        assert suspended.parked and counts == [suspended.minibatches_total] * 2
        await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1))
        await agent.fact(JobResumed)
    await agent.order(stop("a"))
    assert (await agent.fact(JobExited)).outcome == "stopped"


TRAINS = """
import libs.testing.quick_torch
import torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(24):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


async def waits(agent: AgentCase, script: Path, content: str = TRAINS) -> int:
    """Launch it so that it waits in the middle of its third mini-batch. Returns its pid."""
    script.write_text(content)
    open_gate(script.parent, 2)
    gate = {"GATE": str(script.parent / "gate")}
    await agent.order(launch("a", sys.executable, LOSSES, str(script.parent), str(script), env=gate))
    pid = int((await agent.fact(JobStarted)).pid)
    losses = agent.folder / f"{script.name}.losses"
    while not losses.exists() or len(losses.read_text().split()) < 3:
        await asyncio.sleep(0.01)
    return pid


def open_gate(folder: Path, losses: int) -> None:
    """Let it come to so many losses."""
    (folder / "gate.new").write_text(str(losses))
    (folder / "gate.new").rename(folder / "gate")


async def goes_to_the_boundary(agent: AgentCase) -> None:
    """It is told to stand still there, and goes there."""
    while not suspends(current_turn(agent.task_folder("a") / "pages")):
        await asyncio.sleep(0.01)
    open_gate(agent.folder, sys.maxsize)


async def test_an_agent_that_is_killed_in_the_middle_of_it_finishes_what_it_began(agent: AgentCase, tmp_path: Path):
    alone = tmp_path / "alone.py"
    alone.write_text(TRAINS)
    subprocess.run(
        [sys.executable, LOSSES, str(tmp_path), str(alone)], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True
    )
    await waits(agent, tmp_path / "disturbed.py")
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await reborn(agent)  # before the boundary
    await goes_to_the_boundary(agent)
    await agent.fact(JobSuspended)
    await reborn(agent)  # while it stands still
    await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1, gpu_indices=[3]))
    [resumed] = await reborn(agent, JobResumed)  # on its way back, or there already
    assert resumed.gpu_indices == [3]
    assert (await agent.fact(JobExited)).exit_code == 0
    assert losses_in(tmp_path, "disturbed.py") == losses_in(tmp_path, "alone.py")


async def reborn(agent: AgentCase, *come: type[Event]) -> list[Any]:
    """kill -9, and start it again; returns facts that come before it has joined or after that."""
    agent.kill()
    agent.start()
    return (await agent.all_of(NodeJoined, *come))[1:]


@pytest.mark.parametrize("victim", ["task", "shim"])
async def test_a_task_or_shim_that_is_killed_while_it_stands_still_leaves_nothing(
    agent: AgentCase, tmp_path: Path, victim: str
):
    pid = await waits(agent, tmp_path / "disturbed.py")
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await goes_to_the_boundary(agent)
    await agent.fact(JobSuspended)
    shim = json.loads((agent.task_folder("a") / "shim.json").read_text())["pid"]
    os.kill(pid if victim == "task" else shim, signal.SIGKILL)
    exited = await agent.fact(JobExited)
    assert (exited.signal, exited.outcome) == (signal.SIGKILL, "signalled" if victim == "task" else "lost")
    assert not lives(pid)
    await agent.order(launch("b", "true"))  # its GPU is free
    assert (await agent.fact(JobStarted, JobExited)).job_id == "b"


POLITE = {
    "saves": """
import os, pathlib, signal, sys
def stop(*_):
    pathlib.Path(os.environ["GATE"]).with_name("saved").write_text(str(model.weight.sum().item()))
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
""",
    "goes-on-to-the-next-batch": """
import signal
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
""",
}
"""What scripts do when they are asked to stop."""


@pytest.mark.parametrize("stops", POLITE)
async def test_a_task_that_is_stopped_while_it_stands_still_leaves_the_gpu_to_the_job_that_has_it(
    agent: AgentCase, tmp_path: Path, stops: str
):
    pid = await waits(agent, tmp_path / "stopped.py", POLITE[stops] + TRAINS)
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await goes_to_the_boundary(agent)
    assert (await agent.fact(JobSuspended)).parked
    folder = agent.task_folder("a") / "pages"
    turn = current_turn(folder)
    await agent.order(launch("b", "sleep", "600"))
    assert (await agent.fact(JobStarted)).job_id == "b"
    await agent.order(stop("a", grace_s=60.0))
    exited = await agent.fact(JobExited)
    assert (exited.job_id, exited.outcome, exited.exit_code) == ("a", "stopped", 143)
    assert not lives(pid)
    assert [page.acknowledged.turn for page in pages(folder)] == [turn]  # its memory did not come back
    assert len(losses_in(tmp_path, "stopped.py")) == 3 and not (tmp_path / "saved").exists()
    await agent.order(stop("b", grace_s=60.0))
    assert (await agent.fact(JobExited)).job_id == "b"
