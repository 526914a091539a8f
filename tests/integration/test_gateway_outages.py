"""The log, the database or another gateway get in the way: every answer stays true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.memory import MemoryLog
from libs.bus.port import BusUnavailable, Fenced, LogFull
from libs.contracts.gateway import OWNER
from libs.testing.faults import Faults, FaultyBus, unknown
from services.gateway.app import create_app
from services.gateway.door import Gateway
from tests.integration.gateway_cell import (
    CONTROL,
    Cell,
    direct,
    eventually,
    memory_bus,
    running_cell,
    settings,
)


class Broken:
    """A cell with a gateway's bus that breaks on command; the projection is spared."""

    def __init__(self, cell: Cell, faults: Faults) -> None:
        self.cell, self.faults = cell, faults

    async def job_ids(self) -> list[str]:
        """Of the jobs on the log, in order."""
        end = await self.cell.bus.end_offset(CONTROL)
        reader = await self.cell.bus.reader({CONTROL: 0})
        return [codec.record(message).envelope.event.subject for message in await reader.next_batch(1000, 0.1)][:end]


@asynccontextmanager
async def broken_cell(folder: Path, **fields: float) -> AsyncIterator[Broken]:
    faults = Faults()
    bus = FaultyBus(await memory_bus(), faults)
    async with running_cell(folder, bus=bus, **fields) as cell:
        yield Broken(cell, faults)


@pytest.fixture
async def broken(tmp_path: Path) -> AsyncIterator[Broken]:
    async with broken_cell(tmp_path) as broken:
        yield broken


