"""Opens a log wherever it is: an exported file, standard input, an archive, an embedded log's file, or a bus."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from libs.bus.connect import connect
from libs.bus.port import Bus, BusError, Message, Partition, TellsPositions
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive import Archive, whole_reader
from libs.inspect.jsonl import read_jsonl
from libs.inspect.logs import AUDITED, Header, Log, Walk

BATCH = 1000
SILENCE_S = 10.0
"""How long to wait for messages that the log says it has."""
_SQLITE = b"SQLite format 3\0"
_WITHOUT_GAPS = ("sqlite", "memory")
"""Kinds of bus whose offsets have no gaps."""


@contextmanager
def open_log(
    source: str,
    *,
    cell: str,
    sessions: Sequence[str] = (),
    topics: Sequence[Topic] = AUDITED,
    archive: Path | None = None,
) -> Iterator[Log]:
    """Open a log for reading. Of a log whose older part was archived, that part is read from the archive.

    Args:
        source: a file of `sanjaya export`, `-` for one on standard input, the directory of an archive, an embedded
            log's file, or a bus URL.
        cell: which cell of a bus.
        sessions: services whose position is asked of a bus, so that an audit can tell what is still to come.
        topics: what is read of a bus, in this order; control up to its present end.
        archive: where the archive of a bus is; None: where the log says that it is.

    Raises:
        BadInput: there is no such file, or it is no log, or an archive is damaged.
        BusError: the bus cannot be understood or reached, or its archive is not there.
    """
    if _is_url(source) or (source != "-" and not Path(source).is_dir() and _is_embedded(Path(source))):
        url = source if _is_url(source) else f"sqlite:///{Path(source).absolute()}?mode=ro"
        with _open_bus(url, cell, sessions, topics, archive) as log:
            yield log
    elif archive is not None:
        raise BadInput(source, "an archive cannot be put before it", "an embedded log's file, or a bus URL")
    elif source == "-":
        with tempfile.TemporaryFile() as file:  # it is walked over more than once
            shutil.copyfileobj(sys.stdin.buffer, file)
            yield read_jsonl(file, "standard input")
    elif Path(source).is_dir():
        yield Archive.open(Path(source)).log(topics)
    else:
        with Path(source).open("rb") as file:
            yield read_jsonl(file, source)


def has_no_gaps(url: str) -> bool:
    """Whether the offsets of this bus follow each other."""
    return url.split(":", 1)[0] in _WITHOUT_GAPS


def _is_url(source: str) -> bool:
    return "://" in source or source == "memory:"


def _is_embedded(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        what = error.strerror or str(error)
        raise BadInput(str(path), what, "an exported log, an archive, an embedded log's file, or a bus URL") from None


@contextmanager
def _open_bus(
    url: str, cell: str, sessions: Sequence[str], topics: Sequence[Topic], archive: Path | None
) -> Iterator[Log]:
    with asyncio.Runner() as runner:
        bus = runner.run(connect(url, cell))
        try:
            ends, positions = runner.run(_survey(bus, sessions, topics))
            header = Header(cell=cell, positions=positions, contiguous=has_no_gaps(url), topics=tuple(topics))
            yield Log(header, Walk(partial(_read, runner, bus, ends, archive)))
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


def _read(runner: asyncio.Runner, bus: Bus, ends: Mapping[Partition, int], archive: Path | None) -> Iterator[Message]:
    """Every partition up to its end, one after the other.

    Raises:
        BusError: messages that the log says it has do not come.
    """
    for partition, end in ends.items():
        reader = runner.run(whole_reader(bus, {partition: 0}, archive))
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
