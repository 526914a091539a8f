"""Opens a log wherever it is: an exported file, standard input, an archive, an embedded log's file, or a bus."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from libs.bus.batches import batches
from libs.bus.connect import connect
from libs.bus.port import Bus, Message, Partition
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive import Archive, whole_reader
from libs.inspect.extent import has_no_gaps, survey
from libs.inspect.jsonl import read_jsonl
from libs.inspect.logs import AUDITED, Header, Log, Walk

_SQLITE = b"SQLite format 3\0"


@contextmanager
def open_log(
    source: str,
    *,
    cell: str,
    sessions: Sequence[str] = (),
    topics: Sequence[Topic] = AUDITED,
    archive: Path | None = None,
) -> Iterator[Log]:
    """Open a log for reading. An older part that was archived is read from the archive.

    Args:
        source: a file of `sanjaya export`, `-` for one on standard input, the directory of an archive, an embedded
            log's file, or a bus URL.
        cell: which cell of a bus.
        sessions: services to ask a bus for their positions, so that an audit can tell what is still to come.
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
            extent = runner.run(survey(bus, sessions, topics))
            header = Header(cell=cell, positions=extent.positions, contiguous=has_no_gaps(url), topics=tuple(topics))
            yield Log(header, Walk(partial(_read, runner, bus, extent.ends, archive)))
        finally:
            runner.run(bus.close())


def _read(runner: asyncio.Runner, bus: Bus, ends: Mapping[Partition, int], archive: Path | None) -> Iterator[Message]:
    """Every partition up to its end, one after the other.

    Raises:
        BusError: messages that the log says it has do not come.
    """
    for partition, end in ends.items():
        reader = runner.run(whole_reader(bus, {partition: 0}, archive))
        found = batches(reader, partition, 0, end)
        try:
            while batch := runner.run(_next(found)):
                yield from batch
        finally:
            runner.run(found.aclose())


async def _next(found: AsyncGenerator[list[Message], None]) -> list[Message]:
    """The next batch; empty at the end."""
    return await anext(found, [])
