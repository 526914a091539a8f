"""A process on an embedded log, to be killed at any moment: `python -m tests.integration.embedded_process ROLE URL`.

`source` appends numbered orders for ever, each in one commit with its own count; `worker` appends one decision
for each order. Both print what they have committed, line by line, and go on where the log says they were.
"""

from __future__ import annotations

import asyncio
import sys

from libs.bus.connect import connect
from libs.bus.port import Bus, Fenced, Outgoing, Partition, Position
from libs.contracts.base import Topic
from libs.testing.bus_contract import LAYOUT

CONTROL = Partition(Topic.CONTROL, 0)
PER_COMMIT = 3


async def source(bus: Bus) -> None:
    """Append `order 0`, `order 1`, …; the next number is the metadata of a position that has no other meaning."""
    session = await bus.open_session("source")
    number = int((await session.position(CONTROL)).metadata or "0")
    while True:
        numbers = range(number, number + PER_COMMIT)
        outputs = [Outgoing(Topic.ORDERS, f"n{n % 5}", [("id", str(n).encode())], b"order %d" % n) for n in numbers]
        outputs += [Outgoing(Topic.LOGS, f"n{n % 5}", [], b"log %d" % n) for n in numbers]
        number += PER_COMMIT
        await session.commit(outputs, {CONTROL: Position(0, str(number))})
        say(numbers[-1])


async def worker(bus: Bus) -> None:
    """Append `done <order>` for every order."""
    session = await bus.open_session("worker")
    partitions = await bus.partitions(Topic.ORDERS)
    positions = {partition: await session.position(partition) for partition in partitions}
    reader = await bus.reader({partition: position.next_offset for partition, position in positions.items()})
    while True:
        batch = await reader.next_batch(20, 10.0)
        moved = {message.partition: Position(message.offset + 1) for message in batch}
        await session.commit([Outgoing(Topic.CONTROL, "k", [], b"done " + m.value) for m in batch], moved)
        say(len(batch))


def say(number: int) -> None:
    """Tell the test."""
    print(number, flush=True)


async def main(role: str, url: str) -> None:
    """Work until killed or fenced."""
    bus = await connect(url, "lab")
    await bus.create_topics(LAYOUT)
    try:
        await (source(bus) if role == "source" else worker(bus))
    except Fenced:
        print("fenced", flush=True)
    finally:
        await bus.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
