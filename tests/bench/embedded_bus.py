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

CONTROL = Partition(Topic.CONTROL, 0)
HEADERS = [(f"ce_header{number}", b"x" * 36) for number in range(12)]
VALUE = b"v" * 400
WRITERS, TRANSACTIONS, PER_TRANSACTION = 4, 400, 20
WAKE_UPS = 500


async def open_log(url: str) -> Bus:
    """A connection to a log with topics."""
    bus = await connect(url, "bench")
    await bus.create_topics(TopicLayout())
    return bus


def outgoing(topic: Topic, number: int, value: bytes = VALUE) -> Outgoing:
    """One message; 64 keys."""
    return Outgoing(topic, f"job-{number % 64}", HEADERS, value)


def percentiles_ms(seconds: list[float]) -> str:
    """Median, 99th percentile and maximum."""
    ordered = sorted(seconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {p50 * 1e3:.2f}, p99 {p99 * 1e3:.2f}, max {ordered[-1] * 1e3:.1f} ms"


async def commits(url: str) -> str:
    """One output and a position, synced to the disk, one after the other."""
    bus = await open_log(url)
    session = await bus.open_session("bench")
    took: list[float] = []
    for number in range(1500):
        started = time.perf_counter()
        await session.commit([outgoing(Topic.CONTROL, number)], {CONTROL: Position(number)})
        took.append(time.perf_counter() - started)
    await bus.close()
    return percentiles_ms(took)


async def appends(url: str, batch: int) -> str:
    """High-rate data in batches."""
    bus = await open_log(url)
    started, count = time.perf_counter(), 0
    while count < 40_000 and time.perf_counter() - started < 3:
        await bus.append([outgoing(Topic.TELEMETRY, count + number) for number in range(batch)])
        count += batch
    rate = count / (time.perf_counter() - started)
    await bus.close()
    return f"{rate:,.0f} messages/s"


async def reading(url: str) -> str:
    """Everything from the beginning, in batches of 500."""
    bus = await open_log(url)
    partitions = await bus.partitions(Topic.TELEMETRY)
    total = sum([await bus.end_offset(partition) for partition in partitions])
    reader = await bus.reader(dict.fromkeys(partitions, 0))
    started, count = time.perf_counter(), 0
    while batch := await reader.next_batch(500, 0.0):
        count += len(batch)
    rate = count / (time.perf_counter() - started)
    await bus.close()
    return f"{rate:,.0f} messages/s (the newest {count:,} of {total:,} are kept)"


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


async def wake_ups(url: str) -> str:
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
    return percentiles_ms(took)


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


def writers(url: str) -> str:
    """Several processes that all commit as fast as they can: the worst case for the writers' lock."""
    context = multiprocessing.get_context("spawn")
    took: multiprocessing.Queue[list[float]] = context.Queue()
    processes = [context.Process(target=write, args=(url, f"w{n}", took)) for n in range(WRITERS)]
    for process in processes:
        process.start()
    times = [seconds for _ in processes for seconds in took.get()]
    for process in processes:
        process.join()
    return percentiles_ms(times)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="where the log is made; default: the temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        url = f"sqlite:///{directory}/log.db"
        print("commit of one output:", asyncio.run(commits(url)))
        for batch in (1, 10, 100, 1000):
            print(f"append in batches of {batch}:", asyncio.run(appends(url, batch)))
        print("reading:", asyncio.run(reading(url)))
        print("commit to reading in another process:", asyncio.run(wake_ups(url)))
        print(f"{WRITERS} processes, commits of {PER_TRANSACTION}:", writers(url))


if __name__ == "__main__":
    main()
