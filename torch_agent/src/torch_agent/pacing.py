"""Stops and continues a guest from outside, at its gates' pace: `python -m torch_agent.pacing TASK`.

For tasks without gates (no harness, or too old a one), with gates that are too far apart, or that pass closed ones. The
whole task is stopped, never one rank of it. Groups of operations that a device has queued already run to their end.

A process of its own, because it outlives its agent as the task does: with an agent that is away, the owner's signals
and the last share go on to count. Whichever way it ends in order, the task goes on; before the agent stops a task for
longer, it ends the pacer in disorder, which would let the task go on again behind it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from torch_agent.folders import TaskFolder
from torch_agent.harness.control import ControlReader
from torch_agent.harness.gate.gate import is_free
from torch_agent.harness.gate.pace import Pace
from torch_agent.harness.gpu_page import GpuPage, own_pages
from torch_agent.harness.regular import regular
from torch_agent.processes import PROC, group_of, run_s
from torch_agent.shim import holds

SLICE_S = 0.02
"""How long a guest with a share runs before it is looked at whether it has to idle."""
GAP_LOOK_S, LOOK_S = 0.001, 0.02
"""How often the pacer looks whether a gap goes on, and anything else."""
GUARD_S = 0.002
"""Before the expected end of a gap: a signal takes effect a moment later."""
GROUPS_S = 1.0
"""How often the task's process groups are looked for."""
ENDS_WITHIN_S = 1.0
LOCK, VIRTUAL = "pacer", "--virtual"
MODULE = "torch_agent.pacing"
LONGEST_PID = 16


def main(arguments: list[str]) -> int:
    """Pace the task in a folder until it ends, or SIGTERM. Returns 1 where another pacer does."""
    folder = TaskFolder(Path(arguments[0]))
    with open(folder.path / LOCK, "a+", opener=regular) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 1
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        signal.signal(signal.SIGTERM, _end)
        Pacer(folder, virtual=VIRTUAL in arguments).run()
    return 0


def pacer_of(folder: TaskFolder) -> int | None:
    """The process that paces the task; None: none does."""
    try:
        with open(folder.path / LOCK, "rb+", buffering=0, opener=regular) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return _pacer(lock.read(LONGEST_PID), folder)
    except OSError:
        pass
    return None


def end_pacer(folder: TaskFolder) -> None:
    """The task is to stand still from now on: whatever paces it ends, and does not let it go on first."""
    pid = pacer_of(folder)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    ends_s = time.monotonic() + ENDS_WITHIN_S
    while pacer_of(folder) is not None and time.monotonic() < ends_s:
        time.sleep(GAP_LOOK_S)


def _pacer(written: bytes, folder: TaskFolder) -> int | None:
    """The process with this number, if it is one: the lock lies in reach of the task, which may name any other."""
    if not written.isdigit():
        return None
    try:
        command = (PROC / str(int(written)) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return int(written) if MODULE.encode() in command and os.fsencode(folder.path) in command else None


class Pacer:
    """Stops and continues one task, so that it computes for its share of the time alone."""

    def __init__(self, folder: TaskFolder, *, virtual: bool) -> None:
        """See the module.

        Args:
            virtual: the task computes on the CPU, whose clock says how much.
        """
        self._folder, self._virtual = folder, virtual
        self._control = ControlReader(str(folder.pages))
        self._pages = [GpuPage(path) for path in own_pages(str(folder.pages))]
        self._pace = Pace()
        self._processes: list[int] = []
        self._groups: list[int] = []
        self._holds = False
        self._lease, self._leased = folder.lease, True
        self._run_s = 0.0

    def run(self) -> None:
        """Until the task ends."""
        try:
            while self._folder.lives():
                self._find_groups()
                self._leased = self._lease is None or holds(self._lease)
                until_s = time.monotonic() + GROUPS_S
                while self._groups and time.monotonic() < until_s:
                    self._step(time.monotonic())
                if not self._groups:
                    time.sleep(LOOK_S)
        finally:
            self._let_go()

    def _step(self, now_s: float) -> None:
        share = self._control.share_ratio if self._control.tells_shares else 0.0
        if not self._leased:  # its shim has it stand still
            self._hold()
            time.sleep(LOOK_S)
        elif share >= 1.0 or self._control.suspends:
            self._let_go()
            time.sleep(LOOK_S)
        elif not all(page.is_whole for page in self._pages):  # until the agent has mended them
            self._hold()
            time.sleep(LOOK_S)
        elif is_free(self._pages, share, now_s, GUARD_S):
            self._let_go()
            self._pace.starts(now_s)
            time.sleep(GAP_LOOK_S)
        elif share > 0.0:
            self._run_slice(now_s, share)
        else:
            self._hold()
            self._sleep(now_s, LOOK_S, share)

    def _run_slice(self, now_s: float, share: float) -> None:
        self._let_go()
        self._pace.starts(now_s)
        time.sleep(share * SLICE_S)
        now_s = time.monotonic()
        self._pace.computed(now_s, share)
        if self._virtual:
            before_s, self._run_s = self._run_s, sum(map(run_s, self._processes))
            self._pace.check(self._run_s - before_s)
        if idle_s := self._pace.idle_s(share):
            self._hold()
            self._sleep(now_s, min(idle_s, LOOK_S), share)
            self._pace.idled(time.monotonic(), share)

    def _sleep(self, now_s: float, longest_s: float, share: float) -> None:
        """So long, or until the owner rings."""
        bell = self._pages[0].listen(now_s)
        if not is_free(self._pages, share, now_s, GUARD_S):
            self._pages[0].sleep(bell, now_s, longest_s)

    def _find_groups(self) -> None:
        self._processes = self._folder.processes()
        groups = {group_of(pid) for pid in self._processes}
        self._groups = sorted(groups - {0, self._folder.shim_pid()})  # what joins the shim's does not stop that
        self._run_s = sum(map(run_s, self._processes))
        if self._holds:
            self._signal(signal.SIGSTOP)  # groups that have been made since

    def _hold(self) -> None:
        if not self._holds:
            self._holds = True
            self._signal(signal.SIGSTOP)

    def _let_go(self) -> None:
        if self._holds:
            self._holds = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
