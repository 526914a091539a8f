"""The gateway as a process on an embedded log: killed, replaced, stopped, misconfigured."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker.network import free_port
from libs.bus.port import Bus, TopicLayout
from libs.contracts.gateway import JobArrived
from libs.runtime import exits
from libs.testing.processes import Processes, until
from tests.integration.gateway_cell import CONTROL


class Door:
    """A gateway's address, and the processes behind it."""

    def __init__(self, processes: Processes, bus: Bus) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.bus, self._processes = bus, processes

    async def open(self, *arguments: str, **environment: str) -> Process:
        port = arguments or ("--port", str(self.port))
        return await self._processes.start("services.gateway", *port, **environment)

    async def takes_jobs(self) -> bool:
        """Whether the log has been read; the read models are not asked for here."""
        try:
            async with httpx2.AsyncClient() as client:
                return bool((await client.get(f"{self.url}/readyz")).json()["checks"]["log"] == "ok")
        except httpx2.TransportError:
            return False

    async def submit(self, client: httpx2.AsyncClient, key: str) -> str:
        """Submit until it is answered, as a client would: every time with the same key."""
        while True:
            try:
                headers = {"Idempotency-Key": key}
                answer = await client.post(f"{self.url}/v1/jobs", json={"command": ["true"]}, headers=headers)
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
                continue
            if answer.status_code == 201:
                return str(answer.json()["id"])
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.05)

    async def arrivals(self) -> list[str]:
        """Job ids of all JobArrived on the log."""
        end = await self.bus.end_offset(CONTROL)
        if not end:
            return []
        reader = await self.bus.reader({CONTROL: 0})
        found: list[str] = []
        try:
            while True:
                for message in await reader.next_batch(1000, 1.0):
                    event = codec.record(message).envelope.event
                    if isinstance(event, JobArrived):
                        found.append(event.job_id)
                    if message.offset + 1 >= end:
                        return found
        finally:
            await reader.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    log = f"sqlite:///{tmp_path / 'log.db'}"
    bus = await connect(log, "lab")
    await bus.create_topics(TopicLayout())
    processes = Processes({"SANJAYA_BUS": log, "SANJAYA_CELL": "lab", "SANJAYA_STATE_DIR": str(tmp_path)})
    yield Door(processes, bus)
    await processes.kill_all()
    await bus.close()


async def test_a_gateway_that_is_killed_loses_and_doubles_nothing(door: Door) -> None:
    gateway = await door.open()
    keys = [f"k{number}" for number in range(120)]
    left = iter(keys)
    ids: dict[str, str] = {}

    async def client() -> None:
        async with httpx2.AsyncClient(timeout=120) as http:
            for key in left:
                ids[key] = await door.submit(http, key)

    async def kill_now_and_then() -> None:
        nonlocal gateway
        for share in (0.2, 0.5, 0.8):

            async def reached(share: float = share) -> bool:
                return len(ids) >= share * len(keys)

            await until(reached, 240)
            gateway.send_signal(signal.SIGKILL)
            await gateway.wait()
            gateway = await door.open()

    await asyncio.gather(kill_now_and_then(), *(client() for _ in range(8)))
    arrivals = await door.arrivals()
    assert Counter(arrivals) == Counter(ids.values())
    assert len(set(arrivals)) == len(keys)
    async with httpx2.AsyncClient(timeout=120) as http:
        assert [await door.submit(http, key) for key in keys[:10]] == [ids[key] for key in keys[:10]]
    assert len(await door.arrivals()) == len(keys)


async def test_the_older_of_two_gateways_ends_and_says_why(door: Door) -> None:
    older = await door.open()
    await until(door.takes_jobs)
    newer_port = free_port()
    newer = await door.open("--port", str(newer_port))

    async def newer_takes_jobs() -> bool:
        try:
            async with httpx2.AsyncClient() as client:
                body = (await client.get(f"http://127.0.0.1:{newer_port}/readyz")).json()
                return bool(body["checks"]["log"] == "ok")
        except httpx2.TransportError:
            return False

    await until(newer_takes_jobs)
    async with httpx2.AsyncClient(timeout=120) as client:
        answer = await client.post(f"{door.url}/v1/jobs", json={"command": ["true"]})
        assert answer.status_code == 503
        assert await asyncio.wait_for(older.wait(), 120) == exits.FENCED
        assert older.stderr is not None
        assert b"taken over" in await older.stderr.read()
        accepted = await client.post(f"http://127.0.0.1:{newer_port}/v1/jobs", json={"command": ["true"]})
    assert accepted.status_code == 201
    assert await door.arrivals() == [accepted.json()["id"]]
    assert newer.returncode is None


async def test_it_ends_when_told_to_although_a_client_follows(door: Door) -> None:
    gateway = await door.open()
    await until(door.takes_jobs)
    async with (
        httpx2.AsyncClient(timeout=120) as client,
        client.stream("GET", f"{door.url}/v1/events", headers={"Accept": "text/event-stream"}) as stream,
    ):
        assert stream.status_code == 200
        gateway.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(gateway.wait(), 120) == exits.OK


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (("--host", "0.0.0.0"), {}, b"SANJAYA_TOKENS_FILE"),
        ((), {"SANJAYA_TOKENS_FILE": "/nowhere/tokens.yaml"}, b"/nowhere/tokens.yaml"),
        ((), {"SANJAYA_MAX_BODY_BYTES": "none"}, b"max_body_bytes"),
        ((), {"SANJAYA_SECURE_LISTEN": "127.0.0.2:0"}, b"SANJAYA_TLS_CERTIFICATE_FILE"),
        ((), {"SANJAYA_TLS_CERTIFICATE_FILE": "/nowhere/tls.pem"}, b"/nowhere/tls.pem"),
        ((), {"SANJAYA_AGENT_TOKENS_FILE": "/nowhere/agents.yaml"}, b"/nowhere/agents.yaml"),
    ],
)
async def test_it_does_not_start_with_settings_that_make_no_sense(
    door: Door, arguments: tuple[str, ...], environment: dict[str, str], says: bytes
) -> None:
    gateway = await door.open(*(arguments or ("--port", "0")), **environment)
    assert await asyncio.wait_for(gateway.wait(), 120) == exits.CONFIG
    assert gateway.stderr is not None
    assert says in await gateway.stderr.read()
