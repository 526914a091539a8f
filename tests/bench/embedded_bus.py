"""The embedded log by itself: commits, appends, reading, waking up, and several writing processes.

    python -m tests.bench.embedded_bus [--directory DIR]

Messages are as large as a typical event (12 headers, 400 bytes). Processes are real ones.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from pathlib import Path

from libs.bus.connect import connect
from libs.bus.port import Bus, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic
from tests.bench.report import Report

CONTROL = Partition(Topic.CONTROL, 0)
HEADERS = [(f"ce_header{number}", b"x" * 36) for number in range(12)]
VALUE = b"v" * 400
WRITERS, TRANSACTIONS, PER_TRANSACTION = 4, 400, 20
WAKE_UPS = 500
Figures = dict[str, float]


async def open_log(url: str) -> Bus:
    """A connection to a log with topics."""
    bus = await connect(url, "bench")
    await bus.create_topics(TopicLayout())
    return bus


def outgoing(topic: Topic, number: int, value: bytes = VALUE) -> Outgoing:
    """One message; 64 keys."""
    return Outgoing(topic, f"job-{number % 64}", HEADERS, value)


def percentiles(seconds: list[float]) -> Figures:
    """Median, 99th percentile and maximum."""
    ordered = sorted(seconds)
    found = {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[int(len(ordered) * 0.99)], "max_ms": ordered[-1]}
    return {name: round(value_s * 1e3, 2) for name, value_s in found.items()}


async def commits(url: str) -> Figures:
    """One output and a position, synced to the disk, one after the other."""
    bus = await open_log(url)
    session = await bus.open_session("bench")
    took: list[float] = []
    for number in range(1500):
        started = time.perf_counter()
        await session.commit([outgoing(Topic.CONTROL, number)], {CONTROL: Position(number)})
        took.append(time.perf_counter() - started)
    await bus.close()
    return percentiles(took)


async def appends(url: str, batch: int) -> Figures:
    """High-rate data in batches."""
    bus = await open_log(url)
    started, count = time.perf_counter(), 0
    while count < 40_000 and time.perf_counter() - started < 3:
        await bus.append([outgoing(Topic.TELEMETRY, count + number) for number in range(batch)])
        count += batch
    rate = count / (time.perf_counter() - started)
    await bus.close()
    return {"messages_per_s": round(rate)}


async def reading(url: str) -> Figures:
    """Everything from the beginning, in batches of 500."""
    bus = await open_log(url)
    partitions = await bus.partitions(Topic.TELEMETRY)
    reader = await bus.reader(dict.fromkeys(partitions, 0))
    started, count = time.perf_counter(), 0
    while batch := await reader.next_batch(500, 0.0):
        count += len(batch)
    rate = count / (time.perf_counter() - started)
    await bus.close()
    return {"messages_per_s": round(rate)}


def ring(url: str) -> None:
    """A process that commits the time now and then."""

    async def commit() -> None:
        bus = await open_log(url)
        session = await bus.open_session("ringer")
        for number in range(WAKE_UPS):
            await asyncio.sleep(0.004)
            started = str(time.monotonic()).encode()
            await session.commit([outgoing(Topic.ORDERS, number, started)])
        await bus.close()

    asyncio.run(commit())


async def wake_ups(url: str) -> Figures:
    """From before a commit in one process to the message in another one."""
    bus = await open_log(url)
    starts = {p: await bus.end_offset(p) for p in await bus.partitions(Topic.ORDERS)}
    reader = await bus.reader(starts)
    process = multiprocessing.get_context("spawn").Process(target=ring, args=(url,))
    process.start()
    took: list[float] = []
    while len(took) < WAKE_UPS:
        batch = await reader.next_batch(100, 30.0)
        now = time.monotonic()
        took += [now - float(message.value) for message in batch]
    process.join()
    await bus.close()
    return percentiles(took)


def write(url: str, name: str, took: multiprocessing.Queue[list[float]]) -> None:
    """A process that commits as fast as it can."""

    async def commit() -> list[float]:
        bus = await open_log(url)
        session = await bus.open_session(name)
        times: list[float] = []
        for _ in range(TRANSACTIONS):
            outputs = [outgoing(Topic.CONTROL, number) for number in range(PER_TRANSACTION)]
            started = time.perf_counter()
            await session.commit(outputs)
            times.append(time.perf_counter() - started)
        await bus.close()
        return times

    took.put(asyncio.run(commit()))


def writers(url: str) -> Figures:
    """Several processes that all commit as fast as they can: the worst case for the writers' lock."""
    context = multiprocessing.get_context("spawn")
    took: multiprocessing.Queue[list[float]] = context.Queue()
    processes = [context.Process(target=write, args=(url, f"w{n}", took)) for n in range(WRITERS)]
    for process in processes:
        process.start()
    times = [seconds for _ in processes for seconds in took.get()]
    for process in processes:
        process.join()
    return percentiles(times)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="where the log is made")
    options = parser.parse_args()
    report = Report("embedded_bus", "The embedded log by itself")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        url = f"sqlite:///{directory}/log.db"
        report.row("commit of one output and a position", **asyncio.run(commits(url)))
        for batch in (1, 10, 100, 1000):
            report.row(f"append in batches of {batch}", **asyncio.run(appends(url, batch)))
        report.row("read in batches of 500", **asyncio.run(reading(url)))
        report.row("from a commit to a reader in another process", **asyncio.run(wake_ups(url)))
        report.row(f"{WRITERS} processes at once, commits of {PER_TRANSACTION}", **writers(url))
    report.write()


if __name__ == "__main__":
    main()
