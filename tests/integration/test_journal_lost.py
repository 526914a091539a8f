"""An agent whose journal is gone or damaged: what runs is adopted, what has ended is reported, nothing runs again.

The witness is a file that each task appends a line to when it begins and when it ends, outside of the agent's folder.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
from torch_agent.processes import lives

from libs.bus import codec
from libs.bus.batches import kept_before
from libs.contracts.agent import JobExited, JobLogged, JobStarted, JobSuspended, NodeJoined
from libs.contracts.base import Topic
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.testing.builders import launch
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import THOROUGH, cases
from tests.integration.agent_case import AgentCase, has_ended

RUNNING, ENDED = ("r1", "r2", "r3"), ("e1", "e2", "e3")
CODES = {"e1": 0, "e2": 3, "e3": 0, "r1": 0, "r2": 4, "r3": 0}


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    # There is no placement here, which alone takes a node again that has been lost.
    async with AgentCase(tmp_path, virtual_gpus=6, environment={"SANJAYA_NODE_TIMEOUT_S": "3600"}) as case:
        await case.fact(NodeJoined)
        yield case
    assert nothing_left_of(tmp_path) == []


async def three_run_and_three_end(agent: AgentCase) -> dict[str, int]:
    """Start them, and kill the agent; then two of the latter have ended before that, and one meanwhile.

    Returns:
        {job: pid}.
    """
    folder, jobs = agent.folder, [*RUNNING, *ENDED]
    for gpu, job in enumerate(jobs):
        witness, go = folder / f"{job}.witness", folder / f"{job}.go"
        begins, ends = (f"echo {job} {word}; echo {word} >> {witness}" for word in ("began", "ended"))
        script = f"{begins}; while [ ! -e {go} ]; do sleep 0.05; done; {ends}; exit {CODES[job]}"
        await agent.order(launch(job, "sh", "-c", script, gpu_indices=[gpu]))
    pids = {}
    for _ in jobs:
        started = await agent.until(JobStarted)
        pids[started.job_id] = started.pid
    (folder / "e1.go").touch()
    assert (await agent.until(JobExited)).job_id == "e1"
    await agent.order(SuspendTask(node_id="n1", job_id="r3", attempt=1))
    await agent.until(JobSuspended)
    agent.kill()
    for job in ("e2", "e3"):
        (folder / f"{job}.go").touch()
        has_ended(pids[job])
        while not (agent.task_folder(job) / "exit.json").exists():
            await agent.pause()
    return pids


async def all_is_as_it_was(agent: AgentCase, pids: dict[str, int]) -> None:
    """The next agent adopts three tasks, says how two have ended, and each job has run once at the end."""
    agent.start()
    agent.facts.clear()
    joined = await agent.until(NodeJoined)
    assert {task.job_id for task in joined.tasks} >= set(RUNNING) and joined.incarnation == 2
    assert {job: lives(pids[job]) for job in RUNNING} == dict.fromkeys(RUNNING, True)
    while len([fact for fact in agent.facts if isinstance(fact, JobExited)]) < 2:
        await agent.until(JobExited)
    await agent.order(ResumeTask(node_id="n1", job_id="r3", attempt=1))
    for job in RUNNING:
        (agent.folder / f"{job}.go").touch()
    while len([fact for fact in agent.facts if isinstance(fact, JobExited)]) < 5:
        await agent.until(JobExited)
    await agent.order(launch("next", "true"))
    await agent.until(JobExited, lambda fact: fact.job_id == "next")
    ends = {fact.job_id: (fact.outcome, fact.exit_code) for fact in agent.facts if isinstance(fact, JobExited)}
    expected = {job: ("exited", CODES[job]) for job in CODES if job != "e1"} | {"next": ("exited", 0)}
    assert ends == expected
    assert Counter(fact.job_id for fact in agent.facts if isinstance(fact, JobStarted)) == {"next": 1}
    for job in CODES:
        assert (agent.folder / f"{job}.witness").read_text() == "began\nended\n", job
    assert await output(agent) == Counter(f"{job} {word}" for job in CODES for word in ("began", "ended"))


async def output(agent: AgentCase) -> Counter[str]:
    """All lines that jobs have written, as they are on the log."""
    lines: Counter[str] = Counter()
    for partition in await agent.bus.partitions(Topic.LOGS):
        async for message in kept_before(agent.bus, partition, await agent.bus.end_offset(partition)):
            event = codec.record(message).envelope.event
            lines.update(line.text for line in event.lines if isinstance(event, JobLogged))
    return lines


def deleted(folder: Path) -> None:
    for path in folder.glob("journal.db*"):
        path.unlink()


def without_log(folder: Path) -> None:
    (folder / "journal.db-wal").unlink()
    (folder / "journal.db-shm").unlink()


def cut(folder: Path) -> None:
    _whole(folder)
    path = folder / "journal.db"
    os.truncate(path, path.stat().st_size // 2)


def emptied(folder: Path) -> None:
    deleted(folder)
    (folder / "journal.db").touch()


def other_bytes(folder: Path) -> None:
    _whole(folder)
    with closing(sqlite3.connect(folder / "journal.db", isolation_level=None)) as db:
        db.execute("UPDATE tasks SET task = x'ff0081' WHERE key = 'r1.1'")


def _whole(folder: Path) -> None:
    """Bring the write-ahead log into the file: what is damaged then is not made good from there."""
    with closing(sqlite3.connect(folder / "journal.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    (folder / "journal.db-wal").unlink(missing_ok=True)


@pytest.mark.parametrize("harm", cases(deleted, without_log, other_bytes, thorough=(cut, emptied)))
async def test_without_its_journal_an_agent_knows_its_tasks(agent: AgentCase, harm: Callable[[Path], None]):
    pids = await three_run_and_three_end(agent)
    harm(agent.folder / "n1")
    await all_is_as_it_was(agent, pids)
    log = (agent.folder / "agent.log").read_text()
    assert "the journal did not have these tasks as they are: " in log and "Traceback" not in log
    aside = list((agent.folder / "n1").glob("journal.damaged-*.db"))
    assert bool(aside) == (harm in (cut, other_bytes))
    for path in aside:
        assert f"it is kept as {path.name}" in log


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal"])
async def test_no_bit_of_a_journal_makes_anything_run_again(agent: AgentCase, tmp_path: Path, name: str):
    """One journal, its bits changed one at a time, and an agent that reads it each time; then the last one goes on."""
    pids = await three_run_and_three_end(agent)
    state, kept = agent.folder / "n1", tmp_path / "kept"
    if name == "journal.db":
        _whole(state)
    kept.mkdir()
    for path in state.glob("journal.db*"):
        shutil.copy(path, kept)
    written = _end_of_log(kept / name) if name.endswith("wal") else (kept / name).stat().st_size
    chance = random.Random(len(name))
    for number in range(100 if THOROUGH else 3):
        for path in state.glob("journal*"):
            path.unlink()
        for path in kept.iterdir():
            shutil.copy(path, state)
        bit = chance.randrange(8 * written)
        with (state / name).open("r+b") as file:
            file.seek(bit // 8)
            [byte] = file.read(1)
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))
        agent.start()
        joined = await agent.until(NodeJoined)
        here = {task.job_id for task in joined.tasks}
        assert here >= set(RUNNING), (number, bit)
        assert {job: lives(pids[job]) for job in RUNNING} == dict.fromkeys(RUNNING, True), (number, bit)
        ends = {f.job_id for f in agent.facts if isinstance(f, JobExited)}
        while not ends >= set(ENDED):
            ends.add((await agent.until(JobExited)).job_id)
        agent.kill()
    agent.start()
    await agent.until(NodeJoined)
    await agent.order(ResumeTask(node_id="n1", job_id="r3", attempt=1))
    for job in RUNNING:
        (agent.folder / f"{job}.go").touch()
    while not {fact.job_id for fact in agent.facts if isinstance(fact, JobExited)} >= set(CODES):
        await agent.until(JobExited)
    exits = [fact for fact in agent.facts if isinstance(fact, JobExited)]
    assert {fact.job_id: (fact.outcome, fact.exit_code) for fact in exits} == {
        job: ("exited", code) for job, code in CODES.items()
    }
    assert Counter(fact.job_id for fact in agent.facts if isinstance(fact, JobStarted)) == dict.fromkeys(CODES, 1)
    assert Counter(fact.job_id for fact in exits) == dict.fromkeys(CODES, 1)
    for job in CODES:
        assert (agent.folder / f"{job}.witness").read_text() == "began\nended\n", job


def _end_of_log(path: Path) -> int:
    """Behind the last frame that was written; the rest is allocated."""
    return len(path.read_bytes().rstrip(b"\0"))
