"""The stacks of running processes: real interpreters, the agent's server, the gateway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from torch_agent.files.server import FileServer
from torch_agent.folders import TaskFolder
from torch_agent.harness import inject_path
from torch_agent.stacks import stacks_of

from libs.node.serving import Proof
from libs.runtime.cell_key import ensure_key, read_key
from tests.integration.gateway_cell import Cell, running_cell
from tests.integration.test_job_files import job_on

WAITS = """
import os, sys, threading

def a_reader_that_waits(source):
    sys.stdout.write("waits\\n"); sys.stdout.flush()
    os.read(source, 1)

source, _ = os.pipe()
{start}
"""
ON_THREAD = "threading.Thread(target=a_reader_that_waits, args=(source,)).start(); threading.Event().wait()"
FORKED = "os.fork() or a_reader_that_waits(source); os.wait()"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)  # with what it has forked
        process.wait()


def start(folder: TaskFolder, started: list[subprocess.Popen[bytes]], script: str, **environment: str) -> int:
    """Run a script as a task's process until it waits. Returns its pid."""
    folder.pages.mkdir(parents=True, exist_ok=True)
    injected = {"SANJAYA_HARNESS_DIR": str(folder.pages), "PYTHONPATH": inject_path()}
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS.format(start=script)],
        env={**os.environ, **injected, **environment},
        stdout=subprocess.PIPE,
        process_group=0,
    )
    started.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"waits\n"
    return process.pid


def test_all_threads_of_an_unmodified_script_are_shown_and_it_goes_on(tmp_path: Path, started):
    pid = start(TaskFolder(tmp_path), started, ON_THREAD)
    for _ in range(3):
        [found] = stacks_of(TaskFolder(tmp_path))
        assert (found["pid"], found["rank"], found["note"]) == (pid, None, "")
        assert "a_reader_that_waits" in found["text"] and "in wait" in found["text"]
        assert found["text"].count("most recent call first") == 2
    assert started[0].poll() is None


def test_a_forked_process_answers_for_itself(tmp_path: Path, started):
    start(TaskFolder(tmp_path), started, FORKED)
    first, second = stacks_of(TaskFolder(tmp_path))
    assert sorted("a_reader_that_waits" in each["text"] for each in (first, second)) == [False, True]


def test_a_process_that_cannot_answer_says_why_and_lives(tmp_path: Path, started):
    pid = start(TaskFolder(tmp_path), started, ON_THREAD)
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    [found] = stacks_of(TaskFolder(tmp_path))
    assert (found["text"], found["note"]) == ("", "the process stands still (it is suspended)")
    os.kill(pid, signal.SIGCONT)
    without = TaskFolder(tmp_path / "without")
    start(without, started, ON_THREAD, SANJAYA_HARNESS="0")
    assert stacks_of(without) == [] and started[1].poll() is None


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    key = tmp_path / "cell.key"
    ensure_key(key)
    async with running_cell(tmp_path / "cell", serve=True, cell_key_file=key) as cell:
        yield cell


async def test_stacks_come_through_the_gateway_and_a_node_without_is_named(cell: Cell, tmp_path: Path, started):
    agent = FileServer(tmp_path / "n1", "n1", Proof(read_key(tmp_path / "cell.key")))
    try:
        job = await job_on(cell, tmp_path / "n1", agent.start("127.0.0.1", 0))
        pid = start(TaskFolder(tmp_path / "n1" / "tasks" / f"{job}.1"), started, ON_THREAD)
        found = (await cell.client.get("/v1/jobs/mine/stacks")).json()
        [process] = found["items"]
        assert (process["node_id"], process["pid"]) == ("n1", pid) and "a_reader_that_waits" in process["text"]
        [missing] = found["missing"]  # the agent that is asked for n2 is that of n1: the signature is not for it
        assert "n2" in missing
        refused = await cell.client.get("/v1/jobs/mine/stacks", params={"rank": 7})
        assert refused.status_code in (400, 422) and "no such rank" in refused.text
    finally:
        agent.close()
