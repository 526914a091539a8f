"""Events per second through one service core: bare, with decoding and encoding, and in its shell on a bus.

    python -m tests.bench.core_throughput [--bus URL] [--service NAME] [--events N] [--batch N]

The input is the life of many small jobs, as the other services would put it on control.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, Message, Outgoing, Partition, TopicLayout
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.gateway import TenantConfigured
from libs.contracts.reasons import Reason
from libs.kernel.ids import request_id
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.runtime.feeder import Feeder
from libs.runtime.recovery import CONTROL, Recovered
from libs.runtime.shell import Options, Shell
from libs.runtime.stats import Stats
from libs.runtime.timers import Note
from libs.testing.core_case import arrival, node
from services import roster

LOAD = 500
"""Messages per append when the log is filled."""


def history(service: Service[Any], events: int) -> list[Envelope]:
    """Facts that make the service decide: jobs that arrive (and are admitted, where the service reads that)."""
    from libs.contracts.admission import JobAdmitted

    facts: list[Event] = [node("n1", 8), TenantConfigured(tenant="default", gpu_limit=None, requested_by="bench")]
    per_job = [JobAdmitted] if JobAdmitted in service.machine.inputs else []
    number = 0
    while len(facts) < events:
        job_id = f"j{number}"
        facts.append(arrival(job_id))
        if per_job:
            facts.append(JobAdmitted(job_id=job_id, reason=Reason(code="Fits", message="one GPU of eight")))
        number += 1
    return [
        Envelope(id=request_id("bench", str(n)), source=fact.owner, time_s=1e9 + n / 1000, event=fact)
        for n, fact in enumerate(facts)
    ]


def bare(service: Service[Any], envelopes: list[Envelope]) -> float:
    """Seconds per event for the core alone, on decoded records."""
    replica = Replica(service)
    records = [
        Record(topic="control", partition=0, offset=n, appended_at_s=0.0, envelope=envelope)
        for n, envelope in enumerate(envelopes)
    ]
    started = time.perf_counter()
    for record in records:
        replica.step(record)
    return (time.perf_counter() - started) / len(records)


def fed(service: Service[Any], messages: list[Outgoing]) -> float:
    """Seconds per event for the core with decoding of its inputs and encoding of its decisions, no log."""
    recovered = Recovered(Replica(service), Note(), rules="", snapshot_offset=0)
    feeder = Feeder(recovered, Stats(service.name), check_every=10**9, strict=False, traced=False)
    raw = [Message(Partition(Topic.CONTROL, 0), n, m.key, m.headers, m.value, 0.0) for n, m in enumerate(messages)]
    started = time.perf_counter()
    for message in raw:
        feeder.feed(message)
        if len(feeder.outbox) >= 500:
            feeder.emptied()
    return (time.perf_counter() - started) / len(raw)


async def in_shell(service: Service[Any], bus: Bus, messages: list[Outgoing], batch: int) -> tuple[float, Stats]:
    """Let the shell handle and commit everything that is on the log.

    Returns:
        Seconds per event, from the first commit to the last (opening a session on Kafka takes a second), and
        the shell's numbers.
    """
    for first in range(0, len(messages), LOAD):
        await bus.append(messages[first : first + LOAD])
    stats, stop, finished = Stats(service.name), asyncio.Event(), asyncio.Event()
    end = await bus.end_offset(CONTROL)

    commits: list[tuple[float, int]] = []

    def committed(seconds: float) -> None:
        commits.append((time.perf_counter(), stats.records))
        if stats.next_offset >= end:
            finished.set()

    stats.on_commit = committed
    shell = Shell(service, bus, options=Options(batch_records=batch), stats=stats)
    running = asyncio.create_task(shell.run(stop))
    waiting = asyncio.create_task(finished.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await running
    (first_s, before), (last_s, handled) = commits[0], commits[-1]
    return (last_s - first_s) / (handled - before), stats


async def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bus", default="", help="bus URL; default: a new embedded log in a temporary folder")
    parser.add_argument("--service", default="", help="one service of the roster; default: admission and quota")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=Options.batch_records)
    options = parser.parse_args()
    print(f"{'service':<12}{'what':<28}{'events/s':>12}{'decisions/s':>14}{'commits':>9}")
    for name in [options.service] if options.service else ["admission", "quota"]:
        service = roster.service(name)
        envelopes = history(service, options.events)
        messages = [codec.outgoing(envelope) for envelope in envelopes]
        _line(name, "core", bare(service, envelopes))
        _line(name, "core, decode, encode", fed(service, messages))
        with tempfile.TemporaryDirectory() as folder:
            url = options.bus or f"sqlite:///{Path(folder) / 'log.db'}"
            bus = await connect(url, f"bench-{uuid.uuid4().hex[:8]}")
            try:
                await bus.create_topics(TopicLayout())
                event_s, stats = await in_shell(service, bus, messages, options.batch)
            finally:
                await bus.close()
        _line(name, f"shell on {url.split(':')[0]}", event_s, stats)


def _line(service: str, what: str, event_s: float, stats: Stats | None = None) -> None:
    decisions = f"{stats.decisions / stats.records / event_s:>14,.0f}{stats.commits:>9}" if stats else ""
    print(f"{service:<12}{what:<28}{1 / event_s:>12,.0f}{decisions}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
