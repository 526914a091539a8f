"""Submissions through the gateway: none lost, none twice, how many a second, and how soon they are placed.

    python -m tests.bench.gateway_submissions [--bus URL] [--database URL] [--jobs 10000] [--clients 32] [--json FILE]

Starts the gateway and every core as processes, on an embedded log unless told otherwise, and a cluster of simulated
nodes with room for all jobs. Every fifth request is sent twice with its idempotency key. Submit-to-placed is the time
from JobArrived to JobPlaced, both as the log dates them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, Partition, TopicLayout
from libs.cli.cell.plan import free_port
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobPlaced
from libs.kernel.ids import request_id
from libs.testing.core_case import node
from services import roster

CONTROL = Partition(Topic.CONTROL, 0)
REPEATED = 0.2
GPUS_PER_NODE = 64
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """What was measured. Everything but the counts of losses and doubles is about this machine."""

    bus: str
    jobs: int
    clients: int
    requests: int
    wall_s: float
    submissions_per_s: float
    request_p50_ms: float
    request_p99_ms: float
    submit_to_placed_p50_ms: float
    submit_to_placed_p99_ms: float
    all_placed_s: float
    lost: int
    doubled: int


class Connection:
    """One client: HTTP/1.1 over one socket, by hand, so that the client costs little of the machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def submit(self, key: str, body: bytes) -> tuple[int, dict[str, object]]:
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

    async def get(self, path: str) -> int:
        """The status of a GET, on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    def close(self) -> None:
        """Give back the socket."""
        if self._streams is not None:
            self._streams[1].close()


class Cell:
    """The processes under test."""

    def __init__(self, folder: Path, bus: str, database: str, port: int) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "SANJAYA_BUS": bus,
            "SANJAYA_CELL": "bench",
            "SANJAYA_DATABASE": database,
            "SANJAYA_STATE_DIR": str(folder),
            "SANJAYA_LOG_LEVEL": "WARNING",
            "SANJAYA_GATEWAY": f"http://127.0.0.1:{port}",
        }
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Every core, the projection and the gateway."""
        modules = [["libs.runtime", service.name] for service in roster.SERVICES]
        for arguments in [*modules, ["services.projection"], ["services.gateway"]]:
            log = (self._folder / f"{arguments[-1]}.log").open("wb")
            self._processes.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", *arguments, cwd=ROOT, env=self._environment, stderr=log
                )
            )
            log.close()

    async def stop(self) -> None:
        """End them."""
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in self._processes))


async def measure(bus_url: str, database: str, jobs: int, clients: int, folder: Path) -> Result:
    """Run the whole benchmark on an empty cell.

    Raises:
        AssertionError: an answer was wrong, or the cell did not get ready.
    """
    bus = await connect(bus_url, "bench")
    await bus.create_topics(TopicLayout())
    port = free_port()
    cell = Cell(folder, bus_url, database, port)
    await cell.start()
    try:
        await _add_nodes(bus, math.ceil(jobs / GPUS_PER_NODE))
        await _ready(port)
        started = time.time()
        latencies, answers = await _submit_all(port, jobs, clients)
        wall_s = time.time() - started
        arrived, placed = await _all_placed(bus, jobs)
        all_placed_s = time.time() - started
    finally:
        await cell.stop()
        await bus.close()
    for key, ids in answers.items():
        assert len(ids) == 1, f"key {key} was answered with several jobs: {ids}"
    waits = sorted(placed[job_id].appended_at_s - record.appended_at_s for job_id, record in arrived.items())
    counts = Counter(next(iter(ids)) for ids in answers.values())
    return Result(
        bus=bus_url.partition(":")[0],
        jobs=jobs,
        clients=clients,
        requests=len(latencies),
        wall_s=round(wall_s, 3),
        submissions_per_s=round(len(latencies) / wall_s, 1),
        request_p50_ms=_ms(sorted(latencies), 0.5),
        request_p99_ms=_ms(sorted(latencies), 0.99),
        submit_to_placed_p50_ms=_ms(waits, 0.5),
        submit_to_placed_p99_ms=_ms(waits, 0.99),
        all_placed_s=round(all_placed_s, 3),
        lost=len(counts.keys() - arrived.keys()),
        doubled=len(arrived.keys() - counts.keys()) + sum(count - 1 for count in counts.values()),
    )


async def _add_nodes(bus: Bus, count: int) -> None:
    """Nodes that nobody runs: their agents are not part of what is measured."""
    for number in range(count):
        event = node(f"n{number}", GPUS_PER_NODE)
        envelope = Envelope(
            id=request_id("bench", f"node/{number}"),
            source=f"agent/{event.node_id}",
            time_s=round(time.time(), 6),
            event=event,
        )
        await bus.append([codec.outgoing(envelope)])


async def _ready(port: int) -> None:
    async with asyncio.timeout(90):
        while True:
            try:
                if await Connection(port).get("/readyz") == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)


async def _submit_all(port: int, jobs: int, clients: int) -> tuple[list[float], dict[str, set[object]]]:
    """Returns the seconds that each request took, and the job ids that each key was answered with."""
    chosen = random.Random(1)
    keys = [f"bench-{number}" for number in range(jobs)]
    requests = keys + chosen.sample(keys, int(jobs * REPEATED))
    chosen.shuffle(requests)
    left = iter(requests)
    latencies: list[float] = []
    answers: dict[str, set[object]] = {}

    async def client() -> None:
        connection = Connection(port)
        for key in left:
            body = {"command": ["true"], "name": key, "gpus": 1, "tenant": f"t{int(key[6:]) % 4}"}
            began = time.perf_counter()
            status, answer = await connection.submit(key, json.dumps(body).encode())
            latencies.append(time.perf_counter() - began)
            assert status == 201, answer
            answers.setdefault(key, set()).add(answer["id"])
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies, answers


async def _all_placed(bus: Bus, jobs: int) -> tuple[dict[str, Record], dict[str, Record]]:
    """Every JobArrived and JobPlaced by job, once all are placed. A second one of a job is an error."""
    arrived: dict[str, Record] = {}
    placed: dict[str, Record] = {}
    ids: set[str] = set()
    reader = await bus.reader({CONTROL: 0})
    try:
        async with asyncio.timeout(600):
            while len(placed) < jobs:
                for message in await reader.next_batch(1000, 5.0):
                    record = codec.record(message)
                    event = record.envelope.event
                    assert record.envelope.id not in ids, f"event id {record.envelope.id} is there twice"
                    ids.add(record.envelope.id)
                    if isinstance(event, JobArrived | JobPlaced):
                        seen = arrived if isinstance(event, JobArrived) else placed
                        assert event.job_id not in seen, f"two {event.wire_type} of {event.job_id}"
                        seen[event.job_id] = record
    finally:
        await reader.close()
    return arrived, placed


def _ms(ascending: list[float], quantile: float) -> float:
    place = min(len(ascending) - 1, int(quantile * len(ascending)))
    return round(ascending[place] * 1000, 2)


def main() -> int:
    """Measure and print; 1 when a job was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bus", help="URL of an empty log (default: an embedded one)")
    parser.add_argument("--database", help="URL of empty read models (default: SQLite)")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sanjaya-bench-") as name:
        folder = Path(name)
        bus = options.bus or f"sqlite:///{folder / 'log.db'}"
        database = options.database or f"sqlite:///{folder / 'read_models.db'}"
        result = asyncio.run(measure(bus, database, options.jobs, options.clients, folder))
    for field, value in asdict(result).items():
        print(f"{field:26} {value}")
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=2) + "\n")
    return 1 if result.lost or result.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
