"""A gateway and a projection over one log, in this process, and clients for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.bus import codec
from libs.bus.memory import MemoryBus, MemoryLog
from libs.bus.port import Bus, Partition, TopicLayout
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.testing.served import served
from services.gateway.adapters.tokens import Tokens
from services.gateway.app import create_app
from services.gateway.door import Gateway
from services.gateway.settings import GatewaySettings
from services.projection.adapters.follow import Projection
from services.projection.adapters.store import Store

CONTROL = Partition(Topic.CONTROL, 0)
LONGEST_WAIT_S = 300.0
"""Most that a read waits for the projection, on a busy machine too."""


class Cell:
    """A client's and a service's view of the running gateway."""

    def __init__(self, gateway: Gateway, bus: Bus, client: httpx2.AsyncClient) -> None:
        self.gateway, self.bus, self.client = gateway, bus, client
        self._said = 0

    async def submit(self, *, key: str | None = None, **body: Any) -> str:
        """Submit a job; returns its id."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = await self.client.post("/v1/jobs", json={"command": ["true"], **body}, headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def say(self, *events: Event) -> int:
        """Append what other services and agents would; returns the last offset."""
        for event in events:
            self._said += 1
            await self.bus.append([codec.outgoing(_envelope(event, self._said))])
        return await self.bus.end_offset(CONTROL) - 1

    async def get(self, path: str, **params: Any) -> Any:
        """The JSON at a path, with everything that is on the log now."""
        end = await self.bus.end_offset(CONTROL)
        if end:
            params["at_least_offset"] = end - 1
        answer = await self.client.get(path, params=params, headers={"Prefer": f"wait={LONGEST_WAIT_S:.0f}"})
        assert answer.status_code == 200, answer.text
        return answer.json()


def _envelope(event: Event, number: int) -> Envelope:
    node_id = getattr(event, "node_id", "n1")
    source = f"agent/{node_id}" if event.owner == "torch_agent" else event.owner
    return Envelope(id=f"said-{number}", source=source, time_s=1_700_000_000.0 + number, event=event)


def settings(folder: Path, **fields: Any) -> GatewaySettings:
    """Settings of a gateway that keeps everything in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    database = f"sqlite:///{folder / 'read_models.db'}"
    kept = {"state_dir": folder, "database": database, "cell": "lab", "longest_wait_s": LONGEST_WAIT_S}
    return GatewaySettings(**{**kept, **fields})


@asynccontextmanager
async def running_projection(bus: Bus, database: str) -> AsyncIterator[None]:
    """A projection that follows the log."""
    stop = asyncio.Event()
    store = Store(database, bus.cell)
    task = asyncio.create_task(Projection(bus, store, stop).run())
    try:
        yield
    finally:
        stop.set()
        await task
        store.close()


@asynccontextmanager
async def running_cell(
    folder: Path,
    *,
    bus: Bus | None = None,
    tokens: Tokens | None = None,
    serve: bool = False,
    now: Callable[[], float] = time.time,
    **fields: Any,
) -> AsyncIterator[Cell]:
    """A ready gateway with its projection.

    Args:
        bus: a log with its topics; None: a new one in memory.
        serve: on a real socket; else the client calls the application directly, which cannot stream.
        now: the gateway's clock.
        fields: settings.
    """
    bus = bus or await memory_bus()
    chosen = settings(folder, **fields)
    gateway = Gateway(chosen, bus, tokens=tokens, now=now)
    async with running_projection(bus, chosen.database), gateway.running():
        app = create_app(gateway)
        async with (_served if serve else direct)(app) as client:
            cell = Cell(gateway, bus, client)
            await eventually(lambda: _is_ready(client))
            yield cell


@asynccontextmanager
async def direct(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that calls the application without a socket."""
    transport = httpx2.ASGITransport(app=_as_served(app))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def _as_served(app: ASGIApp) -> ASGIApp:
    """An application that fails where its answer breaks off, and not where it has told of the error as its answer."""

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        is_whole = False

        async def sends(message: Message) -> None:
            nonlocal is_whole
            await send(message)
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await app(scope, receive, sends)
        except Exception:
            if not is_whole:
                raise

    return answers


@asynccontextmanager
async def _served(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=LONGEST_WAIT_S) as client:
        yield client


async def memory_bus(log: MemoryLog | None = None) -> MemoryBus:
    """A log in memory with its topics."""
    bus = MemoryBus("lab", log)
    await bus.create_topics(TopicLayout())
    return bus


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def eventually(holds: Callable[[], Awaitable[bool]], timeout_s: float = 200.0) -> None:
    """Wait until something holds that nothing announces."""
    async with asyncio.timeout(timeout_s):
        while not await holds():
            await asyncio.sleep(0.01)
