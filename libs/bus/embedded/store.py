"""What is done to the file, synchronously: each function is one transaction or one query."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from libs.bus.partitioner import partition_index
from libs.bus.port import (
    MAX_MESSAGE_BYTES,
    BusError,
    BusUnavailable,
    Fenced,
    Message,
    MessageTooLarge,
    OffsetLost,
    Outgoing,
    Partition,
    Position,
    TopicLayout,
)
from libs.contracts.base import Topic
from libs.contracts.wire import Headers

KEPT = {Topic.TELEMETRY: 50_000, Topic.PROFILES: 50_000, Topic.LOGS: 200_000}
"""{topic: messages kept per partition}; the topics not named here are kept for ever."""
PRUNE_EVERY = 1_000
"""Messages between two looks at what need not be kept."""

_headers_decoder = msgspec.msgpack.Decoder(list[tuple[str, bytes]])


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that holds the writers' lock from its start.

    Raises:
        BusUnavailable: the lock was not to be had, or the disk refused; nothing was written.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.OperationalError as error:
        raise BusUnavailable(f"the log cannot be written: {error}") from error


def check_sizes(outputs: Sequence[Outgoing]) -> None:
    """Refuse what no adapter accepts.

    Raises:
        MessageTooLarge: with the message's size and the limit.
    """
    for output in outputs:
        if len(output.value) > MAX_MESSAGE_BYTES:
            raise MessageTooLarge(
                f"message {output.key!r} for {output.topic.value} has {len(output.value)} bytes, "
                f"at most {MAX_MESSAGE_BYTES} are accepted"
            )


def create_topics(connection: sqlite3.Connection, layout: TopicLayout) -> None:
    """Make the partitions of topics that do not exist yet."""
    with writing(connection):
        for topic, count in layout.partitions.items():
            known = connection.execute("SELECT count(*) FROM partitions WHERE topic=?", (topic.value,)).fetchone()[0]
            if not known:
                rows = [(topic.value, index) for index in range(count)]
                connection.executemany("INSERT INTO partitions (topic, part) VALUES (?, ?)", rows)


def partition_counts(connection: sqlite3.Connection) -> dict[Topic, int]:
    """{topic: partitions} of those that exist."""
    rows = connection.execute("SELECT topic, count(*) FROM partitions GROUP BY topic").fetchall()
    return {Topic(topic): count for topic, count in rows}


def take_over(connection: sqlite3.Connection, session: str) -> int:
    """Raise the session's epoch; whoever holds an older one is fenced."""
    with writing(connection):
        connection.execute(
            "INSERT INTO sessions VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET epoch = epoch + 1", (session,)
        )
        epoch: int = connection.execute("SELECT epoch FROM sessions WHERE name=?", (session,)).fetchone()[0]
    return epoch


def position(connection: sqlite3.Connection, session: str, partition: Partition) -> Position:
    """The committed position, `Position(0)` when there is none."""
    row = connection.execute(
        "SELECT next_offset, metadata FROM positions WHERE session=? AND topic=? AND part=?",
        (session, partition.topic.value, partition.index),
    ).fetchone()
    return Position(*row) if row else Position(0)


def commit(
    connection: sqlite3.Connection,
    session: str,
    epoch: int,
    outputs: Sequence[Outgoing],
    positions: Mapping[Partition, Position],
    counts: Mapping[Topic, int],
) -> list[int]:
    """Append and move in one transaction, unless the epoch is over."""
    with writing(connection):
        row = connection.execute("SELECT epoch FROM sessions WHERE name=?", (session,)).fetchone()
        if row is None or row[0] != epoch:
            raise Fenced(f"session {session}: a newer session has taken over")
        offsets = _insert(connection, outputs, counts)
        connection.executemany(
            "INSERT INTO positions VALUES (?, ?, ?, ?, ?) ON CONFLICT (session, topic, part)"
            " DO UPDATE SET next_offset = excluded.next_offset, metadata = excluded.metadata",
            [(session, p.topic.value, p.index, at.next_offset, at.metadata) for p, at in positions.items()],
        )
    return offsets


def append(connection: sqlite3.Connection, outputs: Sequence[Outgoing], counts: Mapping[Topic, int]) -> None:
    """Append outside of any session."""
    with writing(connection):
        _insert(connection, outputs, counts)


def _insert(connection: sqlite3.Connection, outputs: Sequence[Outgoing], counts: Mapping[Topic, int]) -> list[int]:
    now_s = time.time()
    ends: dict[tuple[str, int], int] = {}
    rows, offsets = [], []
    for output in outputs:
        place = (output.topic.value, partition_index(output.key, counts[output.topic]))
        if place not in ends:
            ends[place] = connection.execute(
                "SELECT next_offset FROM partitions WHERE topic=? AND part=?", place
            ).fetchone()[0]
        offsets.append(ends[place])
        headers = msgspec.msgpack.encode(output.headers)
        rows.append((*place, ends[place], output.key, headers, output.value, now_s))
        ends[place] += 1
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.executemany(
        "UPDATE partitions SET next_offset=? WHERE topic=? AND part=?", [(end, *place) for place, end in ends.items()]
    )
    for (topic, part), end in ends.items():
        added = sum(1 for row in rows if row[0] == topic and row[1] == part)
        if Topic(topic) in KEPT and end // PRUNE_EVERY != (end - added) // PRUNE_EVERY:
            _prune(connection, topic, part, end - KEPT[Topic(topic)])
    return offsets


def _prune(connection: sqlite3.Connection, topic: str, part: int, first_offset: int) -> None:
    if first_offset > 0:
        connection.execute("DELETE FROM log WHERE topic=? AND part=? AND offset<?", (topic, part, first_offset))
        connection.execute(
            "UPDATE partitions SET first_offset=max(first_offset, ?) WHERE topic=? AND part=?",
            (first_offset, topic, part),
        )


def read(connection: sqlite3.Connection, partition: Partition, start: int, limit: int) -> list[Message]:
    """Messages from `start` on, in order.

    Raises:
        OffsetLost: `start` is no longer kept.
    """
    place = (partition.topic.value, partition.index)
    rows = connection.execute(
        "SELECT offset, key, headers, value, appended_at_s FROM log"
        " WHERE topic=? AND part=? AND offset>=? ORDER BY offset LIMIT ?",
        (*place, start, limit),
    ).fetchall()
    if not rows or rows[0][0] > start:
        first = _bounds(connection, partition)[0]
        if start < first:
            raise OffsetLost(f"{place[0]}/{place[1]} begins at {first}, asked for {start}")
    return [Message(partition, offset, key, _headers(headers), value, at) for offset, key, headers, value, at in rows]


def end_offset(connection: sqlite3.Connection, partition: Partition) -> int:
    """The offset after the last message."""
    return _bounds(connection, partition)[1]


def _bounds(connection: sqlite3.Connection, partition: Partition) -> tuple[int, int]:
    row: tuple[int, int] | None = connection.execute(
        "SELECT first_offset, next_offset FROM partitions WHERE topic=? AND part=?",
        (partition.topic.value, partition.index),
    ).fetchone()
    if row is None:
        raise BusError(f"there is no partition {partition.topic.value}/{partition.index}")
    return row


def _headers(encoded: bytes) -> Headers:
    return _headers_decoder.decode(encoded)
