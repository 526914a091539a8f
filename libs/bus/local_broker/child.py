"""Child processes that do not outlive their parent."""

import ctypes
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

# The kernel sends the parent-death signal when the *thread* that forked ends, not when its process does: a child
# forked from a worker of asyncio.to_thread would die with that event loop. This one thread lives as long as we do.
_FORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forker")


def spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `command` with its output appended to `log`, in a session of its own, so that Ctrl-C does not reach it.

    On Linux it is killed when this process ends, however that happens; elsewhere it survives a kill of its parent.
    """
    return _FORKER.submit(_spawn, command, log).result()


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def die_with_parent() -> None:
        if _LIBC is None:
            return
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above took effect
            os._exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
