"""What is written to the file. Synchronous: each method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import msgspec

from libs.bus.embedded import lent
from libs.bus.embedded.clock import LogClock
from libs.bus.embedded.partitions import PartitionIds
from libs.bus.embedded.schema import OFFSET_BITS, open_for_writing
from libs.bus.embedded.transactions import Transactions
from libs.bus.limits import check_sizes
from libs.bus.partitioner import partition_index
from libs.bus.port import BusError, Fenced, Outgoing, Partition, Position, TopicLayout
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
        self._clock = LogClock(self._connection)

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
            return self._raise_epoch(session)

    def lend(self, session: str, claim: str) -> int:
        """Raise the session's epoch, unless it was raised for this claim last; returns the epoch."""
        with self._transactions.transaction(synced=True):
            known = lent.last_of(self._connection, self._cell, session)
            if known is not None and known[1].claim == claim:
                return known[1].epoch
            holder = self._raise_epoch(session)
            lent.write(self._connection, holder.session_id, lent.Lent(epoch=holder.epoch, claim=claim))
        return holder.epoch

    def _raise_epoch(self, session: str) -> Holder:
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
        rows, places = self._rows(outputs), self._places(positions)
        with self._transactions.transaction(synced=True):
            row = self._connection.execute("SELECT epoch FROM sessions WHERE id=?", (holder.session_id,)).fetchone()
            if row is None or row[0] != holder.epoch:
                raise self._fenced(session)
            appended = self._insert(rows)
            self._move(holder.session_id, places)
        return appended

    def commit_lent(
        self,
        session: str,
        epoch: int,
        number: int,
        outputs: Sequence[Outgoing],
        positions: Mapping[Partition, Position],
    ) -> Appended:
        """Append and move positions, once for each number.

        Raises:
            Fenced: another holder took the session over.
            BusError: another number is due.
        """
        rows, places = self._rows(outputs), self._places(positions)
        with self._transactions.transaction(synced=True):
            known = lent.last_of(self._connection, self._cell, session)
            if known is None or known[1].epoch != epoch:
                raise self._fenced(session)
            session_id, last = known
            if number == last.number and number:
                return Appended(last.offsets, {}, 0)
            if number != last.number + 1:
                raise BusError(f"commit {number} of session {session}: expected {last.number + 1}, or the last again")
            appended = self._insert(rows)
            self._move(session_id, places)
            done = lent.Lent(epoch=epoch, claim=last.claim, number=number, offsets=appended.offsets)
            lent.write(self._connection, session_id, done)
        return appended

    def _fenced(self, session: str) -> Fenced:
        return Fenced(f"session {session} of cell {self._cell}: a newer session has taken over")

    def _places(self, positions: Mapping[Partition, Position]) -> dict[int, Position]:
        return {self._ids.one(partition): at for partition, at in positions.items()}

    def _move(self, session_id: int, places: Mapping[int, Position]) -> None:
        self._connection.executemany(
            "INSERT INTO positions VALUES (?, ?, ?, ?) ON CONFLICT (session_id, partition_id)"
            " DO UPDATE SET next_offset = excluded.next_offset, metadata = excluded.metadata",
            [(session_id, partition_id, at.next_offset, at.metadata) for partition_id, at in places.items()],
        )

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
        now_s = self._clock.now_s()
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
