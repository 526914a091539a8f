"""Streams over a real socket: nothing missed, nothing twice, silence is announced."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from libs.bus import codec
from libs.bus.port import Position
from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobSucceeded
from libs.inspect.archive import archive, give_back
from libs.inspect.jsonl import read_jsonl
from libs.testing.core_case import node
from libs.testing.late import LateBus
from services.gateway.adapters import feed
from tests.integration.gateway_cell import CONTROL, Cell, memory_bus, running_cell

SSE = {"Accept": "text/event-stream"}
NDJSON = {"Accept": "application/x-ndjson"}


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path, serve=True) as cell:
        yield cell


class Stream:
    """Server-sent events as they come."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def event(self) -> dict[str, str]:
        """The next event; a comment comes as `{"": text}`."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(120):
            async for line in self._lines:
                if not line and fields:
                    return fields
                name, _, value = line.partition(": ")
                fields[name] = value
        raise EOFError

    async def events(self, count: int) -> list[dict[str, str]]:
        """The next events, without comments."""
        found: list[dict[str, str]] = []
        while len(found) < count:
            event = await self.event()
            if "data" in event:
                found.append(event)
        return found


@asynccontextmanager
async def streamed(
    cell: Cell, path: str, headers: dict[str, str] | None = None, **params: Any
) -> AsyncIterator[Stream]:
    async with cell.client.stream("GET", path, headers=SSE | (headers or {}), params=params) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield Stream(answer)


async def test_events_come_as_they_are_appended(cell: Cell) -> None:
    async with streamed(cell, "/v1/events", from_offset=0) as stream:
        job_id = await cell.submit(name="a")
        [first] = await stream.events(1)
        assert (first["id"], first["event"]) == ("0", "job.arrived.v1")
        event = msgspec.json.decode(first["data"])
        assert (event["subject"], event["offset"], event["data"]["spec"]["name"]) == (job_id, 0, "a")
        await cell.submit(name="b")
        [second] = await stream.events(1)
        assert second["id"] == "1"


async def test_a_stream_without_a_start_begins_now(cell: Cell) -> None:
    await cell.submit(name="before")
    await cell.get("/v1/jobs")
    async with streamed(cell, "/v1/events") as stream:
        await cell.submit(name="after")
        [event] = await stream.events(1)
        assert msgspec.json.decode(event["data"])["data"]["spec"]["name"] == "after"


async def test_a_client_that_reconnects_misses_nothing_and_gets_nothing_twice(cell: Cell) -> None:
    for _ in range(5):
        await cell.submit()
    async with streamed(cell, "/v1/events", from_offset=0) as stream:
        seen = [event["id"] for event in await stream.events(3)]
    for _ in range(5):
        await cell.submit()
    async with streamed(cell, "/v1/events", {"Last-Event-ID": seen[-1]}) as stream:
        seen += [event["id"] for event in await stream.events(7)]
    assert seen == [str(offset) for offset in range(10)]


async def test_a_client_far_behind_reads_the_log_first(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "KEPT", 4)
    for number in range(50):
        await cell.submit(name=f"job{number}")
    async with streamed(cell, "/v1/events", from_offset=0) as stream:
        seen = [int(event["id"]) for event in await stream.events(50)]
        await asyncio.gather(*(cell.submit() for _ in range(20)))
        seen += [int(event["id"]) for event in await stream.events(20)]
    assert seen == list(range(70))


async def test_lines_that_cannot_be_read_on_break_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the events is not to look like all of them; browsers are told to connect again."""
    monkeypatch.setattr(feed, "KEPT", 1)
    bus = LateBus(await memory_bus(), 0.0)
    async with running_cell(tmp_path, bus=bus, serve=True) as cell:
        for number in range(3):
            await cell.submit(name=f"job{number}")
        bus.takes_s = math.inf
        with pytest.raises(httpx2.RemoteProtocolError):
            await cell.client.get("/v1/events", headers=NDJSON, params={"from_offset": 0, "follow": False})
        async with streamed(cell, "/v1/events", from_offset=0) as stream:
            assert "nothing came" in (await stream.event())[""]


async def test_silence_is_announced(tmp_path: Path) -> None:
    async with running_cell(tmp_path, serve=True, heartbeat_s=0.05) as cell, streamed(cell, "/v1/events") as stream:
        assert await stream.event() == {"": "still here"}


async def test_events_can_be_filtered(cell: Cell) -> None:
    await cell.submit(name="a")
    job_id = await cell.submit(name="b")
    await cell.say(node("n1", 1), JobSucceeded(job_id=job_id, attempt=1))

    async def ids(**params: Any) -> list[str]:
        async with streamed(cell, "/v1/events", from_offset=0, follow=False, **params) as stream:
            found = []
            while True:
                try:
                    found.append((await stream.event())["id"])
                except EOFError:
                    return found

    await cell.get("/v1/jobs")
    assert await ids() == ["0", "1", "2", "3"]
    assert await ids(job=job_id) == ["1", "3"]
    assert await ids(node="n1") == ["2"]
    assert await ids(type=["job.arrived.v1", "job.succeeded.v1"]) == ["0", "1", "3"]
    assert await ids(source="placement") == ["3"]


async def test_curl_gets_json_lines(cell: Cell) -> None:
    for _ in range(3):
        await cell.submit()
    await cell.get("/v1/jobs")
    answer = await cell.client.get("/v1/events", headers=NDJSON, params={"follow": False})
    events = [msgspec.json.decode(line) for line in answer.text.splitlines()]
    assert [event["offset"] for event in events] == [0, 1, 2]
    assert all(event["specversion"] == "1.0" for event in events)


