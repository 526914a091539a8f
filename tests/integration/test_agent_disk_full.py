"""An agent whose own disk is full, while the log is elsewhere: what runs goes on and is reported, what is new waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, JobExited, JobStarted, JobSuspended, NodeJoined
from libs.contracts.placement import SuspendTask
from libs.testing.builders import launch, stop
from libs.testing.disks import disk, fill
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    with disk(tmp_path / "n1", 32 << 20):
        async with AgentCase(tmp_path, virtual_gpus=2) as case:
            await case.until(NodeJoined)
            yield case
        log = (tmp_path / "agent.log").read_text()
        assert "Traceback" not in log, log[-3000:]
    assert nothing_left_of(tmp_path) == []


def waits_for(go: Path, code: int = 0) -> list[str]:
    return ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit {code}"]


async def test_an_agent_on_a_full_disk_reports_what_ends_and_begins_nothing(agent: AgentCase):
    go = agent.folder / "go"
    await agent.order(launch("a", *waits_for(go, 3)), launch("b", "sleep", "600", gpu_indices=[1]))
    await agent.fact(JobStarted, JobStarted)
    ballast = fill(agent.folder / "n1")
    for _ in range(2):
        assert (await agent.fact(GpuUnhealthy)).note.startswith("DiskFull: the disk of ")
    await agent.order(launch("c", "true"), SuspendTask(node_id="n1", job_id="b", attempt=1))
    assert (await agent.fact(JobSuspended)).job_id == "b"
    go.touch()
    assert (await agent.fact(JobExited)).exit_code == 3
    await agent.order(stop("b", grace_s=0.0))
    assert (await agent.fact(JobExited)).outcome == "stopped"
    assert not agent.task_folder("c").exists()
    ballast.unlink()
    agent.facts.clear()
    await agent.until(JobExited, lambda fact: fact.job_id == "c" and fact.exit_code == 0)
    while len([fact for fact in agent.facts if isinstance(fact, GpuRecovered)]) < 2:
        await agent.until(GpuRecovered)
    assert len([fact for fact in agent.facts if isinstance(fact, JobStarted | JobExited)]) == 2, agent.facts


@pytest.mark.parametrize("journal_kept", [True, False])
async def test_an_agent_that_begins_on_a_full_disk_goes_on(agent: AgentCase, journal_kept: bool):
    """From the journal; without one it has no room for another, and waits until it has."""
    go, n1 = agent.folder / "go", agent.folder / "n1"
    await agent.order(launch("a", *waits_for(go)))
    await agent.fact(JobStarted)
    agent.kill()
    if not journal_kept:
        for path in n1.glob("journal.db*"):
            path.unlink()
    (agent.task_folder("a") / "exit.room").unlink()
    ballast = fill(n1)
    go.touch()
    agent.start()
    if journal_kept:
        assert [task.job_id for task in (await agent.until(NodeJoined)).tasks] == ["a"]
        exited = await agent.until(JobExited)
        assert not (agent.task_folder("a") / "exit.json").exists(), "its shim has told it"
        ballast.unlink()
    else:
        while "the agent waits: there is no room on the disk" not in (agent.folder / "agent.log").read_text():
            await agent.pause()
        ballast.unlink()
        assert [task.job_id for task in (await agent.until(NodeJoined)).tasks] == ["a"]
        exited = await agent.until(JobExited)
    assert (exited.outcome, exited.exit_code) == ("exited", 0)
    while not (agent.task_folder("a") / "exit.json").exists():
        await agent.pause()
    await agent.order(launch("next", "true"))
    assert (await agent.until(JobExited)).job_id == "next"
