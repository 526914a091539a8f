"""Processes without the harness are suspended by the driver: here by a library that keeps its books in files."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined
from libs.contracts.placement import ResumeTask, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.testing.builders import launch
from tests.integration.agent_case import AgentCase, has_state

USES_CUDA = 'printf 0 > "$FAKE_CUDA/$$"; sleep 60'
SUSPEND, RESUME = (order(node_id="n1", job_id="a", attempt=1) for order in (SuspendTask, ResumeTask))
STOP = StopTask(node_id="n1", job_id="a", attempt=1, grace_s=0.0, reason=Reason(code="Test", message=""))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for its libcuda")
    folder = tmp_path_factory.mktemp("library")
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Where the library notes states and calls."""
    folder = tmp_path / "books"
    folder.mkdir()
    return folder


@pytest.fixture
async def agent(tmp_path: Path, library: Path, books: Path) -> AsyncIterator[AgentCase]:
    environment = {"SANJAYA_DRIVER_CHECKPOINT": "1", "LD_LIBRARY_PATH": str(library), "FAKE_CUDA": str(books)}
    async with AgentCase(tmp_path, environment=environment) as case:
        await case.fact(NodeJoined)
        yield case


def calls(books: Path) -> list[str]:
    return (books / "calls").read_text().split()


async def started(agent: AgentCase, books: Path, gpus: int = 1) -> list[int]:
    """A task is up, and uses CUDA. Returns its processes."""
    await agent.order(launch("a", "bash", "-c", USES_CUDA, gpus=gpus))
    await agent.fact(JobStarted)
    while len(pids := [int(path.name) for path in books.glob("[0-9]*")]) < gpus:
        await asyncio.sleep(0.01)
    return pids


async def test_its_memory_goes_and_comes_back(agent: AgentCase, books: Path):
    [pid] = await started(agent, books)
    await agent.order(SUSPEND)
    assert (await agent.fact(JobSuspended)).parked
    await has_state(pid, "T")
    assert calls(books) == ["lock", "checkpoint"]
    await agent.order(RESUME)
    await agent.fact(JobResumed)
    await has_state(pid, "S")
    assert calls(books) == ["lock", "checkpoint", "restore", "unlock"]


async def test_every_process_of_a_gang_is_taken_off(agent: AgentCase, books: Path):
    pids = await started(agent, books, gpus=2)
    await agent.order(SUSPEND)
    assert (await agent.fact(JobSuspended)).parked
    assert {(books / str(pid)).read_text() for pid in pids} == {"2"}


async def test_what_cannot_be_taken_off_is_stopped_with_its_memory(agent: AgentCase, books: Path):
    (books / "refuse-checkpoint").touch()
    [pid] = await started(agent, books)
    await agent.order(SUSPEND)
    assert not (await agent.fact(JobSuspended)).parked
    await has_state(pid, "T")
    assert (calls(books), (books / str(pid)).read_text()) == (["lock", "unlock"], "0")
    await agent.order(RESUME)
    await agent.fact(JobResumed)
    await has_state(pid, "S")


async def test_an_agent_that_was_killed_brings_back_what_the_one_before_took_off(agent: AgentCase, books: Path):
    await started(agent, books)
    await agent.order(SUSPEND)
    await agent.fact(JobSuspended)
    agent.kill()
    await agent.order(RESUME)
    agent.start()
    await agent.fact(NodeJoined, JobResumed)
    assert calls(books)[-2:] == ["restore", "unlock"]
    await agent.order(STOP)
    assert (await agent.fact(JobExited)).outcome == "stopped"


async def test_a_process_without_cuda_is_just_stopped(agent: AgentCase, books: Path):
    await agent.order(launch("a", "sleep", "60"))
    await agent.fact(JobStarted)
    await agent.order(SUSPEND)
    suspended = await agent.fact(JobSuspended)
    assert suspended.parked and suspended.parked_bytes == 0, "it has nothing on the GPU that could be in the way"
    assert not (books / "calls").exists()
