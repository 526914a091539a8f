"""The embedded log under several operating-system processes, killed at any moment."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from libs.bus.connect import connect
from libs.contracts.base import Topic
from libs.testing.bus_contract import LAYOUT
from libs.testing.bus_contract.log import CONTROL, PATIENCE_S, everything, take, text, texts, until_end
from libs.testing.thorough import often

ROOT = Path(__file__).parents[2]
ROUNDS = often(4, thorough=12)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log that does not exist yet."""
    return f"sqlite:///{tmp_path / 'log.db'}"


@asynccontextmanager
async def process(role: str, url: str) -> AsyncIterator[Process]:
    """Start a process; it is killed in the end if it was not before."""
    command = (sys.executable, "-W", "error", "-m", "tests.integration.embedded_process", role, url)
    started = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def said(running: Process) -> str:
    """Its next line."""
    assert running.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        line = await running.stdout.readline()
    assert line, "the process ended without saying so"
    return line.decode().strip()


@pytest.mark.thorough
async def test_nothing_is_lost_or_doubled_by_kill_9_at_any_moment(url: str, tmp_path: Path) -> None:
    chance = random.Random(2)
    acknowledged = -1
    for _ in range(ROUNDS):
        async with process("source", url) as source, process("worker", url) as worker:
            await said(worker)
            for _ in range(chance.randrange(1, 40)):
                acknowledged = int(await said(source))
            await asyncio.sleep(chance.uniform(0, 0.004))  # anywhere between two lines
            first, second = chance.sample([source, worker], 2)
            first.kill()
            second.kill()
            rest = (await source.communicate())[0].split()
            acknowledged = int(rest[-1]) if rest else acknowledged
    orders = await finish(url)
    assert len(orders) > acknowledged, "an acknowledged order is lost"
    check_file(tmp_path / "log.db")


async def finish(url: str) -> list[str]:
    """Let a worker go to the end; every order is there once, and so is its decision and its log line."""
    bus = await connect(url, "lab")
    written = await everything(bus, Topic.ORDERS)
    orders = sorted(texts(written), key=lambda value: int(value.split()[1]))
    assert orders == [f"order {number}" for number in range(len(orders))]
    async with process("worker", url):
        decisions = await take(bus, {CONTROL: 0}, len(orders))
    assert sorted(texts(decisions)) == sorted(f"done {order}" for order in orders)
    assert await bus.end_offset(CONTROL) == len(orders)
    assert sorted(texts(await everything(bus, Topic.LOGS))) == sorted(o.replace("order", "log") for o in orders)
    for partition in await bus.partitions(Topic.ORDERS):
        found = await until_end(bus, partition)
        assert [message.offset for message in found] == list(range(len(found)))
    await bus.close()
    return orders


def check_file(path: Path) -> None:
    """SQLite's own opinion of the file."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_processes_that_start_together_make_one_log(url: str) -> None:
    async with process("source", url) as a, process("worker", url) as b, process("worker", url) as c:
        await said(a)
        assert sorted([await until_fenced_or_working(b), await until_fenced_or_working(c)])[-1] == "working"
    bus = await connect(url, "lab")
    assert await bus.partitions(Topic.CONTROL) == [CONTROL]
    assert len(await bus.partitions(Topic.ORDERS)) == 2
    await bus.close()


async def until_fenced_or_working(running: Process) -> str:
    """What becomes of one of two workers."""
    return "fenced" if await said(running) == "fenced" else "working"


async def test_a_second_process_fences_the_first(url: str) -> None:
    async with process("source", url) as old:
        await said(old)
        async with process("source", url) as new:
            await said(new)
            while (line := await said(old)) != "fenced":
                assert line.isdigit()
            assert await asyncio.wait_for(old.wait(), PATIENCE_S) == 0
            await said(new)
    await finish(url)


async def test_a_process_is_woken_by_another_one(url: str, tmp_path: Path) -> None:
    async with process("worker", url) as worker:
        bus = await connect(url, "lab")
        await bus.create_topics(LAYOUT)
        await bus.append([text(Topic.ORDERS, "n1", "0")])
        assert await said(worker) == "1"
        assert len(list((tmp_path / "log.db.wake").iterdir())) == 1
        for number in range(1, 5):
            await bus.append([text(Topic.ORDERS, "n1", str(number))])
            assert await said(worker) == "1"
        worker.kill()
        await worker.wait()
        assert len(list((tmp_path / "log.db.wake").iterdir())) == 1
        await bus.append([text(Topic.ORDERS, "n1", "to no reader")])
        assert list((tmp_path / "log.db.wake").iterdir()) == []
        await bus.close()
