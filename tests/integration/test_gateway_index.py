"""The gateway's index of requests over restarts: what is read, what is known, what is refused, what stays in memory."""

from __future__ import annotations

import asyncio
import gc
import signal
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker.network import free_port
from libs.bus.port import Bus, Message, Partition, Reader, TopicLayout
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import OWNER, JobArrived
from libs.kernel.ids import request_id, short_id
from libs.testing.core_case import arrival
from libs.testing.late import LateBus
from libs.testing.processes import Processes, until
from services.gateway.adapters import intake
from services.gateway.app import create_app
from services.gateway.core.idempotency import Accepted
from services.gateway.door import Gateway
from services.projection.adapters.store import Store
from tests.integration.gateway_cell import CONTROL, Cell, direct, eventually, running_cell, settings

pytest_plugins = ["libs.testing.postgres"]

DAY_S = 86_400.0
BODY = {"command": ["true"]}


class CountingBus:
    """A real log with readers that count what they give away."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.given: list[int] = []
        """Offsets of the control records that were read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        return _CountingReader(await self._bus.reader(starts), self.given)  # type: ignore[return-value]


class _CountingReader:
    def __init__(self, reader: Reader, given: list[int]) -> None:
        self._reader, self._given, self.close = reader, given, reader.close

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        messages = await self._reader.next_batch(max_messages, timeout_s)
        self._given += [message.offset for message in messages if message.partition == CONTROL]
        return messages


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Bus]:
    folder.mkdir(exist_ok=True)
    bus = await connect(f"sqlite:///{folder / 'log.db'}", "lab")
    try:
        await bus.create_topics(TopicLayout())
        yield bus
    finally:
        await bus.close()


async def append_others(bus: Bus, count: int, *, source: str = "sweeps") -> None:
    """Arrivals that are not the gateway's."""
    envelopes = [
        Envelope(id=f"{source}-{number}", source=source, time_s=1.0, event=arrival(f"{source}-{number}"))
        for number in range(count)
    ]
    await bus.append([codec.outgoing(envelope) for envelope in envelopes])


async def post(cell: Cell, key: str, **body: Any) -> httpx2.Response:
    return await cell.client.post("/v1/jobs", json=BODY | body, headers={"Idempotency-Key": key})


async def arrivals(bus: Bus) -> list[str]:
    end = await bus.end_offset(CONTROL)
    reader = await bus.reader({CONTROL: 0})
    found: list[str] = []
    try:
        while True:
            messages = await reader.next_batch(1000, 5.0)
            events = [codec.record(message).envelope.event for message in messages]
            found += [event.job_id for event in events if isinstance(event, JobArrived)]
            if not messages or messages[-1].offset + 1 >= end:
                return found
    finally:
        await reader.close()


def stored(folder: Path) -> tuple[int, int]:
    """Position of the stored index, and the number of its entries."""
    with sqlite3.connect(folder / "read_models.db") as connection:
        position = connection.execute("SELECT next_offset FROM gateway_index").fetchone()[0]
        return int(position), int(connection.execute("SELECT count(*) FROM gateway_keys").fetchone()[0])


async def test_a_start_reads_the_tail_and_not_the_history(tmp_path: Path) -> None:
    async with embedded(tmp_path) as bus:
        await append_others(bus, 2500)
        async with running_cell(tmp_path, bus=bus) as cell:
            first = await cell.submit(key="k")
            await cell.get("/v1/jobs")
        assert stored(tmp_path) == (2501, 1), "a gateway that ends in peace leaves no tail"
        await append_others(bus, 7, source="others")
        counting = CountingBus(bus)
        async with running_cell(tmp_path, bus=counting) as cell:
            await cell.get("/v1/jobs")
            assert (await cell.get("/v1/status"))["accepted"] == 1
            again = await post(cell, "k")
            assert (again.status_code, again.json()["id"], again.headers["idempotent-replayed"]) == (201, first, "true")
        before = [offset for offset in counting.given if offset < 2501]
        assert before == [0, 0], "gateway and projection ask for the id of the log's first record"
        assert counting.given.count(2507) == 2, "both read the tail"
        assert await bus.end_offset(CONTROL) == 2508


