"""Submissions through the gateway, on both logs: none lost, none twice, how many a second, how soon placed.

    python -m tests.bench.gateway_submissions [--bus embedded kafka] [--jobs 10000] [--clients 32]
        [--guests-per-s 100 250 500] [--guests-s 5]

Starts the gateway and every core as processes, and gives the cell simulated nodes with room for all jobs. Every fifth
request is sent twice with its idempotency key. Submit to placed is the time from JobArrived to JobPlaced, both as the
log dates them. In the same run: events a second through the whole pipeline, through one core in its shell, and, as
Kafka's baseline, through a bare aiokafka producer. Then, in cells of their own, opportunistic jobs that come evenly.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker import LocalBroker
from libs.bus.local_broker.network import free_port
from libs.bus.port import Bus, Outgoing, Partition, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Record
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobPlaced
from libs.runtime.shell import Options
from services import roster
from tests.bench._load import in_use, said
from tests.bench._submitters import GPUS_PER_NODE, Cell, add_nodes, ready, set_policy, submit_all
from tests.bench.core_throughput import history, in_shell
from tests.bench.report import Report

CONTROL = Partition(Topic.CONTROL, 0)
REPEATED = 0.2
CORE_EVENTS, RAW_EVENTS = 20_000, 50_000
GUESTS_PER_S, GUEST_P99_MS = 500.0, 100.0
"""At so many a second, guests are placed so soon after their submission."""


@dataclass
class Seen:
    """What control has after the run."""

    events: int = 0
    arrived: dict[str, Record] = field(default_factory=dict)
    placed: dict[str, Record] = field(default_factory=dict)

    def waits_s(self) -> list[float]:
        """From each arrival to its placement, ascending."""
        return sorted(self.placed[job].appended_at_s - record.appended_at_s for job, record in self.arrived.items())


async def submissions(url: str, jobs: int, clients: int, folder: Path, report: Report) -> bool:
    """Submit to an empty cell on this log until all jobs are placed; returns whether none was lost or doubled."""
    kind = url.partition(":")[0]
    async with _cell(url, "bench", folder, jobs) as (bus, port, _):
        began = time.perf_counter()
        took, answers = await submit_all(port, [f"bench-{number}" for number in range(jobs)], clients, REPEATED)
        submitted_s = time.perf_counter() - began
        seen = await _all_placed(bus, jobs)
        all_s = time.perf_counter() - began
    accepted = Counter(job_id for ids in answers.values() for job_id in ids)
    lost = len(accepted.keys() - seen.arrived.keys())
    doubled = len(seen.arrived.keys() - accepted.keys()) + sum(n - 1 for n in accepted.values())
    doubled += sum(len(ids) - 1 for ids in answers.values())
    report.row(
        f"{kind}: {jobs} submissions, {clients} clients",
        per_s=round(len(took) / submitted_s, 1),
        requests=len(took),
        p50_ms=_ms(took, 0.5),
        p99_ms=_ms(took, 0.99),
        lost=lost,
        doubled=doubled,
        within_limit=lost == doubled == 0,
    )
    waits = seen.waits_s()
    report.row(f"{kind}: submit to placed", p50_ms=_ms(waits, 0.5), p99_ms=_ms(waits, 0.99))
    report.row(f"{kind}: control events, whole pipeline", per_s=round(seen.events / all_s, 1))
    return lost == doubled == 0


async def guests(url: str, per_s: float, seconds: float, clients: int, folder: Path, report: Report) -> None:
    """Submit opportunistic jobs evenly to a cell with the policy `antman`, until all are placed, two on each GPU."""
    kind, jobs = url.partition(":")[0], round(per_s * seconds)
    async with _cell(url, f"guests-{per_s:g}", folder, math.ceil(jobs / 2)) as (bus, port, processes):
        await set_policy(port, "antman")
        keys, before_s = [f"guest-{number}" for number in range(jobs)], processes.cpu_s()
        began = time.perf_counter()
        await submit_all(port, keys, clients, 0.0, per_s=per_s, fields={"class": "opportunistic"})
        submitted_s = time.perf_counter() - began
        waits = (await _all_placed(bus, jobs)).waits_s()
        took_s = {name: cpu_s - before_s[name] for name, cpu_s in processes.cpu_s().items()}
    limit = {"within_limit": _ms(waits, 0.99) <= GUEST_P99_MS} if per_s >= GUESTS_PER_S else {}
    report.row(
        f"{kind}: {jobs} guests at {per_s:g}/s, submit to placed",
        per_s=round(jobs / submitted_s, 1),
        p50_ms=_ms(waits, 0.5),
        p99_ms=_ms(waits, 0.99),
        cpu_ms_each=round(1e3 * sum(took_s.values()) / jobs, 2),
        of_placement=round(1e3 * took_s["placement"] / jobs, 2),
        **limit,
    )


@asynccontextmanager
async def _cell(url: str, cell: str, folder: Path, gpus: int) -> AsyncIterator[tuple[Bus, int, Cell]]:
    """A cell with its processes and so many GPUs: its log, the port of its gateway, and its processes."""
    port, state = free_port(), folder / cell
    state.mkdir()
    settings = {
        "SANJAYA_BUS": url,
        "SANJAYA_CELL": cell,
        "SANJAYA_DATABASE": f"sqlite:///{state / 'read_models.db'}",
        "SANJAYA_STATE_DIR": str(state),
        "SANJAYA_LOG_LEVEL": "WARNING",
        "SANJAYA_GATEWAY": f"http://127.0.0.1:{port}",
    }
    bus = await connect(url, cell)
    try:
        await bus.create_topics(TopicLayout())
        async with Cell(state, settings) as processes:
            await add_nodes(bus, math.ceil(gpus / GPUS_PER_NODE))
            await ready(port)
            yield bus, port, processes
    finally:
        await bus.close()


async def _all_placed(bus: Bus, jobs: int) -> Seen:
    """Read control until every job is placed.

    Raises:
        AssertionError: an event id, an arrival or a placement is there twice.
    """
    seen, ids = Seen(), set[str]()
    reader = await bus.reader({CONTROL: 0})
    try:
        async with asyncio.timeout(900):
            while len(seen.placed) < jobs:
                for message in await reader.next_batch(1000, 5.0):
                    record = codec.record(message)
                    event = record.envelope.event
                    assert record.envelope.id not in ids, f"event id {record.envelope.id} is there twice"
                    ids.add(record.envelope.id)
                    seen.events += 1
                    if isinstance(event, JobArrived | JobPlaced):
                        known = seen.arrived if isinstance(event, JobArrived) else seen.placed
                        assert event.job_id not in known, f"two {event.wire_type} of {event.job_id}"
                        known[event.job_id] = record
    finally:
        await reader.close()
    return seen


async def one_core(url: str, report: Report) -> None:
    """Events a second through quota's shell, and through a bare producer where the log is Kafka."""
    kind = url.partition(":")[0]
    messages = [codec.outgoing(envelope) for envelope in history(roster.service("quota"), CORE_EVENTS)]
    bus = await connect(url, "bench-core")
    try:
        await bus.create_topics(TopicLayout())
        event_s, _ = await in_shell(roster.service("quota"), bus, messages, Options.batch_records)
    finally:
        await bus.close()
    report.row(f"{kind}: events through one core (quota)", per_s=round(1 / event_s, 1))
    if kind == "kafka":
        report.row("kafka: bare aiokafka producer", per_s=round(await _raw(url, messages), 1))


