"""One process works on an agent's state directory at a time."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO


class AnotherAgent(Exception):
    """The state directory is in use; the message names it."""


def hold(state_dir: Path) -> TextIO:
    """Hold the state directory; the lock goes with the file, or the process.

    Raises:
        AnotherAgent: another process holds it.
    """
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (state_dir / "lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise AnotherAgent(f"another agent works in {state_dir}") from None
    os.truncate(lock.fileno(), 0)
    with suppress(OSError):  # on a full disk it is held all the same
        os.write(lock.fileno(), str(os.getpid()).encode())
    return lock
