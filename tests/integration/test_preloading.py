"""What tasks are started with by an agent that limits memory, and by agents that cannot or are not to."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from libs.contracts.agent import JobExited, JobStarted, NodeJoined
from libs.contracts.placement import LaunchTask
from libs.testing.builders import launch
from tests.integration.agent_case import AgentCase

USERS = "libdl.so.2"
"""A library that every machine with the GNU C library has."""
SAYS = "import os; print(os.environ.get('LD_PRELOAD'), os.environ.get('SANJAYA_SCALES_MEMORY'), flush=True)"
LIMITS = """
import ctypes, os
assert hasattr(ctypes.CDLL(None), "sanjaya_memory_begin")
import torch
from sanjaya_harness import part
before = torch.ones(1_000_000)
usage = part("hooks").current()._memory.boundary(0)
usage = part("hooks").current()._memory.boundary(0)
print("moved", usage.host, int(before.sum()), flush=True)
"""


async def output_of(case: AgentCase, order: LaunchTask) -> str:
    await case.order(order)
    exited = await case.fact(JobStarted, JobExited)
    errors = (case.task_folder(order.job_id) / "rank-0.err").read_text()
    assert exited.exit_code == 0 and errors == "", errors
    return (case.task_folder(order.job_id) / "rank-0.out").read_text().strip()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
async def test_tasks_are_started_with_the_allocator_beside_what_their_user_preloads(tmp_path: Path):
    async with AgentCase(tmp_path, virtual_gpus=1, gpu_memory_bytes=1 << 30) as case:
        joined = await case.fact(NodeJoined)
        assert (joined.scales_memory, joined.spill_bytes) == ("all", joined.memory_bytes - (1 << 30))
        [library] = (tmp_path / "n1" / "lib").iterdir()
        assert await output_of(case, launch("a", "python", "-c", SAYS)) == f"{library} 1"
        preloads = launch("b", "bash", "-c", f'python -c "{SAYS}"', env={"LD_PRELOAD": USERS})
        assert await output_of(case, preloads) == f"{library}:{USERS} 1"
        without = launch("c", "python", "-c", SAYS, env={"SANJAYA_HARNESS": "0"})
        assert await output_of(case, without) == "None None"
        moved = await output_of(case, launch("d", "python", "-c", LIMITS))
        assert moved.startswith("moved 4") and moved.endswith(" 1000000"), moved
        made = library.stat().st_mtime_ns
        case.kill()
        case.start()
        assert (await case.fact(NodeJoined)).scales_memory == "all"
        assert [each.stat().st_mtime_ns for each in (tmp_path / "n1" / "lib").iterdir()] == [made], "made once"


@pytest.mark.parametrize("lacks", ["a compiler", "the wish"])
async def test_an_agent_that_limits_nothing_says_so(tmp_path: Path, lacks: str):
    nothing = {"PATH": os.path.dirname(sys.executable)}
    environment = nothing if lacks == "a compiler" else {"SANJAYA_SCALE_MEMORY": "no"}
    async with AgentCase(tmp_path, virtual_gpus=1, environment=environment) as case:
        joined = await case.fact(NodeJoined)
        assert (joined.scales_memory, joined.spill_bytes, joined.scales_compute) == ("", 0, True)
        assert await output_of(case, launch("a", "python", "-c", SAYS)) == "None None"
    said = "the memory of tasks is not limited on this node: there is no C compiler on PATH"
    assert (said in (tmp_path / "agent.log").read_text()) == (lacks == "a compiler")