async def test_a_job_that_the_log_does_not_take_is_not_accepted(broken: Broken) -> None:
    broken.faults.fail("commit", BusUnavailable("no broker answers (injected)"))
    answer = await broken.cell.client.post("/v1/jobs", json={"command": ["x"]}, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert "nothing was appended" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    assert await broken.job_ids() == []
    assert [await broken.cell.submit(key="k")] == await broken.job_ids()


async def test_a_commit_in_doubt_that_has_happened_is_answered_as_such(broken: Broken) -> None:
    broken.faults.fail("commit.done", unknown())
    job_id = await broken.cell.submit(key="k")
    assert await broken.cell.submit(key="k") == job_id
    assert await broken.job_ids() == [job_id]


async def test_a_commit_in_doubt_that_has_not_happened_is_made_again(broken: Broken) -> None:
    broken.faults.fail("commit", unknown())
    job_id = await broken.cell.submit(key="k")
    assert await broken.job_ids() == [job_id]


async def test_none_of_many_is_lost_or_doubled_by_doubts(broken: Broken) -> None:
    for moment in ("commit", "commit.done", "commit", "commit.done"):
        broken.faults.fail(moment, unknown())
    ids = await asyncio.gather(*(broken.cell.submit(key=f"k{number}") for number in range(200)))
    assert sorted(await broken.job_ids()) == sorted(ids)
    assert len(set(ids)) == 200


async def test_a_log_that_is_away_for_a_while_after_a_doubt_is_waited_for(broken: Broken) -> None:
    broken.faults.fail("commit.done", unknown())
    for _ in range(2):
        broken.faults.fail("open", BusUnavailable("no broker answers (injected)"))
    job_id = await broken.cell.submit(key="k")
    assert await broken.job_ids() == [job_id]


async def test_a_request_that_waits_too_long_is_told_what_is_known(tmp_path: Path) -> None:
    async with broken_cell(tmp_path, commit_timeout_s=0.3) as broken:
        broken.faults.fail("commit.done", unknown())
        for _ in range(4):
            broken.faults.fail("open", BusUnavailable("no broker answers (injected)"))
        key = {"Idempotency-Key": "k"}
        answer = await broken.cell.client.post("/v1/jobs", json={"command": ["true"]}, headers=key)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unknown-outcome")
        await eventually(lambda: accepted(broken, key))
        assert len(await broken.job_ids()) == 1


async def test_what_was_told_to_be_in_doubt_and_is_not_on_the_log_is_not_appended_later(tmp_path: Path) -> None:
    async with broken_cell(tmp_path, commit_timeout_s=0.3) as broken:
        broken.faults.fail("commit", unknown())
        for _ in range(4):
            broken.faults.fail("open", BusUnavailable("no broker answers (injected)"))
        answer = await broken.cell.client.post("/v1/jobs", json={"command": ["true"]})
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unknown-outcome")
        await eventually(lambda: accepted(broken, {"Idempotency-Key": "another"}))
        assert len(await broken.job_ids()) == 1


async def test_a_full_log_refuses_at_once_and_the_session_goes_on(broken: Broken) -> None:
    broken.faults.fail("commit", LogFull("the disk is full (injected)"))
    answer = await broken.cell.client.post("/v1/jobs", json={"command": ["x"]})
    assert (answer.status_code, answer.json()["type"]) == (507, "/problems/disk-full")
    assert answer.json()["detail"] == "the disk is full (injected); nothing was appended"
    assert await broken.job_ids() == []
    assert [await broken.cell.submit()] == await broken.job_ids()


async def accepted(broken: Broken, key: dict[str, str]) -> bool:
    answer = await broken.cell.client.post("/v1/jobs", json={"command": ["true"]}, headers=key)
    return answer.status_code == 201


async def test_a_newer_gateway_takes_over_and_the_older_one_ends(tmp_path: Path) -> None:
    with pytest.raises(Fenced, match="another gateway has taken over"):
        async with running_cell(tmp_path) as cell:
            first = await cell.submit(key="a")
            newer = await cell.bus.open_session(OWNER)
            answer = await cell.client.post("/v1/jobs", json={"command": ["x"]})
            assert answer.status_code == 503
            await asyncio.wait_for(cell.gateway.stop.wait(), 120)
            await newer.close()
            assert await cell.bus.end_offset(CONTROL) == 1
            assert first


async def test_keys_are_remembered_over_a_restart(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running_cell(tmp_path / "1", bus=await memory_bus(log)) as cell:
        before = [await cell.submit(key=f"k{number}", gpus=number + 1) for number in range(3)]
        await cell.client.delete(f"/v1/jobs/{before[0]}", headers={"Idempotency-Key": "stop"})
        end = await cell.bus.end_offset(CONTROL)
    async with running_cell(tmp_path / "2", bus=await memory_bus(log)) as cell:
        assert [await cell.submit(key=f"k{number}", gpus=number + 1) for number in range(3)] == before
        answer = await cell.client.delete(f"/v1/jobs/{before[0]}", headers={"Idempotency-Key": "stop"})
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (202, "true")
        reused = await cell.client.post("/v1/jobs", json={"command": ["y"]}, headers={"Idempotency-Key": "k0"})
        assert reused.status_code == 422
        assert await cell.bus.end_offset(CONTROL) == end


async def test_without_read_models_jobs_are_accepted_and_reads_say_why_not(tmp_path: Path) -> None:
    bus = await memory_bus()
    gateway = Gateway(settings(tmp_path, database=f"sqlite:///{tmp_path / 'none' / 'x.db'}"), bus)
    async with gateway.running(), direct(create_app(gateway)) as client:

        async def taken() -> bool:
            return (await client.post("/v1/jobs", json={"command": ["x"]})).status_code == 201

        await eventually(taken)
        answer = await client.get("/v1/jobs")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["log"]) == (503, "ok")
        assert (await client.get("/healthz")).status_code == 200


async def test_an_offset_that_the_read_models_do_not_reach_is_not_pretended(tmp_path: Path) -> None:
    bus = await memory_bus()
    async with running_cell(tmp_path / "1", bus=bus) as cell:
        await cell.submit()
        await cell.get("/v1/jobs")
        behind = settings(tmp_path / "1")
    gateway = Gateway(behind, bus)
    async with gateway.running(), direct(create_app(gateway)) as client:

        async def taken() -> bool:
            return (await client.post("/v1/jobs", json={"command": ["x"]})).status_code == 201

        await eventually(taken)
        answer = await client.get("/v1/jobs", params={"at_least_offset": 1}, headers={"Prefer": "wait=1"})
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
        late = await client.get("/v1/jobs", headers={"Prefer": "wait=1"})
        assert (late.status_code, late.headers["sanjaya-offset"]) == (200, "0")


async def test_an_offset_that_is_not_on_the_log_is_not_waited_for(broken: Broken) -> None:
    answer = await broken.cell.client.get("/v1/jobs", params={"at_least_offset": 10**6})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "at_least_offset")