async def test_pages_and_streams_show_the_same_events(cell: Cell) -> None:
    for _ in range(5):
        await cell.submit()
    pages: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = await cell.get("/v1/events", limit=2, **cursor)
        pages += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    lines = (await cell.client.get("/v1/events", headers=NDJSON, params={"follow": False})).text.splitlines()
    assert pages == [msgspec.json.decode(line) for line in lines]


async def test_a_stream_in_no_known_form_is_refused(cell: Cell) -> None:
    answer = await cell.client.get("/v1/events", headers={"Accept": "image/png"})
    assert (answer.status_code, answer.json()["type"]) == (406, "/problems/not-acceptable")


async def log_lines(cell: Cell, job_id: str, *texts: str, number: int = 0, rank: int = 0) -> None:
    lines = [LogLine(time_s=1.0, stream="stdout", rank=rank, text=text) for text in texts]
    event = JobLogged(job_id=job_id, attempt=1, node_id="n1", lines=lines)
    envelope = Envelope(id=f"log-{job_id}-{number}", source="agent/n1", time_s=1.0, event=event)
    await cell.bus.append([codec.outgoing(envelope)])


async def test_the_output_of_a_job_is_kept_in_order_and_once(cell: Cell) -> None:
    job_id, other = await cell.submit(name="a"), await cell.submit(name="b")
    await log_lines(cell, job_id, "one", "two", number=1)
    await log_lines(cell, other, "not mine", number=1)
    await log_lines(cell, job_id, "one", "two", number=1)
    await log_lines(cell, job_id, "three", number=2, rank=1)

    async def texts(**params: Any) -> list[str]:
        return [
            line["text"] for line in (await cell.client.get(f"/v1/jobs/{job_id}/logs", params=params)).json()["items"]
        ]

    assert await texts() == ["one", "two", "three"]
    assert await texts(tail=2) == ["two", "three"]
    assert await texts(rank=1) == ["three"]
    assert await texts(stream="stderr") == await texts(tail=0) == await texts(since_s=2.0) == []
    plain = await cell.client.get(f"/v1/jobs/{job_id}/logs", headers={"Accept": "text/plain"})
    assert plain.text == "one\ntwo\nthree\n"


async def test_a_followed_output_ends_with_the_job(cell: Cell) -> None:
    job_id = await cell.submit()
    await log_lines(cell, job_id, "one", number=1)
    async with streamed(cell, f"/v1/jobs/{job_id}/logs", follow=True) as stream:
        [first] = await stream.events(1)
        await log_lines(cell, job_id, "two", number=2)
        [second] = await stream.events(1)
        await cell.say(JobSucceeded(job_id=job_id, attempt=1))
        [end] = await stream.events(1)
        with pytest.raises(EOFError):
            await stream.events(1)
    assert [line["text"] for event in (first, second) for line in msgspec.json.decode(event["data"])["lines"]] == [
        "one",
        "two",
    ]
    assert (end["event"], msgspec.json.decode(end["data"])["state"]) == ("end", "SUCCEEDED")
    async with streamed(cell, f"/v1/jobs/{job_id}/logs", {"Last-Event-ID": first["id"]}, follow=True) as stream:
        [resumed, end] = await stream.events(2)
    assert (resumed["id"], end["event"]) == (second["id"], "end")


async def test_an_exported_log_is_the_log(cell: Cell) -> None:
    for _ in range(3):
        await cell.submit()
    answer = await cell.client.get("/v1/log/export")
    log = read_jsonl(answer.content.splitlines(), "the answer")
    assert (log.header.cell, log.header.topics) == ("lab", ("control", "orders"))
    exported = list(log.messages)
    reader = await cell.bus.reader({CONTROL: 0})
    assert [codec.record(message) for message in exported] == [
        codec.record(message) for message in await reader.next_batch(10, 1.0)
    ]


async def test_an_exported_log_has_the_positions_that_the_bus_knows(cell: Cell) -> None:
    await cell.submit()
    for name in ("placement", "introspection"):
        session = await cell.bus.open_session(name)
        await session.commit([], {CONTROL: Position(1)})
        await session.close()
    answer = await cell.client.get("/v1/log/export")
    log = read_jsonl(answer.content.splitlines(), "the answer")
    assert log.header.positions == {"placement": 1, "introspection": 1}


async def test_an_exported_log_has_its_archive_in_it(cell: Cell, tmp_path: Path) -> None:
    for _ in range(3):
        await cell.submit()
    before = await cell.client.get("/v1/log/export")
    opened = await archive(cell.bus, tmp_path / "archive", 2, contiguous=True)
    await give_back(cell.bus, opened, 2, {})
    after = await cell.client.get("/v1/log/export")
    assert after.status_code == 200
    assert after.content.splitlines()[1:] == before.content.splitlines()[1:]
    assert len(after.content.splitlines()) == 4
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    broken = await cell.client.get("/v1/log/export")
    assert broken.status_code == 503
    assert "control/0@0-1 of cell lab are in the archive" in broken.json()["detail"]


async def test_events_are_followed_from_the_archive_on(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEPT", 1)
    for _ in range(5):
        await cell.submit()
    opened = await archive(cell.bus, tmp_path / "archive", 2, contiguous=True)
    await give_back(cell.bus, opened, 2, {})
    async with streamed(cell, "/v1/events", from_offset=0) as stream:
        assert [int(event["id"]) for event in await stream.events(5)] == list(range(5))
