"""Whatever a task starts ends, stands still and counts with it, by a real agent: with control groups and without."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.testing.builders import launch, stop
from libs.testing.thorough import THOROUGH
from tests.integration.agent_case import AgentCase, has_ended, has_state

JOBS = 500 if THOROUGH else 30
AT_ONCE = 10
ESCAPES = """
import os, subprocess, sys, time
escaped = subprocess.Popen(["setsid", "env", "-i", "sleep", "977"]).pid
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.environ.clear()
        os.execve(sys.executable, [sys.executable, "-c", sys.argv[1]], {})
    os._exit(0)
os.wait()
daemon = int(os.read(read, 20))
open("pids.part", "w").write(f"[{escaped}, {daemon}, {os.getpid()}]")
os.rename("pids.part", "pids")
"""
SLEEPS = "import time; time.sleep(977)"
HOLDS = "import time; kept = bytearray(300 << 20); time.sleep(977)"


@pytest.fixture(params=["auto", "none"])
async def agent(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AgentCase]:
    async with AgentCase(tmp_path, virtual_gpus=AT_ONCE, environment={"SANJAYA_CGROUP": request.param}) as case:
        joined = await case.fact(NodeJoined)
        if request.param == "none":
            assert joined.bounds_by == "affinity"
        elif joined.bounds_by == "affinity":
            pytest.skip("no control groups can be made here")
        yield case


async def pids_of(agent: AgentCase, job_id: str) -> list[int]:
    """What cut itself loose, the daemon and the task's own process, as the script has written them."""
    path = agent.task_folder(job_id) / "work" / "pids"
    while not path.exists():
        await agent.pause()
    return [int(pid) for pid in json.loads(path.read_text())]


async def test_what_cuts_itself_loose_stands_still_with_its_task_and_is_gone_within_two_seconds_of_its_stop(
    agent: AgentCase,
):
    await agent.order(launch("a", "python", "-c", ESCAPES + SLEEPS, SLEEPS))
    await agent.fact(JobStarted)
    pids = await pids_of(agent, "a")
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await agent.fact(JobSuspended)
    for pid in pids:
        await has_state(pid, "T")
    await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1, gpu_indices=[0]))
    await agent.fact(JobResumed)
    for pid in pids:
        await has_state(pid, "S")
    began_s = time.monotonic()
    await agent.order(stop("a", grace_s=60.0))
    for pid in pids:
        has_ended(pid)
    assert time.monotonic() - began_s < 2.0
    assert (await agent.fact(JobExited)).outcome == "stopped"


async def test_what_is_left_when_a_task_ends_by_itself_is_gone_before_that_is_told(agent: AgentCase):
    await agent.order(launch("a", "python", "-c", ESCAPES, SLEEPS))
    assert (await agent.fact(JobStarted, JobExited)).exit_code == 0
    assert not any(psutil.pid_exists(pid) for pid in await pids_of(agent, "a"))


async def test_memory_of_what_cuts_itself_loose_counts(agent: AgentCase):
    await agent.order(launch("a", "python", "-c", ESCAPES + SLEEPS, HOLDS, memory_bytes=200 << 20))
    exited = await agent.fact(JobStarted, JobExited)
    assert (exited.outcome, exited.signal) == ("host_memory_exceeded", signal.SIGKILL)
    assert not any(psutil.pid_exists(pid) for pid in await pids_of(agent, "a"))


async def test_a_process_that_becomes_another_one_all_the_time_ends_with_its_task(agent: AgentCase):
    hops = "import os, time\nif os.fork(): raise SystemExit\nos.setsid()\nopen('hops', 'w').close()\n"
    hops += "while True:\n    if os.fork(): time.sleep(0.001); os._exit(0)\n    open('hops', 'a').write('.')\n"
    await agent.order(launch("a", "python", "-c", hops))
    await agent.fact(JobStarted, JobExited)
    size = (agent.task_folder("a") / "work" / "hops").stat().st_size
    await asyncio.sleep(0.1)
    assert (agent.task_folder("a") / "work" / "hops").stat().st_size == size


async def test_a_shim_that_is_killed_leaves_nothing_that_its_group_or_its_variable_holds(agent: AgentCase):
    await agent.order(launch("a", "python", "-c", ESCAPES + SLEEPS, SLEEPS))
    await agent.fact(JobStarted)
    escaped, daemon, own = await pids_of(agent, "a")
    group = json.loads((agent.task_folder("a") / "shim.json").read_text())["cgroup"]
    agent.kill_shim("a")
    assert (await agent.fact(JobExited)).outcome == "lost"
    assert not psutil.pid_exists(own)
    if group:
        assert not psutil.pid_exists(escaped) and not psutil.pid_exists(daemon) and not Path(group).exists()
    for pid in (escaped, daemon):  # in no group, without the variable and without a shim nothing is known of them
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
async def test_nothing_is_left_of_many_short_jobs(agent: AgentCase):
    """Each leaves a process, a port that it listens on and a file of shared memory."""
    script = (
        "import socket; server = socket.create_server(('127.0.0.1', 0)); os.set_inheritable(server.fileno(), True)\n"
        "open('port', 'w').write(str(server.getsockname()[1]))\n"
        "shared = f'/dev/shm/torch_{os.getpid()}_1_0'; open(shared, 'w').write('x')\n"
        "open('shared', 'w').write(shared)\n"
    )
    script = ESCAPES.replace("\nescaped", "\n" + script + "escaped", 1).replace(
        '"sleep", "977"])', '"sleep", "977"], close_fds=False)'
    )
    ended, begun = 0, 0
    while ended < JOBS:
        while begun < JOBS and begun - ended < AT_ONCE:
            await agent.order(launch(f"j{begun}", "python", "-c", script, SLEEPS, gpu_indices=[begun % AT_ONCE]))
            begun += 1
        exited = await agent.until(JobExited)
        assert exited.exit_code == 0, exited
        ended += 1
    for job in range(JOBS):
        work = agent.task_folder(f"j{job}") / "work"
        assert not any(psutil.pid_exists(pid) for pid in json.loads((work / "pids").read_text()))
        assert not Path((work / "shared").read_text()).exists()
        group = json.loads((agent.task_folder(f"j{job}") / "shim.json").read_text())["cgroup"]
        assert not group or not Path(group).exists()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", int((work / "port").read_text())))
            probe.listen()
