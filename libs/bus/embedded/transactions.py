"""Write transactions: waiting for one's turn, all or nothing, and what is known when it fails."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from libs.bus.embedded.failures import primary_code, translated
from libs.bus.embedded.same_file import SameFile
from libs.bus.port import BusUnavailable, OutcomeUnknown

PATIENCE_S = 30.0
"""How long a writer waits for its turn. Turns take milliseconds; a longer wait means that another one is stuck."""
FIRST_PAUSE_S = 0.0002
LONGEST_PAUSE_S = 0.003
"""SQLite's own waiting sleeps up to 0.1 s at a time and lets some writers wait for nearly a second."""


class Transactions:
    """The write transactions of one connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, stopping: Event) -> None:
        """Give up waiting as soon as `stopping` is set."""
        self._connection, self._path, self._stopping = connection, path, stopping
        self._synced = True
        self._same_file = SameFile(path)

    @contextmanager
    def transaction(self, *, synced: bool) -> Iterator[None]:
        """One transaction that holds the writers' lock from its start.

        Args:
            synced: the disk has it when this returns. Otherwise a power failure may undo it; the death of
                processes never does.

        Raises:
            BusUnavailable: nothing was written; trying again may help. `LogFull` where the disk is full.
            OutcomeUnknown: the disk failed at the very end.
            BusError: nothing was written, and never will be.
        """
        self._same_file.check()
        try:
            self._begin(synced)
            yield
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        else:
            self._commit()
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _begin(self, synced: bool) -> None:
        if synced != self._synced:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
            self._synced = synced
        deadline = time.monotonic() + PATIENCE_S
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
                if self._stopping.is_set() or time.monotonic() > deadline:
                    raise BusUnavailable(f"log {self._path}: waited for other writers in vain ({error})") from error
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if primary_code(error) == sqlite3.SQLITE_FULL:
                # The frame that commits is written last, and is the one that had no room or never came to be
                # written: recovery after a crash ends before it.
                raise translated(error, self._path) from error
            # What reached the disk is undone by the next writer; until then a crash could bring it back.
            raise OutcomeUnknown(f"log {self._path}: the commit failed at the end ({error})") from error