async def test_the_index_reaches_postgresql_too(tmp_path: Path, postgres_url: str) -> None:
    async with embedded(tmp_path) as bus:
        async with running_cell(tmp_path, bus=bus, database=postgres_url) as cell:
            ids = [await cell.submit(key=f"k{number}") for number in range(20)]
            await cell.get("/v1/jobs")
        counting = CountingBus(bus)
        async with running_cell(tmp_path, bus=counting, database=postgres_url) as cell:
            assert [await cell.submit(key=f"k{number}") for number in range(20)] == ids
            assert (await post(cell, "k3", gpus=2)).status_code == 422
        assert await bus.end_offset(CONTROL) == 20
        assert set(counting.given) == {0, 3}, "the first record names the log, the other one is compared"


async def test_a_gateway_that_is_killed_between_commit_and_index_doubles_nothing(tmp_path: Path) -> None:
    async with embedded(tmp_path) as bus:
        port = free_port()
        environment = {
            "SANJAYA_BUS": f"sqlite:///{tmp_path / 'log.db'}",
            "SANJAYA_CELL": "lab",
            "SANJAYA_STATE_DIR": str(tmp_path),
        }
        processes = Processes(environment)
        client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120)

        async def takes_jobs() -> bool:
            try:
                return bool((await client.get("/readyz")).json()["checks"]["log"] == "ok")
            except httpx2.TransportError:
                return False

        async def submit(key: str) -> httpx2.Response:
            return await client.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": key})

        try:
            gateway = await processes.start("services.gateway", "--port", str(port))
            await until(takes_jobs)
            writer = sqlite3.connect(tmp_path / "read_models.db", isolation_level=None)
            writer.execute("BEGIN IMMEDIATE")  # the index cannot be written from here on
            accepted = [await submit(f"k{number}") for number in range(3)]
            assert [answer.status_code for answer in accepted] == [201, 201, 201]
            gateway.send_signal(signal.SIGKILL)
            await gateway.wait()
            writer.execute("ROLLBACK")
            writer.close()
            assert stored(tmp_path) == (0, 0)
            await processes.start("services.gateway", "--port", str(port))
            await until(takes_jobs)
            assert stored(tmp_path) == (3, 3)
            again = [await submit(f"k{number}") for number in range(3)]
            assert [answer.headers["idempotent-replayed"] for answer in again] == ["true"] * 3
            assert (
                await arrivals(bus) == [answer.json()["id"] for answer in accepted] == [a.json()["id"] for a in again]
            )
        finally:
            await client.aclose()
            await processes.kill_all()


async def test_a_key_beyond_the_window_is_never_appended_again(tmp_path: Path) -> None:
    start_s = 1_700_000_000.0
    async with embedded(tmp_path) as bus:
        async with running_cell(tmp_path, bus=bus, now=lambda: start_s) as cell:
            old = await cell.submit(key="old")
            await cell.client.delete(f"/v1/jobs/{old}", headers={"Idempotency-Key": "stop"})
        async with running_cell(tmp_path, bus=bus, now=lambda: start_s + 29.9 * DAY_S) as cell:
            newer = await cell.submit(key="newer")
            await cell.get("/v1/jobs")
            await cell.gateway.intake.prune()
            assert stored(tmp_path)[1] >= 2, "30 days are kept"
        async with running_cell(tmp_path, bus=bus, now=lambda: start_s + 30.1 * DAY_S) as cell:
            await cell.get("/v1/jobs")
            await cell.gateway.intake.prune()
            assert stored(tmp_path) == (3, 1)
            again, other = await post(cell, "old"), await post(cell, "old", gpus=2)
            assert (again.status_code, again.json()["id"], again.headers["idempotent-replayed"]) == (201, old, "true")
            assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
            stop = await cell.client.delete(f"/v1/jobs/{old}", headers={"Idempotency-Key": "stop"})
            assert (stop.status_code, stop.headers["idempotent-replayed"]) == (202, "true")
            assert (await post(cell, "newer")).json()["id"] == newer
            assert (await post(cell, "new")).status_code == 201
            assert await bus.end_offset(CONTROL) == 4


