"""One process of a cell: started, watched, started again, ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from libs.cli.cell.plan import Command
from libs.runtime.exits import FENCED, NO_ROOM

FIRST_DELAY_S, LONGEST_DELAY_S = 0.2, 5.0
SETTLED_AFTER_S = 10.0
"""A process that has run so long counts as healthy: its next death is followed by a quick restart again."""
QUICK_ENDS = 3
"""A process that gives up so many times in a row, before it has settled, would do so for ever."""
LAST_LINES = 15
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """Runs in the child before its program: when the supervisor is killed, the kernel ends the child too."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """Not thread-safe: its supervisor alone calls it."""

    def __init__(self, command: Command, log_folder: Path) -> None:
        self.command = command
        self.log_path = log_folder / f"{command.name}.log"
        self.restarts = 0
        self.quick_ends = 0
        """How often in a row it has ended by itself, with a status other than 0, before it had settled."""
        self.is_over = False
        """It has ended with FENCED: another instance works in its place, and it is not started again."""
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._delay_s = FIRST_DELAY_S
        self._due_at = 0.0

    @property
    def pid(self) -> int | None:
        """Of the running process, or None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process; its output goes to its log file. In a session of its own: Ctrl-C is the supervisor's."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command.argv,
                env=self.command.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._started_at = time.monotonic()

    def tend(self, has_room: Callable[[], bool] = lambda: True) -> int | None:
        """Start the process again when it has died and its delay is over.

        Args:
            has_room: whether the disk has room for what it needs to begin. Without it it ends for want of that, for
                which it is to blame as little as for a signal.

        Returns:
            The exit status of a process that was found dead just now, else None.
        """
        if self._process is None or self.pid is not None or self.is_over:
            return None
        now = time.monotonic()
        if not self._due_at:
            settled = now - self._started_at > SETTLED_AFTER_S
            if settled:
                self._delay_s = FIRST_DELAY_S
            # A signal comes from outside, and says nothing of what the next start would come to.
            status = self._process.returncode
            self.is_over = status == FENCED
            gave_up = status > 0 and not settled and status != NO_ROOM and has_room()
            self.quick_ends = self.quick_ends + 1 if gave_up else 0
            self._due_at, self._delay_s = now + self._delay_s, min(LONGEST_DELAY_S, 2 * self._delay_s)
            return status
        if now >= self._due_at:
            self._due_at = 0.0
            self.restarts += 1
            self.start()
        return None

    @property
    def is_hopeless(self) -> bool:
        """Whether another start would end as the last ones did."""
        return self.quick_ends >= QUICK_ENDS

    def kill(self) -> None:
        """SIGKILL, without a word."""
        if self.pid is not None and self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask_to_end(self) -> None:
        """SIGTERM."""
        if self.pid is not None and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def wait_for_end(self, deadline: float) -> None:
        """Wait until it has ended, at most to `deadline` (monotonic time); then by force."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()

    def last_words(self) -> str:
        """The end of its log, at most `LAST_LINES` lines."""
        with contextlib.suppress(FileNotFoundError), self.log_path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 16_384))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-LAST_LINES:])
        return ""
