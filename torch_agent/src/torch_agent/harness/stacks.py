"""Leaves the stacks of all threads in a file when the agent asks for them, whatever the process is doing.

faulthandler writes them from a signal handler in C, without the interpreter: also while a collective, a driver call or
a deadlock keeps it. No other process has to look into this one, which takes rights (ptrace) that agents rarely have.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal

SIGNAL = signal.SIGRTMAX - 7
"""Real-time signals are used by no launcher, framework or scheduler that is known; SIGUSR1 and SIGUSR2 are."""
SUFFIX = ".stacks"


def listen(folder: str) -> None:
    """From now on, to the end of the process and of those that it forks.

    Args:
        folder: of the task's pages. A forked process writes to the file of the one that was started.
    """
    path = os.path.join(folder, f"{os.getpid()}{SUFFIX}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True)
    atexit.register(_remove, path, os.getpid())


def _remove(path: str, pid: int) -> None:
    """A script may start one process after another; the file of one that is killed stays until its task is removed."""
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.unlink(path)
