"""What is read from the file. Synchronous; SQLite's readers wait for no writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from libs.bus.embedded.clock import LogClock
from libs.bus.embedded.failures import in_our_words
from libs.bus.embedded.partitions import PartitionIds
from libs.bus.embedded.same_file import SameFile
from libs.bus.embedded.schema import OFFSET_BITS, OFFSET_MASK, open_for_reading
from libs.bus.port import Archived, Message, OffsetLost, Partition, Position
from libs.contracts.base import Topic
from libs.contracts.wire import Headers

BATCH_BYTES = 32 * 1024 * 1024
"""A batch ends early when its values are larger than this."""

_decode_headers = msgspec.msgpack.Decoder(list[tuple[str, bytes]]).decode


class Lookup:
    """One connection that reads."""

    def __init__(self, path: Path, cell: str) -> None:
        """Open the file, which must be a log."""
        self._path, self._cell = path, cell
        self._connection = open_for_reading(path)
        self._ids = PartitionIds(self._connection, cell)
        self._same_file = SameFile(path)

    def partitions(self, topic: Topic) -> list[Partition]:
        """The partitions of a topic, by index."""
        with in_our_words(self._path):
            return [Partition(topic, index) for index in range(len(self._ids.of(topic)))]

    def ids(self, partitions: Sequence[Partition]) -> list[int]:
        """The ids of partitions; they must exist."""
        with in_our_words(self._path):
            return [self._ids.one(partition) for partition in partitions]

    def end_offset(self, partition: Partition) -> int:
        """The offset after the last message."""
        with in_our_words(self._path):
            return self._bounds_of(partition)[1]

    def begin_offset(self, partition: Partition) -> int:
        """The offset of the oldest message that is kept."""
        with in_our_words(self._path):
            return self._bounds_of(partition)[0]

    def now_s(self) -> float | None:
        """The log's time; None where no record of this boot has been written."""
        with in_our_words(self._path), self._snapshot():
            return LogClock(self._connection).read_s()

    def archived(self) -> Archived | None:
        """The note of the latest removal."""
        with in_our_words(self._path), self._snapshot():
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name='archives'").fetchone():
                return None
            row = self._connection.execute(
                "SELECT log_id, directory, next_offset FROM archives WHERE cell=?", (self._cell,)
            ).fetchone()
        return Archived(*row) if row else None

    def position(self, session: str, partition: Partition) -> Position:
        """The committed position of a session, by its name; `Position(0)` when there is none."""
        with in_our_words(self._path):
            row = self._connection.execute(
                "SELECT next_offset, metadata FROM positions WHERE partition_id=?"
                " AND session_id=(SELECT id FROM sessions WHERE cell=? AND name=?)",
                (self._ids.one(partition), self._cell, session),
            ).fetchone()
        return Position(*row) if row else Position(0)

    def messages(self, starts: Mapping[int, int], limit: int) -> list[Message]:
        """Messages of some partitions, in order of offset in each.

        Args:
            starts: {partition id: offset}, those to be served first at the front; offset 0 is the oldest that is kept.

        Raises:
            OffsetLost: a start is no longer kept.
            BusError: nothing will ever come, because the file was removed.
        """
        found: list[Message] = []
        room = BATCH_BYTES
        with in_our_words(self._path), self._snapshot():
            for partition_id, start in self._ready(starts):
                part = self._read(partition_id, start, limit - len(found), room)
                room -= sum(len(message.value) for message in part)
                found += part
                if room <= 0 or len(found) >= limit:
                    break
        if not found:
            self._same_file.check()
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ready(self, starts: Mapping[int, int]) -> list[tuple[int, int]]:
        """The partitions with messages at or after their start, with the offset to read from."""
        ready: list[tuple[int, int]] = []
        bounds = self._bounds(list(starts))
        for partition_id, start in starts.items():
            begin, end = bounds[partition_id]
            if 0 < start < begin:
                partition = self._ids.partition(partition_id)
                raise OffsetLost(
                    f"{self._cell}.{partition.topic}/{partition.index} begins at {begin}, asked for {start}",
                    {partition: begin},
                )
            if max(start, begin) < end:
                ready.append((partition_id, max(start, begin)))
        return ready

    def _bounds_of(self, partition: Partition) -> tuple[int, int]:
        partition_id = self._ids.one(partition)
        return self._bounds([partition_id])[partition_id]

    def _bounds(self, partition_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """{partition id: (begin, end)}"""
        marks = ",".join("?" * len(partition_ids))
        rows = self._connection.execute(
            f"SELECT id, begin_offset, next_offset FROM partitions WHERE id IN ({marks})", partition_ids
        )
        return {row[0]: (row[1], row[2]) for row in rows}

    def _read(self, partition_id: int, start: int, limit: int, room: int) -> list[Message]:
        partition = self._ids.partition(partition_id)
        first = partition_id << OFFSET_BITS
        cursor = self._connection.execute(
            "SELECT id, key, headers, value, appended_at_s FROM messages WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
            (first | start, first | OFFSET_MASK, limit),
        )
        found: list[Message] = []
        for row_id, key, headers, value, appended_at_s in cursor:
            decoded: Headers = _decode_headers(headers)
            found.append(Message(partition, row_id & OFFSET_MASK, key, decoded, value, appended_at_s))
            room -= len(value)
            if room <= 0:
                break
        cursor.close()
        return found

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Everything in here is read as of one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")
