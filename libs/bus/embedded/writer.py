"""What is written to the file. Synchronous: each method is one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import msgspec

from libs.bus.embedded.partitions import PartitionIds
from libs.bus.embedded.schema import OFFSET_BITS, open_for_writing
from libs.bus.embedded.transactions import Transactions
from libs.bus.limits import check_sizes
from libs.bus.partitioner import partition_index
from libs.bus.port import Fenced, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic

SHORT_LIVED = frozenset({Topic.TELEMETRY, Topic.PROFILES, Topic.LOGS})
"""Appended without waiting for the disk when nothing else is appended with them."""


@dataclass(frozen=True)
class Appended:
    """What a transaction added to the log."""

    offsets: list[int]
    """Of the outputs, in order."""
    counts: dict[int, int]
    """{partition id: messages}"""
    value_bytes: int


@dataclass(frozen=True)
class Holder:
    """The holder of a session, which may write under its name."""

    session_id: int
    epoch: int


Row = tuple[int, str, bytes, bytes]
"""Partition id, key, headers, value."""


class Writer:
    """One connection that writes."""

    def __init__(self, path: Path, cell: str, stopping: Event) -> None:
        """Open the file, and make it if it is new."""
        self._cell = cell
        self._connection = open_for_writing(path)
        self._transactions = Transactions(self._connection, path, stopping)
        self._ids = PartitionIds(self._connection, cell)

    def create_topics(self, layout: TopicLayout) -> None:
        """Make the topics that do not exist yet."""
        with self._transactions.transaction(synced=True):
            for topic, count in layout.partitions.items():
                known = self._connection.execute(
                    "SELECT 1 FROM partitions WHERE cell=? AND topic=?", (self._cell, topic.value)
                ).fetchone()
                if known is None:
                    rows = [(self._cell, topic.value, index) for index in range(count)]
                    self._connection.executemany("INSERT INTO partitions (cell, topic, number) VALUES (?, ?, ?)", rows)

    def take_over(self, session: str) -> Holder:
        """Raise the session's epoch: a holder of an older one is fenced."""
        with self._transactions.transaction(synced=True):
            row = self._connection.execute(
                "INSERT INTO sessions (cell, name, epoch) VALUES (?, ?, 1)"
                " ON CONFLICT (cell, name) DO UPDATE SET epoch = epoch + 1 RETURNING id, epoch",
                (self._cell, session),
            ).fetchone()
        return Holder(*row)

    def append(self, outputs: Sequence[Outgoing]) -> Appended:
        """Append outside of any session."""
        rows = self._rows(outputs)
        with self._transactions.transaction(synced=not all(output.topic in SHORT_LIVED for output in outputs)):
            return self._insert(rows)

    def commit(
        self, session: str, holder: Holder, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position]
    ) -> Appended:
        """Append and move positions.

        Raises:
            Fenced: another holder took the session over.
        """
        rows = self._rows(outputs)
        moves = [(holder.session_id, self._ids.one(p), at.next_offset, at.metadata) for p, at in positions.items()]
        with self._transactions.transaction(synced=True):
            row = self._connection.execute("SELECT epoch FROM sessions WHERE id=?", (holder.session_id,)).fetchone()
            if row is None or row[0] != holder.epoch:
                raise Fenced(f"session {session} of cell {self._cell}: a newer session has taken over")
            appended = self._insert(rows)
            self._connection.executemany(
                "INSERT INTO positions VALUES (?, ?, ?, ?) ON CONFLICT (session_id, partition_id)"
                " DO UPDATE SET next_offset = excluded.next_offset, metadata = excluded.metadata",
                moves,
            )
        return appended

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _rows(self, outputs: Sequence[Outgoing]) -> list[Row]:
        """All that can be done before it is our turn to write."""
        check_sizes(outputs)
        rows: list[Row] = []
        for output in outputs:
            ids = self._ids.of(output.topic)
            partition_id = ids[partition_index(output.key, len(ids))]
            rows.append((partition_id, output.key, msgspec.msgpack.encode(output.headers), output.value))
        return rows

    def _insert(self, rows: Sequence[Row]) -> Appended:
        now_s = time.time()
        begins = {partition_id: self._next_offset(partition_id) for partition_id, _, _, _ in rows}
        ends = dict(begins)
        offsets: list[int] = []
        messages: list[tuple[int, str, bytes, bytes, float]] = []
        for partition_id, key, headers, value in rows:
            offset = ends[partition_id]
            offsets.append(offset)
            messages.append((partition_id << OFFSET_BITS | offset, key, headers, value, now_s))
            ends[partition_id] = offset + 1
        self._connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", messages)
        self._connection.executemany(
            "UPDATE partitions SET next_offset=? WHERE id=?",
            [(end, partition_id) for partition_id, end in ends.items()],
        )
        counts = {partition_id: end - begins[partition_id] for partition_id, end in ends.items()}
        return Appended(offsets, counts, sum(len(row[3]) for row in rows))

    def _next_offset(self, partition_id: int) -> int:
        row: tuple[int] = self._connection.execute(
            "SELECT next_offset FROM partitions WHERE id=?", (partition_id,)
        ).fetchone()
        return row[0]
