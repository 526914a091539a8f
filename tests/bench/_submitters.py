"""A cell's processes and the clients that submit to it, for the benchmark of submissions."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from libs.bus import codec
from libs.bus.port import Bus
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.kernel.ids import request_id
from libs.testing.core_case import node
from services import roster

ROOT = Path(__file__).parents[2]
GPUS_PER_NODE = 64


class Cell:
    """Every core, the projection and the gateway, as processes.

    Args:
        folder: for their logs and state.
        settings: `SANJAYA_*` variables.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **settings}
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Cell:
        cores = [["libs.runtime", service.name] for service in roster.SERVICES]
        for arguments in [*cores, ["services.projection"], ["services.gateway"]]:
            with (self._folder / f"{arguments[-1]}.log").open("wb") as log:
                command = (sys.executable, "-m", *arguments)
                started = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=self._environment, stderr=log)
                self._processes[arguments[-1]] = started
        return self

    def cpu_s(self) -> dict[str, float]:
        """{process: its CPU time so far}."""
        times = {name: psutil.Process(process.pid).cpu_times() for name, process in self._processes.items()}
        return {name: each.user + each.system for name, each in times.items()}

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in self._processes.values()))


class Connection:
    """One client: HTTP/1.1 over one socket, by hand, so that the client costs little of the machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def submit(self, key: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Send one submission; returns the status and the JSON of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in headers if line.startswith("content-length:"))
        return int(headers[0].split()[1]), json.loads(await reader.readexactly(length))

    def close(self) -> None:
        """Give back the socket."""
        if self._streams is not None:
            self._streams[1].close()


async def ready(port: int, within_s: float = 90.0) -> None:
    """Wait until the gateway accepts jobs and has read models."""
    async with asyncio.timeout(within_s):
        while not await _is_ready(port):
            await asyncio.sleep(0.1)


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    status = (await reader.readline()).split()
    writer.close()
    return status[1:2] == [b"200"]


async def set_policy(port: int, policy: str) -> None:
    """Have the cell placed by this policy from now on."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/policy",
        data=json.dumps({"policy": policy}).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    await asyncio.to_thread(urllib.request.urlopen, request)


async def add_nodes(bus: Bus, count: int) -> None:
    """Nodes without agents: agents are not part of what is measured. As with them, two guests may be on a GPU."""
    for number in range(count):
        event = replace(
            node(f"n{number}", GPUS_PER_NODE), scales_memory="all", scales_compute=True, spill_bytes=1 << 40
        )
        envelope = Envelope(
            id=request_id("bench", f"node/{number}"),
            source=f"agent/{event.node_id}",
            time_s=whole_microseconds(time.time()),
            event=event,
        )
        await bus.append([codec.outgoing(envelope)])


async def submit_all(
    port: int,
    keys: list[str],
    clients: int,
    repeated: float,
    *,
    per_s: float = math.inf,
    fields: Mapping[str, Any] | None = None,
) -> tuple[list[float], dict[str, set[str]]]:
    """Submit a job per key; a share of the keys is sent twice, at random moments.

    Args:
        port: of the gateway.
        keys: idempotency keys.
        clients: so many submit at a time.
        repeated: share of the keys that is sent twice.
        per_s: requests a second, evenly; as many as are answered where clients are too few for that.
        fields: of each job, besides the usual ones.

    Returns:
        The seconds that each request took, ascending, and the job ids that each key was answered with.

    Raises:
        AssertionError: a request was not accepted.
    """
    chosen = random.Random(1)
    requests = keys + chosen.sample(keys, int(len(keys) * repeated))
    chosen.shuffle(requests)
    left, first_s = iter(enumerate(requests)), time.perf_counter()
    took: list[float] = []
    answers: dict[str, set[str]] = {}

    async def client() -> None:
        connection = Connection(port)
        for number, key in left:
            await asyncio.sleep(max(0.0, first_s + number / per_s - time.perf_counter()))
            body = {
                "command": ["true"],
                "name": key,
                "gpus": 1,
                "tenant": f"t{sum(key.encode()) % 4}",
                **(fields or {}),
            }
            began = time.perf_counter()
            status, answer = await connection.submit(key, json.dumps(body).encode())
            took.append(time.perf_counter() - began)
            assert status == 201, answer
            answers.setdefault(key, set()).add(answer["id"])
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return sorted(took), answers
