"""Suspend, move and resume of real training processes: not a bit of their results changes, and the device is free."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from torch_agent.telemetry import minibatches_done

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase, launch, state_letter

EXAMPLES = Path(__file__).parents[2] / "torch_agent" / "examples"
LOSSES = str(Path(__file__).with_name("losses.py"))
STEPS = 240
SUSPENSIONS = 10


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    async with AgentCase(tmp_path) as case:
        await case.fact(NodeJoined)
        yield case
    assert nothing_left_of(tmp_path) == []


def undisturbed(folder: Path, script: str) -> list[str]:
    """The losses of the script on its own."""
    file = folder / "undisturbed"
    command = [sys.executable, LOSSES, str(file), str(EXAMPLES / script), "--steps", str(STEPS)]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL)
    return file.read_text().split()


async def reaches(agent: AgentCase, job_id: str, minibatches: int) -> None:
    """Until the job has done so many."""
    while minibatches_done(agent.task_folder(job_id) / "pages") < minibatches:
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("script", ["mlp.py", "cnn.py", "autoencoder.py", "lstm.py", "transformer.py"])
async def test_losses_are_the_same_to_the_bit(agent: AgentCase, tmp_path: Path, script: str):
    expected, chance = undisturbed(tmp_path, script), random.Random(script)
    file = tmp_path / "disturbed"
    await agent.order(launch("a", sys.executable, LOSSES, str(file), str(EXAMPLES / script), "--steps", str(STEPS)))
    pid = (await agent.fact(JobStarted)).pid
    boundaries = sorted(chance.sample(range(1, STEPS - 20), SUSPENSIONS))
    slots = [0] * 7 + [1, 3, 2]
    chance.shuffle(slots)
    for boundary, slot in zip(boundaries, slots, strict=True):
        await reaches(agent, "a", boundary)
        await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
        suspended = await agent.fact(JobSuspended)
        assert suspended.parked and suspended.minibatches_total >= boundary
        assert suspended.left_bytes < suspended.parked_bytes / 100
        assert state_letter(pid) == "T"
        await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1, gpu_indices=[slot]))
        assert (await agent.fact(JobResumed)).gpu_indices == [slot]
    assert (await agent.fact(JobExited)).exit_code == 0
    assert file.read_text().split() == expected and len(expected) == STEPS


async def test_a_gang_stands_still_at_one_boundary(agent: AgentCase):
    command = [sys.executable, str(EXAMPLES / "mlp.py"), "--steps", "600"]
    await agent.order(launch("a", *command, gpus=3))
    await agent.fact(JobStarted)
    for boundary in (20, 120, 260):
        await reaches(agent, "a", boundary)
        await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
        suspended = await agent.fact(JobSuspended)
        counts = {path.name: read for path, read in counts_of(agent)}
        assert suspended.parked and set(counts.values()) == {suspended.minibatches_total}, counts
        await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1))
        await agent.fact(JobResumed)
    assert (await agent.fact(JobExited)).exit_code == 0


def counts_of(agent: AgentCase) -> list[tuple[Path, int]]:
    from torch_agent.harness.page import read_page

    found = [(path, read_page(path)) for path in (agent.task_folder("a") / "pages").glob("*.page")]
    return [(path, reading.minibatches_total) for path, reading in found if reading is not None]
