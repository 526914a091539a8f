"""Agents of other versions take over running tasks: a second copy of the agent and its harness, patched, as processes.

In the patched copy a page has its parts elsewhere, its fields in another order and one field more, and a control file
has its numbers elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from torch_agent.harness.control import MARK, MARK_AT
from torch_agent.harness.page import HEAD

import torch_agent
from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.testing.builders import launch
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase, has_state

TODAY = Path(torch_agent.__file__).parent

TRAINS = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while not os.path.exists(sys.argv[1]):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

PAGE = {
    'MAGIC, VERSION = b"SJHP", 7': 'MAGIC, VERSION = b"SJHP", 8',
    'BODY = struct.Struct("<IiiIQdddQQ")\nBODY_AT = 16': 'BODY = struct.Struct("<dQIiidddQQ")\nBODY_AT = 256',
    "ACKNOWLEDGED_AT = 512": "ACKNOWLEDGED_AT = 1536",
    "HANDOVER_AT = 1024": "HANDOVER_AT = 64",
    """            self.pid,
            self.rank,
            self._world_size,
            0,
            minibatches_total,
""": """            0.5,
            minibatches_total,
            self.pid,
            self.rank,
            self._world_size,
""",
}
"""What changes in harness/page.py."""
PAGE_READER = """
LAYOUTS[8] = Layout(
    Part(256, struct.Struct("<dQIiidddQQ"), (
        "_", "minibatches_total", "pid", "rank", "world_size",
        "last_boundary_s", "minibatch_mean_s", "loss", "memory_peak_bytes", "memory_min_bytes",
    )),
    Part(1536, _ACKNOWLEDGED.values, _ACKNOWLEDGED.names),
    Part(64, _HANDOVER_4.values, _HANDOVER_4.names),
    _MEETING,
    _RHYTHM,
    _SIGNS,
    _MEMORY,
    _GATE,
)
"""
"""What is added to layouts.py."""
CONTROL = {'MAGIC, VERSION = b"SJCP", 5': 'MAGIC, VERSION = b"SJCP", 6'}
_CONTROL_TODAY = "    5: Layout(size=192, turn_at=0, saves_at=8, allowance=AllowanceAt(24, places_at=56)),\n"
_CONTROL_NEWER = "    6: Layout(size=240, turn_at=232, saves_at=224, allowance=AllowanceAt(32, places_at=72)),\n"
CONTROL_ROW = {_CONTROL_TODAY: f"{_CONTROL_TODAY}{_CONTROL_NEWER}"}
"""What changes in harness/control.py: what is written, and what is known."""


def patch(path: Path, changes: dict[str, str]) -> None:
    text = path.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, f"{path}: the patch does not fit any more: {old}"
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture
def trees(tmp_path: Path) -> dict[str, str]:
    """{version: PYTHONPATH of its agent}: today's; a newer one; today's, with what it takes to read the newer one's."""
    found = {"today": ""}
    for version in ("newer", "prepared"):
        tree = tmp_path / version
        copy = shutil.copytree(TODAY, tree / TODAY.name, ignore=shutil.ignore_patterns("__pycache__"))
        with (copy / "layouts.py").open("a") as layouts:
            layouts.write(PAGE_READER)
        patch(copy / "harness" / "control.py", CONTROL_ROW)
        if version == "newer":
            patch(copy / "harness" / "page.py", PAGE)
            patch(copy / "harness" / "control.py", CONTROL)
        found[version] = f"{tree}{os.pathsep}"
    return {version: f"{first}{os.environ.get('PYTHONPATH', '')}" for version, first in found.items()}


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    (tmp_path / "cell").mkdir()
    async with AgentCase(tmp_path / "cell") as case:
        await case.fact(NodeJoined)
        yield case
    assert nothing_left_of(tmp_path / "cell") == []


async def replaced(agent: AgentCase, pythonpath: str) -> list[str]:
    """Put an agent of another version in the place of the one that runs. Returns the jobs that it has adopted."""
    agent.kill()
    agent.start(PYTHONPATH=pythonpath)
    return [task.job_id for task in (await agent.fact(NodeJoined)).tasks]


async def trains(agent: AgentCase) -> int:
    """Start a job, and wait until it has a page. Returns its pid."""
    await agent.order(launch("a", sys.executable, "-c", TRAINS, str(agent.folder / "go")))
    pid = int((await agent.fact(JobStarted)).pid)
    while not list(agent.task_folder("a").glob("pages/*.page")):
        await asyncio.sleep(0.01)
    return pid


def versions(agent: AgentCase) -> tuple[int, int]:
    """Of the job's page and of its control file."""
    [page] = agent.task_folder("a").glob("pages/*.page")
    control = (page.parent / "control").read_bytes()
    return int(HEAD.unpack_from(page.read_bytes())[1]), int(MARK.unpack_from(control, MARK_AT)[1])


@pytest.mark.parametrize(
    ("starts", "adopts", "written"),
    [("newer", "prepared", (8, 6)), ("today", "newer", (7, 5)), ("newer", "newer", (8, 6))],
)
async def test_a_task_is_adopted_by_an_agent_of_another_version(
    agent: AgentCase, trees: dict[str, str], starts: str, adopts: str, written: tuple[int, int]
):
    """It is suspended at a boundary with its memory on the host, goes on, and its mini-batches are counted."""
    await replaced(agent, trees[starts])
    pid = await trains(agent)
    assert await replaced(agent, trees[adopts]) == ["a"]
    done = 0
    for _ in range(2):
        await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
        suspended = await agent.fact(JobSuspended)
        assert suspended.parked and suspended.minibatches_total > done
        done = suspended.minibatches_total
        await has_state(pid, "T")
        await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1, gpu_indices=[1]))
        assert (await agent.fact(JobResumed)).gpu_indices == [1]
    assert versions(agent) == written
    (agent.folder / "go").touch()
    exited = await agent.fact(JobExited)
    assert exited.exit_code == 0 and exited.minibatches_total >= done


async def test_a_task_with_a_page_that_is_too_new_goes_on_and_says_less(agent: AgentCase, trees: dict[str, str]):
    await replaced(agent, trees["newer"])
    pid = await trains(agent)
    assert await replaced(agent, trees["today"]) == ["a"]
    said = "a page of version 8; this code knows version 1, 2, 3, 4, 5, 6, 7: the task goes on"
    while said not in (agent.folder / "agent.log").read_text():
        await asyncio.sleep(0.01)
    [page] = agent.task_folder("a").glob("pages/*.page")
    before = (page.parent / "control").read_bytes()
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    suspended = await agent.fact(JobSuspended)
    assert (suspended.parked, suspended.minibatches_total) == (False, 0)
    await has_state(pid, "T")
    await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1))
    await agent.fact(JobResumed)
    assert (page.parent / "control").read_bytes() == before and versions(agent) == (8, 6)
    (agent.folder / "go").touch()
    exited = await agent.fact(JobExited)
    assert (exited.outcome, exited.exit_code, exited.minibatches_total) == ("exited", 0, 0)
    log = (agent.folder / "agent.log").read_text()
    assert log.count(said) == 1 and "Traceback" not in log
    assert f"{page.parent / 'control'}: a control file of version 6; this code knows version 1, 2, 3, 4, 5" in log
