"""Opens a log wherever it is: an exported file, standard input, an embedded log's file, or a bus."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from libs.bus.connect import connect
from libs.bus.port import Bus, BusError, Message, Partition, Position
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.jsonl import read_jsonl
from libs.inspect.logs import AUDITED, Header, Log, Walk

BATCH = 1000
SILENCE_S = 10.0
"""How long to wait for messages that the log says it has."""
_SQLITE = b"SQLite format 3\0"
_WITHOUT_GAPS = ("sqlite", "memory")
"""Kinds of bus whose offsets have no gaps."""


@runtime_checkable
class TellsPositions(Protocol):
    """A bus that knows how far a session has come without taking the session over."""

    async def committed(self, session: str, partition: Partition) -> Position:
        """The committed position; `Position(0)` when there is none yet."""


@contextmanager
def open_log(
    source: str, *, cell: str, sessions: Sequence[str] = (), topics: Sequence[Topic] = AUDITED
) -> Iterator[Log]:
    """Open a log for reading.

    Args:
        source: a file of `sanjaya export`, `-` for one on standard input, an embedded log's file, or a bus URL.
        cell: which cell of a bus.
        sessions: services whose position is asked of a bus, so that an audit can tell what is still to come.
        topics: what is read of a bus, in this order; control up to its present end.

    Raises:
        BadInput: there is no such file, or it is no log.
        BusError: the bus cannot be understood or reached.
    """
    if source == "-":
        with tempfile.TemporaryFile() as file:  # it is walked over more than once
            shutil.copyfileobj(sys.stdin.buffer, file)
            yield read_jsonl(file, "standard input")
    elif _is_url(source):
        with _open_bus(source, cell, sessions, topics) as log:
            yield log
    elif _is_embedded(Path(source)):
        url = f"sqlite:///{Path(source).absolute()}?mode=ro"
        with _open_bus(url, cell, sessions, topics) as log:
            yield log
    else:
        with Path(source).open("rb") as file:
            yield read_jsonl(file, source)


def _is_url(source: str) -> bool:
    return "://" in source or source == "memory:"


def _is_embedded(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        what = error.strerror or str(error)
        raise BadInput(str(path), what, "an exported log, an embedded log's file, or a bus URL") from None


@contextmanager
def _open_bus(url: str, cell: str, sessions: Sequence[str], topics: Sequence[Topic]) -> Iterator[Log]:
    with asyncio.Runner() as runner:
        bus = runner.run(connect(url, cell))
        try:
            ends, positions = runner.run(_survey(bus, sessions, topics))
            contiguous = url.split(":", 1)[0] in _WITHOUT_GAPS
            header = Header(cell=cell, positions=positions, contiguous=contiguous, topics=tuple(topics))
            yield Log(header, Walk(partial(_read, runner, bus, ends)))
        finally:
            runner.run(bus.close())


async def _survey(
    bus: Bus, sessions: Sequence[str], topics: Sequence[Topic]
) -> tuple[dict[Partition, int], dict[str, int] | None]:
    """Where each partition ends now, and how far the services are.

    Positions are asked first and control last: so what a service has handled is certainly on what is read,
    and the cause of every order is.
    """
    positions: dict[str, int] | None = None
    control = Partition(Topic.CONTROL, 0)
    if isinstance(bus, TellsPositions) and sessions:
        positions = {name: (await bus.committed(name, control)).next_offset for name in sessions}
    ends: dict[Partition, int] = {}
    for topic in sorted(topics, key=lambda topic: topic is Topic.CONTROL):
        for partition in await bus.partitions(topic):
            ends[partition] = await bus.end_offset(partition)
    in_order = sorted(ends, key=lambda partition: (topics.index(partition.topic), partition.index))
    return {partition: ends[partition] for partition in in_order}, positions


def _read(runner: asyncio.Runner, bus: Bus, ends: Mapping[Partition, int]) -> Iterator[Message]:
    """Every partition up to its end, one after the other.

    Raises:
        BusError: messages that the log says it has do not come.
    """
    for partition, end in ends.items():
        reader = runner.run(bus.reader({partition: 0}))
        next_offset = 0
        try:
            while next_offset < end:
                batch = runner.run(reader.next_batch(BATCH, SILENCE_S))
                if not batch:
                    place = f"{partition.topic}/{partition.index}@{next_offset}"
                    raise BusError(f"{place}: nothing came for {SILENCE_S:g} s, expected messages up to {end}")
                for message in batch:
                    if message.offset < end:
                        yield message
                next_offset = batch[-1].offset + 1
        finally:
            runner.run(reader.close())
