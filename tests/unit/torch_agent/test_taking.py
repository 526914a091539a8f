"""A state is fetched and taken over; what that took is known to whichever agent sees the end of it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from torch_agent.folders import TaskFolder
from torch_agent.harness.page import Handover, PageWriter
from torch_agent.moving import taking
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


class Waiting:
    """A task with a process that waits for its state, and an agent that fetches it from whatever listens there."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = TaskFolder(folder / "a.2")
        self.folder.make()
        source = StateSource(node_id="n2", address="127.0.0.1", port=port, first_rank=0)
        restore = RestoreTask(node_id="n1", job_id="a", attempt=2, from_attempt=1, sources=[source])
        self.task = Task(order=LAUNCH, gpu_indices=[0], restore=restore)
        self.page = PageWriter(str(self.folder.pages), 0, 1)
        self.page.write(0, 0.0, 0.0, float("nan"), 0, 0)
        self.page.handover(Handover(ready=True))
        self.changed = asyncio.Event()
        self.fetches = Fetches(self.changed.set)
        self.fetches.begin(self.task, self.folder)

    async def why_it_fails(self) -> str:
        """When there is news, if it is that."""
        await self.changed.wait()
        self.changed.clear()
        return self.fetches.seen(self.task, self.folder, living_pages(self.folder.pages)).failed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source is asked once."""
    monkeypatch.setattr(taking, "asks_again", lambda began_s, now_s: False)


ANOTHER_PROGRAM = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b'{"state_bytes": "many"}\n', b"x" * (5 << 20)]


@pytest.mark.parametrize("said", ANOTHER_PROGRAM, ids=["another protocol", "other types", "no line"])
async def test_a_source_whose_port_is_another_programs_by_now_has_no_state(
    said: bytes, impatient: None, tmp_path: Path
):
    """Else nothing would follow, and the job would stand still for ever."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        with suppress(ConnectionError):
            await writer.drain()

    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        why = await Waiting(tmp_path, server.sockets[0].getsockname()[1]).why_it_fails()
    assert why.startswith("n2 (127.0.0.1:") and "what listens there is no agent" in why


@pytest.mark.parametrize("said", [b"", line(Head(state_bytes=len(STATE))) + STATE[:100]], ids=["at once", "on the way"])
async def test_a_source_of_which_nothing_comes_any_more_is_given_up(
    said: bytes, impatient: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(taking, "SILENCE_S", 0.05)
    done = asyncio.Event()

    async def falls_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await done.wait()

    async with await asyncio.start_server(falls_silent, "127.0.0.1", 0) as server:
        why = await Waiting(tmp_path, server.sockets[0].getsockname()[1]).why_it_fails()
        done.set()
    assert why.endswith("nothing has come from it for 0 s")


async def test_processes_that_do_not_load_their_states_have_failed(
    source: StateSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(taking, "LOAD_PATIENCE_S", 0.0)
    waiting = Waiting(tmp_path, source.port)
    assert await waiting.why_it_fails() == "", "the state is there"
    assert await waiting.why_it_fails() == "ranks [0] have not loaded their states within 0 s"


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