async def test_while_the_read_models_are_made_anew_an_old_key_is_not_guessed_about(tmp_path: Path) -> None:
    start_s = 1_700_000_000.0
    async with embedded(tmp_path) as bus:
        async with running_cell(tmp_path, bus=bus, now=lambda: start_s) as cell:
            await cell.submit(key="old")
            await cell.get("/v1/jobs")
        async with running_cell(tmp_path, bus=bus, now=lambda: start_s + 31 * DAY_S) as cell:
            await cell.get("/v1/jobs")
            await cell.gateway.intake.prune()
        store = Store(settings(tmp_path).database, "lab")
        store.build(anew=True)
        assert store.swap(store.found())
        store.close()
        async with running_without_projection(tmp_path, bus=bus) as cell:
            answer = await post(cell, "old")
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
            assert "the read models" in answer.json()["detail"] and "nothing was appended" in answer.json()["detail"]
            assert await bus.end_offset(CONTROL) == 1


@asynccontextmanager
async def running_without_projection(folder: Path, *, bus: Bus) -> AsyncIterator[Cell]:
    gateway = Gateway(settings(folder), bus)
    async with gateway.running(), direct(create_app(gateway)) as client:

        async def takes_requests() -> bool:
            return gateway.intake.ready

        await eventually(takes_requests)
        yield Cell(gateway, bus, client)


@pytest.mark.parametrize("projected", [True, False], ids=["in the read models", "on the log only"])
async def test_an_id_that_another_job_has_is_refused(tmp_path: Path, projected: bool) -> None:
    """A trial of a sweep, or a job with the key of another one in 80 bits: what stands on the log is not touched."""
    async with embedded(tmp_path) as bus:
        taken = Envelope(
            id="another", source="sweeps" if projected else OWNER, time_s=1.0, event=arrival(short_id("j", "k"))
        )
        await bus.append([codec.outgoing(taken)])
        running = running_cell if projected else running_without_projection
        async with running(tmp_path, bus=bus) as cell:
            if projected:
                await cell.get("/v1/jobs")
            answer = await post(cell, "k")
            assert (answer.status_code, answer.json()["type"]) == (409, "/problems/id-taken")
            assert short_id("j", "k") in answer.json()["detail"] and "offset 0" in answer.json()["detail"]
            assert (await post(cell, "l")).status_code == 201
            assert await arrivals(bus) == [short_id("j", "k"), short_id("j", "l")]


async def test_a_log_that_answers_late_is_read_to_its_end(tmp_path: Path) -> None:
    """A new index that lacks a request would have it appended again."""
    async with embedded(tmp_path) as bus:
        async with running_cell(tmp_path, bus=bus) as cell:
            job_id = await cell.submit(key="k")
        async with running_without_projection(tmp_path / "anew", bus=LateBus(bus, 9.0)) as cell:
            assert await cell.submit(key="k") == job_id
        assert await arrivals(bus) == [job_id]


async def test_two_requests_of_one_moment_do_not_get_one_id(tmp_path: Path) -> None:
    async with embedded(tmp_path) as bus, running_cell(tmp_path, bus=bus) as cell:
        gateway = cell.gateway
        both = [gateway.envelope(key, arrival("j-same")) for key in ("a", "b")]
        results = await asyncio.gather(*(gateway.intake.take(envelope) for envelope in both), return_exceptions=True)
        assert [type(result) for result in results] == [intake.Taken, intake.IdTaken]
        with pytest.raises(intake.IdTaken, match="j-same belongs to what arrived at offset 0"):
            await gateway.intake.take(gateway.envelope("c", arrival("j-same")))
        assert await arrivals(bus) == ["j-same"]


