"""Which process keeps the cell of a state directory running."""

from __future__ import annotations

import fcntl
import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from libs.cli.cell.errors import CellError

LOCK = "up.lock"


def take(state_dir: Path) -> TextIO:
    """Hold the state directory as long as the file is open.

    Raises:
        CellError: another process holds it.
    """
    lock = (state_dir / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise CellError(f"a cell is already running in {state_dir} (process {holder})") from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def end_holder(state_dir: Path, within_s: float) -> bool:
    """Ask the process that holds the state directory to end, and wait for it.

    Returns:
        Whether there was one.

    Raises:
        CellError: it has not ended in time.
    """
    with suppress(FileNotFoundError), (state_dir / LOCK).open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = int(lock.read())
            if not _end(pid, within_s):
                text = f"process {pid}, which keeps the cell in {state_dir} running, has not ended in {within_s:.0f} s"
                raise CellError(text) from None
            return True
    return False


def _end(pid: int, within_s: float) -> bool:
    """Whether the process has ended in time."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        os.kill(pid, signal.SIGTERM)
        return bool(select.select([ended], [], [], within_s)[0])
    finally:
        os.close(ended)