async def _raw(url: str, messages: list[Outgoing]) -> float:
    """Messages a second that aiokafka sends by itself: acks=all, idempotent, many in flight."""
    bus = await connect(url, "bench-raw")
    await bus.create_topics(TopicLayout())
    await bus.close()
    producer = AIOKafkaProducer(
        bootstrap_servers=url.removeprefix("kafka://"), acks="all", enable_idempotence=True, linger_ms=5
    )
    await producer.start()
    try:
        began = time.perf_counter()
        for number in range(RAW_EVENTS):
            message = messages[number % len(messages)]
            await producer.send("bench-raw.control", message.value, key=message.key.encode(), headers=message.headers)
        await producer.flush()
        return RAW_EVENTS / (time.perf_counter() - began)
    finally:
        await producer.stop()


def _ms(ascending: list[float], quantile: float) -> float:
    return round(ascending[min(len(ascending) - 1, int(quantile * len(ascending)))] * 1000, 2)


@contextmanager
def log_of(kind: str, folder: Path) -> Iterator[str]:
    """URL of an empty log: a new file, or a broker (`KAFKA_BOOTSTRAP_SERVERS`, else one of our own)."""
    if kind == "embedded":
        yield f"sqlite:///{folder / 'log.db'}"
    elif address := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield f"kafka://{address}"
    else:
        with LocalBroker(folder / "kafka") as broker:
            yield f"kafka://{broker.bootstrap}"


def main() -> int:
    """Measure, print, write the results; 1 when a job was lost or doubled, or guests were placed too late."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bus", nargs="+", choices=("embedded", "kafka"), default=("embedded", "kafka"))
    parser.add_argument("--jobs", type=int, default=10_000, help="0: guests alone")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--guests-per-s", type=float, nargs="*", default=[100.0, 250.0, 500.0])
    parser.add_argument("--guests-s", type=float, default=5.0, help="for so long, at each of these rates")
    options = parser.parse_args()
    report = Report("gateway_submissions", "Submissions through the gateway")
    used = in_use()
    of_guests = Report("guest_submissions", f"Guests that come evenly{said(used)}", module="gateway_submissions")
    for kind in options.bus:
        with tempfile.TemporaryDirectory(prefix="sanjaya-bench-") as name, log_of(kind, Path(name)) as url:
            if options.jobs:
                asyncio.run(submissions(url, options.jobs, options.clients, Path(name), report))
                asyncio.run(one_core(url, report))
            for per_s in options.guests_per_s:
                asyncio.run(guests(url, per_s, options.guests_s, options.clients, Path(name), of_guests))
    measured = [report] * bool(options.jobs) + [of_guests] * bool(options.guests_per_s)
    for each in measured:
        each.write()
    return 0 if all(each.all_within_limits() for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
