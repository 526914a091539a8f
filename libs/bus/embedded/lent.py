"""What the log remembers of a session that is held through another process: its holder, and the last commit.

It stands among the session's positions, at a partition that there is not, so that logs have one layout. An older
version neither reads nor changes it.
"""

from __future__ import annotations

import sqlite3

import msgspec

NO_PARTITION = 0
"""Ids of partitions begin at 1."""


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a session, and its last commit."""

    epoch: int
    claim: str
    """The text by which the holder has asked for the session."""
    number: int = 0
    """Of its last commit; 0: there was none."""
    offsets: list[int] = []
    """What that has returned."""


def last_of(connection: sqlite3.Connection, cell: str, session: str) -> tuple[int, Lent] | None:
    """The session's id and what is known of its holder; None where that is a process that has opened it itself."""
    row = connection.execute(
        "SELECT s.id, s.epoch, p.metadata FROM sessions s JOIN positions p ON p.session_id = s.id"
        " WHERE s.cell=? AND s.name=? AND p.partition_id=?",
        (cell, session, NO_PARTITION),
    ).fetchone()
    if row is None:
        return None
    known = msgspec.json.decode(row[2], type=Lent)
    return (row[0], known) if known.epoch == row[1] else None


def write(connection: sqlite3.Connection, session_id: int, lent: Lent) -> None:
    """Remember it, within the transaction that is open."""
    row = (session_id, NO_PARTITION, lent.number, msgspec.json.encode(lent).decode())
    connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)", row)
