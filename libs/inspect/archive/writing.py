"""Adds what a log has before an offset to an archive, segment by segment. Removes nothing.

    read ─> <segment>.jsonl.gz ─> <segment>.parquet ─> manifest.json ─> the next one

Each file is written under another name, synced and renamed. A segment counts once the manifest names it, so a run
that was killed at any point is continued by the next one where the manifest ends.
"""

from __future__ import annotations

import gzip
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from contextlib import aclosing
from pathlib import Path
from typing import IO, cast

from libs.bus.batches import batches
from libs.bus.codec import message_id
from libs.bus.naming import CONTROL, log_id
from libs.bus.port import Archived, Bus, BusError, Message, Partition
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive.files import LOCK, FileSum, locked, publish, unfinished
from libs.inspect.archive.manifest import (
    MANIFEST,
    Manifest,
    Segment,
    is_archive,
    new_manifest,
    write_manifest,
)
from libs.inspect.archive.reading import Archive
from libs.inspect.jsonl import write_jsonl
from libs.inspect.logs import Header, Log
from libs.inspect.parquet import write_parquet

SEGMENT_RECORDS = 100_000
"""Most records of a segment …"""
SEGMENT_BYTES = 64 * 1024 * 1024
"""… which also ends when its data gets larger than this: it is held in memory while it is written."""
LEVEL = 6
"""The default of gzip itself; Python's is 9."""

Watch = Callable[[int], None]
"""Told how many records were archived so far."""


async def archive(
    bus: Bus, directory: Path, before: int, *, contiguous: bool, watch: Watch = lambda records: None
) -> Archive:
    """Archive the control records before an offset, and the orders that they have caused.

    In each partition of orders, archived is what precedes the first order with a cause at `before` or later,
    by its causation id. Times would not do: those of different sources are not in the order of the log.

    Args:
        bus: the cell's log.
        directory: of the archive; empty or new for a new one.
        before: offset on control, at most its end.
        contiguous: whether the bus leaves no gaps between offsets.
        watch: for progress bars.

    Raises:
        BadInput: the directory cannot be used, or its archive is damaged or of another log; nothing was written.
        BusError: there are no such records, or the log cannot be read; what was archived so far stays.
        ParquetMissing: pyarrow is not installed.
    """
    ends = {partition: await bus.end_offset(partition) for partition in await bus.partitions(Topic.ORDERS)}
    # control's end is asked last, so that the cause of every order that is read stands before it
    ends[CONTROL] = await bus.end_offset(CONTROL)
    if not 0 < before <= ends[CONTROL]:
        where = f"control/0 of cell {bus.cell}"
        raise BusError(f"{where}: offset {before} cannot be archived up to; expected 1 to its end, {ends[CONTROL]}")
    name = await log_id(bus)
    begins = {partition: await bus.begin_offset(partition) for partition in (CONTROL, *ends)}
    _prepare(directory)
    with locked(directory):
        begun = _begun(directory, bus.cell, name, contiguous=contiguous)
        begun.check_log(bus.cell, name)
        begun.check()
        _check_reaches(begun, begins, await bus.archived())
        if not is_archive(directory):  # named first, so that what is left of a killed run is known as such
            write_manifest(directory, begun.manifest)
        segments = Segments(directory, begun.manifest, watch)
        live_from = max(before, begins[CONTROL])
        live = {message_id(message) async for message in kept_messages(bus, CONTROL, live_from, ends[CONTROL])}
        await segments.take(bus, CONTROL, before, set())
        for partition in ends:
            if partition != CONTROL:
                await segments.take(bus, partition, ends[partition], live)
        return Archive.open(directory)