async def test_a_request_of_a_version_with_shorter_ids_is_answered_with_the_id_on_the_log(tmp_path: Path) -> None:
    """Its key would give another id today."""
    async with embedded(tmp_path) as bus:
        async with running_cell(tmp_path / "elsewhere", bus=bus) as cell:
            await cell.submit(key="k")
            recorded = codec.record((await (await bus.reader({CONTROL: 0})).next_batch(1, 5.0))[0]).envelope.event
        assert isinstance(recorded, JobArrived)
    async with embedded(tmp_path / "older") as older:
        event = JobArrived(
            job_id="j-7f3akq2m5c",
            spec=recorded.spec,
            submitted_by=recorded.submitted_by,
            request_digest=recorded.request_digest,
        )
        envelope = Envelope(id=request_id(OWNER, "k"), source=OWNER, time_s=1.0, event=event)
        await older.append([codec.outgoing(envelope)])
        async with running_cell(tmp_path / "older", bus=older) as cell:
            answer = await post(cell, "k")
            assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
            assert (answer.json()["id"], answer.headers["location"]) == ("j-7f3akq2m5c", "/v1/jobs/j-7f3akq2m5c")
            for reference in ("j-7f3akq2m5c", "j-7f3"):
                assert (await cell.get(f"/v1/jobs/{reference}"))["id"] == "j-7f3akq2m5c"
            assert await older.end_offset(CONTROL) == 1


async def test_another_log_is_not_answered_from_the_old_index(tmp_path: Path) -> None:
    async with embedded(tmp_path) as bus, running_cell(tmp_path, bus=bus) as cell:
        job_id = await cell.submit(key="k", name="first")
    async with embedded(tmp_path / "another") as bus:
        await append_others(bus, 3)
        async with running_cell(tmp_path, bus=bus) as cell:
            answer = await post(cell, "k", name="second")
            assert (answer.status_code, "idempotent-replayed" in answer.headers) == (201, False)
            assert await arrivals(bus) == ["sweeps-0", "sweeps-1", "sweeps-2", job_id]


async def test_what_is_stored_takes_no_memory(tmp_path: Path) -> None:
    async with embedded(tmp_path) as bus, running_cell(tmp_path, bus=bus) as cell:
        gateway = cell.gateway
        for first in range(0, 600, 200):
            envelopes = [gateway.envelope(f"k{n}", arrival(f"j-{n}")) for n in range(first, first + 200)]
            await asyncio.gather(*(gateway.intake.take(envelope) for envelope in envelopes))

        async def all_stored() -> bool:
            return gateway.intake.unstored == 0

        await eventually(all_stored)
        assert stored(tmp_path) == (600, 600)
        gc.collect()
        assert [entry for entry in gc.get_objects() if type(entry) is Accepted] == []
        assert await cell.gateway.intake.known(request_id(OWNER, "k7")) is not None


async def test_a_digest_of_another_version_is_compared_with_the_record(tmp_path: Path) -> None:
    """A new field in an event changes its encoding, and with it the digest that the index was given earlier."""
    stop = {"Idempotency-Key": "stop"}
    async with embedded(tmp_path) as bus:
        async with running_cell(tmp_path, bus=bus) as cell:
            job_id = await cell.submit(key="k")
            await cell.client.post(f"/v1/jobs/{job_id}/cancel", json={"note": "a"}, headers=stop)
        with sqlite3.connect(tmp_path / "read_models.db") as connection:
            assert connection.execute("UPDATE gateway_keys SET digest = x'00'").rowcount == 2
        async with running_cell(tmp_path, bus=bus) as cell:
            again = await cell.client.post(f"/v1/jobs/{job_id}/cancel", json={"note": "a"}, headers=stop)
            assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
            other = await cell.client.post(f"/v1/jobs/{job_id}/cancel", json={"note": "b"}, headers=stop)
            assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
            assert await bus.end_offset(CONTROL) == 2


async def test_an_index_that_goes_while_the_gateway_runs_is_made_again(tmp_path: Path) -> None:
    async with embedded(tmp_path) as bus, running_cell(tmp_path, bus=bus) as cell:
        job_id = await cell.submit(key="k")
        engine = sa.create_engine(settings(tmp_path).database)
        with engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE gateway_keys"))
        engine.dispose()
        refused = await post(cell, "l")
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")

        async def is_answered() -> bool:
            return (await post(cell, "l")).status_code == 201

        await eventually(is_answered)
        assert await cell.submit(key="k") == job_id
        assert await arrivals(bus) == [job_id, short_id("j", "l")]


def test_the_window_is_at_least_30_days(tmp_path: Path) -> None:
    assert settings(tmp_path).idempotency_days == 30
    with pytest.raises(ValueError, match="idempotency_days"):
        settings(tmp_path, idempotency_days=29)
