"""A state is fetched and taken over; what that took is known to whichever agent sees the end of it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from torch_agent.folders import TaskFolder
from torch_agent.harness.page import Handover, PageWriter
from torch_agent.moving.protocol import CHECKSUM, Head, line
from torch_agent.moving.taking import Fetches
from torch_agent.pages import living_pages

from libs.contracts.placement import RestoreTask, StateSource
from libs.node.task import Task
from tests.unit.node.test_task import LAUNCH

STATE = bytes(range(256)) * 1000


@pytest.fixture
async def source() -> AsyncIterator[StateSource]:
    """A node that gives the same state to every request."""

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(line(Head(state_bytes=len(STATE))) + STATE + CHECKSUM.pack(zlib.crc32(STATE)))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(give, "127.0.0.1", 0) as server:
        yield StateSource(node_id="n2", address="127.0.0.1", port=server.sockets[0].getsockname()[1], first_rank=0)


async def test_what_a_takeover_took_outlives_the_agent(source: StateSource, tmp_path: Path):
    folder = TaskFolder(tmp_path / "a.2")
    folder.make()
    restore = RestoreTask(node_id="n1", job_id="a", attempt=2, from_attempt=1, sources=[source])
    task = Task(order=LAUNCH, gpu_indices=[0], restore=restore)
    page = PageWriter(str(folder.pages), 0, 1)
    page.write(0, 0.0, 0.0, float("nan"), 0, 0)
    page.handover(Handover(ready=True))
    done = asyncio.Event()
    fetches = Fetches(done.set)
    fetches.begin(task, folder)
    await done.wait()
    seen = fetches.seen(task, folder, living_pages(folder.pages))
    assert seen.ready and not seen.restored and not seen.failed

    assert folder.state_of(0).read_bytes() == STATE
    folder.state_of(0).unlink()
    page.handover(Handover(restored=True, load_s=0.5))
    after = Fetches(done.set).seen(task, folder, living_pages(folder.pages))
    assert after.restored and (after.state_bytes, after.load_s) == (len(STATE), 0.5) and after.fetch_s > 0
