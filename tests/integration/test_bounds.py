"""Tasks are kept to the CPUs and the memory that they asked for, by a real agent."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from libs.contracts.agent import JobExited, JobStarted, NodeJoined
from libs.testing.builders import launch, stop
from tests.integration.agent_case import AgentCase

SAID = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], flush=True)\n"
STAYS = SAID + "import time; time.sleep(600)"
SCRIPT = Path(__file__).with_name("loading_script.py")
ALL = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(len(ALL) < 2, reason="one CPU is nothing to divide")


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    async with AgentCase(tmp_path) as case:
        joined = await case.fact(NodeJoined)
        assert joined.cpus == len(ALL) and joined.bounds_by.startswith("affinity")
        assert joined.memory_bytes > 2**28
        yield case


async def said(agent: AgentCase, job_id: str, rank: int = 0) -> str:
    """The first line of a rank, as soon as it is there."""
    path = agent.task_folder(job_id) / f"rank-{rank}.out"
    while not (path.exists() and path.read_text().endswith("\n")):
        await agent.pause()
    return path.read_text().strip()


async def pinned_to(pid: int, cpus: list[int]) -> None:
    """Wait until the process is."""
    while sorted(os.sched_getaffinity(pid)) != cpus:
        await asyncio.sleep(0.02)


@needs_two
async def test_a_task_has_the_cpus_that_it_asked_for_and_others_share_the_rest(agent: AgentCase):
    await agent.order(launch("free", "python", "-c", STAYS))
    free = await agent.fact(JobStarted)
    assert await said(agent, "free") == f"{ALL} 1"  # as ever, while no task asks for anything
    await agent.order(launch("own", "python", "-c", STAYS, cpus=1, gpu_indices=[1]))
    own = await agent.fact(JobStarted)
    assert await said(agent, "own") == f"{ALL[:1]} 1"
    await pinned_to(free.pid, ALL[1:])
    agent.kill()
    agent.start()
    await agent.fact(NodeJoined)
    await agent.order(launch("late", "python", "-c", STAYS, gpu_indices=[2]))
    await agent.fact(JobStarted)
    assert await said(agent, "late") == f"{ALL[1:]} 1"  # the agent that was started anew knows what is taken
    assert sorted(os.sched_getaffinity(own.pid)) == ALL[:1]
    await agent.order(stop("own", grace_s=0.0))
    await agent.fact(JobExited)
    await pinned_to(free.pid, ALL)
    await agent.order(stop("free", grace_s=0.0), stop("late", grace_s=0.0))
    await agent.fact(JobExited, JobExited)


@needs_two
async def test_the_ranks_of_a_node_share_the_cpus_of_all_and_are_told_how_many_each_may_use(agent: AgentCase):
    await agent.order(launch("a", "python", "-c", SAID, gpus=2, cpus=1))
    await agent.fact(JobStarted, JobExited)
    assert [await said(agent, "a", rank) for rank in (0, 1)] == [f"{ALL[:2]} 1", f"{ALL[:2]} 1"]


async def test_a_task_with_more_memory_than_it_asked_for_ends_with_the_numbers(agent: AgentCase):
    script = "import time; kept = bytearray(300 << 20); time.sleep(600)"
    await agent.order(launch("a", "python", "-c", script, memory_bytes=200 << 20))
    exited = await agent.fact(JobStarted, JobExited)
    assert (exited.outcome, exited.signal, exited.exit_code) == ("host_memory_exceeded", 9, None)
    assert "of the host's memory; it asked for 200 MiB" in exited.stderr_tail


async def test_memory_that_processes_share_counts_once(agent: AgentCase):
    """Two processes that hold the same 150 MiB have less than 250."""
    script = (
        "import mmap, os, time\n"
        "kept = mmap.mmap(-1, 150 << 20)\n"
        "kept.write(b'x' * (150 << 20))\n"
        "child = os.fork()\n"
        "sum(kept[i] for i in range(0, 150 << 20, 4096))\n"
        "time.sleep(2)\n"  # several looks of the agent
        "os._exit(0) if child == 0 else os.waitpid(child, 0)\n"
    )
    await agent.order(launch("a", "python", "-c", script, memory_bytes=250 << 20))
    exited = await agent.fact(JobStarted, JobExited)
    assert (exited.outcome, exited.exit_code) == ("exited", 0)


@needs_two
async def test_what_trains_on_a_virtual_gpu_runs_on_its_cpu_owner_and_guest_alike(tmp_path: Path):
    async with AgentCase(tmp_path, virtual_gpus=1) as case:
        joined = await case.fact(NodeJoined)
        assert joined.gpu_cpus == ALL[:1], "there are enough"
        roles = {"owner": 0, "guest": 1}
        for role, workers in roles.items():
            command = [sys.executable, str(SCRIPT), str(workers)]
            await case.order(launch(role, *command, role=role))
        pids: dict[str, int] = {}
        while len(pids) < len(roles):
            fact = await case.next()
            if isinstance(fact, JobStarted):
                pids[fact.job_id] = fact.pid
        for pid in pids.values():
            await pinned_to(pid, ALL[:1])
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids.values()} == {5}, "the kernel prefers neither"
        assert {os.sched_getscheduler(pid) for pid in pids.values()} == {os.SCHED_OTHER}
        guest = psutil.Process(pids["guest"])
        while not (workers := guest.children()):  # it may be pinned before its loader begins
            await asyncio.sleep(0.02)
        await pinned_to(workers[0].pid, ALL)  # it works on the host, beside the GPU