def _prepare(directory: Path) -> None:
    """Make the directory if need be; one that holds other files is refused."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise BadInput(str(directory), error.strerror or str(error), "a directory that can be written") from None
    if not is_archive(directory) and (others := sorted(names - {LOCK, unfinished(directory, MANIFEST).name})):
        what = f"holds {others[0]} and no {MANIFEST}"
        raise BadInput(str(directory), what, "an archive, or an empty directory for a new one")


def _begun(directory: Path, cell: str, name: str, *, contiguous: bool) -> Archive:
    """The archive so far, or a new one without segments."""
    if is_archive(directory):
        return Archive.open(directory)
    return Archive(directory, new_manifest(cell, name, contiguous=contiguous))


def _check_reaches(begun: Archive, begins: Mapping[Partition, int], note: Archived | None) -> None:
    """Raises BadInput when the archive ends before the log begins: what is between is elsewhere, or lost."""
    for partition, begin in begins.items():
        end = begun.next_offset(partition)
        if end < begin:
            what = f"ends at offset {end}, and the log begins at {begin}"
            known = f"the archive of what precedes that{f', {note.directory}' if note is not None else ''}"
            raise BadInput(f"{begun.directory}: {partition.topic}/{partition.index}", what, known)


async def kept_messages(bus: Bus, partition: Partition, start: int, end: int) -> AsyncGenerator[Message, None]:
    """The messages from `start` up to `end`, at which the partition ends or a message stands.

    Raises:
        BusError: messages that the log says it has do not come.
    """
    if start >= end:
        return
    async with aclosing(batches(await bus.reader({partition: start}), partition, start, end)) as found:
        async for batch in found:
            for message in batch:
                yield message


class Segments:
    """Writes segments behind those of a manifest."""

    def __init__(self, directory: Path, manifest: Manifest, watch: Watch) -> None:
        self._directory, self._manifest, self._watch = directory, manifest, watch
        self._records = 0

    async def take(self, bus: Bus, partition: Partition, end: int, live: Set[str]) -> None:
        """Archive a partition up to `end`, or up to the first record that is caused by one of the `live` events."""
        begin = self._manifest.next_offset(partition)
        chunk: list[Message] = []
        size = 0
        async with aclosing(kept_messages(bus, partition, begin, end)) as messages:
            async for message in messages:
                if live and dict(message.headers).get("ce_causationid", b"").decode(errors="replace") in live:
                    end = message.offset
                    break
                chunk.append(message)
                size += len(message.value)
                if len(chunk) >= SEGMENT_RECORDS or size >= SEGMENT_BYTES:
                    self._add(partition, chunk, message.offset + 1)
                    chunk, size = [], 0
        if chunk:
            self._add(partition, chunk, end)

    def _add(self, partition: Partition, chunk: Sequence[Message], next_offset: int) -> None:
        name = f"{partition.topic}-{partition.index}-{chunk[0].offset:012d}-{chunk[-1].offset:012d}"
        header = Header(cell=self._manifest.cell, contiguous=self._manifest.contiguous, topics=(partition.topic.value,))
        segment = Segment(
            topic=partition.topic,
            partition=partition.index,
            begin_offset=self._manifest.next_offset(partition),
            first_offset=chunk[0].offset,
            last_offset=chunk[-1].offset,
            next_offset=next_offset,
            records=len(chunk),
            jsonl=write_lines(self._directory, f"{name}.jsonl.gz", header, chunk),
            parquet=write_table(self._directory, f"{name}.parquet", header, chunk),
            previous=self._manifest.head,
        )
        self._manifest = self._manifest.added(segment)
        write_manifest(self._directory, self._manifest)
        self._records += len(chunk)
        self._watch(self._records)


def write_lines(directory: Path, name: str, header: Header, messages: Sequence[Message]) -> FileSum:
    """Publish records as compressed JSON lines; the same records make the same bytes."""
    path = unfinished(directory, name)
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as out,
    ):
        write_jsonl(Log(header, iter(messages)), cast(IO[bytes], out))
    return publish(directory, name)


def write_table(directory: Path, name: str, header: Header, messages: Sequence[Message]) -> FileSum:
    """Publish records as Parquet."""
    write_parquet(Log(header, iter(messages)), unfinished(directory, name))
    return publish(directory, name)
