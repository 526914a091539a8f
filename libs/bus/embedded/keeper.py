"""Looks after the file's size, beside the writing: copies the write-ahead log back, drops what need not be kept."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Event

from libs.bus.embedded.address import Keep
from libs.bus.embedded.clock import LogClock
from libs.bus.embedded.failures import in_our_words
from libs.bus.embedded.schema import OFFSET_BITS, OFFSET_MASK, open_for_writing
from libs.bus.embedded.transactions import Transactions
from libs.bus.embedded.writer import Appended
from libs.bus.port import BusError
from libs.contracts.base import Topic

log = logging.getLogger(__name__)

PAGE_BYTES = 4096
PAGES_PER_TRANSACTION = 6
CHECKPOINT_PAGES = 1000
"""After about so many pages of its own writing a process copies the write-ahead log into the file."""
TRIM_MESSAGES = 1000
"""A partition is looked through after so many messages of this process; also how many go in one transaction."""
LOOK_EVERY_S = 600.0
"""All partitions are looked through this often, if anything is written at all."""


class Keeper:
    """Housekeeping for what one bus writes: it takes note in the writing thread, and works in its own."""

    def __init__(self, path: Path, cell: str, keep: Mapping[Topic, Keep], stopping: Event) -> None:
        """Nothing is opened before there is work."""
        self._path, self._cell, self._keep, self._stopping = path, cell, keep, stopping
        self._opened: tuple[sqlite3.Connection, Transactions] | None = None
        self._pages = 0
        self._grown: Counter[int] = Counter()
        self._looked_at = time.monotonic()
        self._asked = False

    def note(self, appended: Appended) -> bool:
        """Take note of a transaction; whether `work` should be done now. True once until it is done."""
        self._pages += PAGES_PER_TRANSACTION + appended.value_bytes // PAGE_BYTES
        self._grown.update(appended.counts)
        if self._asked:
            return False
        self._asked = (
            self._pages >= CHECKPOINT_PAGES
            or any(self._grown[partition_id] >= TRIM_MESSAGES for partition_id in appended.counts)
            or time.monotonic() - self._looked_at >= LOOK_EVERY_S
        )
        return self._asked

    def work(self) -> None:
        """Trim what has grown, then checkpoint. Gives way to all other writers; what fails is tried again later."""
        try:
            with in_our_words(self._path):
                connection, transactions = self._open()
                self._trim_grown(connection, transactions)
                if self._pages >= CHECKPOINT_PAGES:
                    self._pages = 0
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except BusError as error:
            log.warning("housekeeping of the log was put off: %s", error)
        finally:
            self._asked = False

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened[0].close()

    def _open(self) -> tuple[sqlite3.Connection, Transactions]:
        if self._opened is None:
            connection = open_for_writing(self._path)
            self._opened = connection, Transactions(connection, self._path, self._stopping)
        return self._opened

    def _trim_grown(self, connection: sqlite3.Connection, transactions: Transactions) -> None:
        all_of_them = time.monotonic() - self._looked_at >= LOOK_EVERY_S
        if all_of_them:
            self._looked_at = time.monotonic()
        rows = connection.execute("SELECT id, topic FROM partitions WHERE cell=?", (self._cell,)).fetchall()
        for partition_id, topic in rows:
            if all_of_them or self._grown[partition_id] >= TRIM_MESSAGES:
                self._grown[partition_id] = 0
                keep = self._keep.get(Topic(topic))
                while keep is not None and not self._stopping.is_set():
                    with transactions.transaction(synced=False):
                        more = _trim_some(connection, partition_id, keep)
                    self._pages += PAGES_PER_TRANSACTION
                    if not more:
                        break


def _trim_some(connection: sqlite3.Connection, partition_id: int, keep: Keep) -> bool:
    """Drop the oldest messages, a thousand at most; whether there may be more to drop."""
    first = partition_id << OFFSET_BITS
    begin, end = connection.execute(
        "SELECT begin_offset, next_offset FROM partitions WHERE id=?", (partition_id,)
    ).fetchone()
    oldest = connection.execute(
        "SELECT id, appended_at_s FROM messages WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
        (first, first | OFFSET_MASK, TRIM_MESSAGES),
    )
    new_begin, surplus, too_old_s = begin, end - keep.messages, LogClock(connection).now_s() - keep.age_s
    for row_id, appended_at_s in oldest:
        if row_id & OFFSET_MASK >= surplus and appended_at_s >= too_old_s:
            break
        new_begin = (row_id & OFFSET_MASK) + 1
    oldest.close()
    if new_begin > begin:
        connection.execute("DELETE FROM messages WHERE id BETWEEN ? AND ?", (first, first + new_begin - 1))
        connection.execute("UPDATE partitions SET begin_offset=? WHERE id=?", (new_begin, partition_id))
    return bool(new_begin == begin + TRIM_MESSAGES)
