"""Removes the oldest messages of partitions for good, and gives their space back to the disk."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from threading import Event

from libs.bus.embedded.failures import in_our_words
from libs.bus.embedded.partitions import PartitionIds
from libs.bus.embedded.schema import ARCHIVED_VERSION, ARCHIVES, OFFSET_BITS, open_for_writing
from libs.bus.embedded.transactions import Transactions
from libs.bus.limits import check_before
from libs.bus.port import Archived, Partition

log = logging.getLogger(__name__)

MESSAGES_PER_TRANSACTION = 1000
"""Other writers wait for no longer than these take."""
SHRINKING_WAIT_MS = 10_000
"""How long the shrinking of the file waits for other processes; the space is free within the file anyway."""


def remove(path: Path, cell: str, stopping: Event, befores: Mapping[Partition, int], archived: Archived) -> None:
    """Write the note, then remove what precedes these offsets part by part, then shrink the file.

    Raises:
        BusUnavailable: the file is held by others, or the disk fails; what was removed stays removed.
        BusError: an offset lies behind its partition's end; nothing was removed.
    """
    with in_our_words(path):
        remover = Remover(path, cell, stopping)
        try:
            remover.remove(befores, archived)
        finally:
            remover.close()


class Remover:
    """A connection of its own: what it sets for shrinking must not hold for other transactions."""

    def __init__(self, path: Path, cell: str, stopping: Event) -> None:
        self._path, self._cell = path, cell
        self._connection = open_for_writing(path)
        self._transactions = Transactions(self._connection, path, stopping)
        self._ids = PartitionIds(self._connection, cell)

    def remove(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """Write the note, then remove part by part, then shrink the file."""
        ids = {partition: self._ids.one(partition) for partition in befores}
        with self._transactions.transaction(synced=True):
            for partition, before in befores.items():
                check_before(partition, before, self._bounds(ids[partition])[1])
            self._note(archived)
        for partition, before in befores.items():
            while self._remove_some(ids[partition], before):
                continue
        self._shrink()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _note(self, archived: Archived) -> None:
        self._connection.execute(ARCHIVES)
        self._connection.execute(
            "INSERT OR REPLACE INTO archives (cell, log_id, directory, next_offset) VALUES (?, ?, ?, ?)",
            (self._cell, archived.log_id, archived.directory, archived.next_offset),
        )
        self._connection.execute(f"PRAGMA user_version={ARCHIVED_VERSION}")

    def _remove_some(self, partition_id: int, before: int) -> bool:
        """Remove the oldest messages, a thousand at most; whether there are more to remove."""
        with self._transactions.transaction(synced=True):
            begin, _ = self._bounds(partition_id)
            until = min(before, begin + MESSAGES_PER_TRANSACTION)
            if until <= begin:
                return False
            first = partition_id << OFFSET_BITS
            self._connection.execute("DELETE FROM messages WHERE id BETWEEN ? AND ?", (first, first + until - 1))
            self._connection.execute("UPDATE partitions SET begin_offset=? WHERE id=?", (until, partition_id))
        return until < before

    def _bounds(self, partition_id: int) -> tuple[int, int]:
        row: tuple[int, int] = self._connection.execute(
            "SELECT begin_offset, next_offset FROM partitions WHERE id=?", (partition_id,)
        ).fetchone()
        return row

    def _shrink(self) -> None:
        """Write the file anew without its free pages. Where that cannot be done now, the file reuses them."""
        self._connection.execute(f"PRAGMA busy_timeout={SHRINKING_WAIT_MS}")
        try:
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError as error:
            log.warning("records were removed from %s, but the file could not shrink: %s", self._path, error)
