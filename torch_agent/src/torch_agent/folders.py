"""A task's folder: how it is filled before the start, and what can be seen in it afterwards.

The folder lies in reach of the task, and an agent of older code may have made it. So what cannot be read there is said
of that task alone: a record of its shim that is no record is made up for from the shim's processes, and a result that
is no result counts as none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from libs.node.seen import Ended, Seen
from torch_agent.cgroups import Cgroup, is_of
from torch_agent.harness.attempts import NOTE
from torch_agent.harness.control import create_control
from torch_agent.harness.regular import regular
from torch_agent.harness.versions import Unreadable
from torch_agent.listing import listed
from torch_agent.membership import Membership, remove_shared_files
from torch_agent.once import warn_once
from torch_agent.processes import Table, found_by, group_of, lives
from torch_agent.records import Exit, Fenced, Fetched, MemoryExceeded, R, Shim, read_record
from torch_agent.room import allocate
from torch_agent.shim import HELD, HELD_NAME, ROOMS, SUSPENDED, VERSION

SHIM = Path(__file__).with_name("run_shim.py")
ANY_SHIM = "shim.py"
"""The end of its name, and of that which earlier versions ran."""
Refusal = Literal["launch_failed", "setup_failed", "node_failed"]
MOST_OUTPUTS = 1024
KILLED_LOOK_S = 1.0
"""How long an agent waits for a process that it has killed: everything else waits meanwhile."""
LEFT_ROUNDS = 10
OUTPUT = re.compile(r"rank-[0-9]{1,6}\.(out|err)")


@dataclass(frozen=True)
class TaskFolder:
    """`<state dir>/tasks/<job>.<attempt>/`."""

    path: Path

    @property
    def work(self) -> Path:
        """Where the uploaded code is unpacked; the working directory of tasks that name none."""
        return self.path / "work"

    @property
    def pages(self) -> Path:
        """Where the harness leaves its pages."""
        return self.path / "pages"

    @property
    def reports(self) -> Path:
        """What the script reports, a line each; not there before its first report."""
        return self.path / "reports.jsonl"

    @property
    def setup(self) -> str | None:
        """Name of the environment that was set up for the task; None: there is none."""
        try:
            return os.readlink(self.path / "setup").rpartition("/")[2]
        except OSError:
            return None

    def use_setup(self, environment: Path) -> None:
        """Note which environment the task uses, so that it is kept as long as the task lives."""
        link = self.path / "setup"
        link.unlink(missing_ok=True)
        link.symlink_to(environment)

    def make(self) -> None:
        """Create the folders."""
        for folder in (self.path, self.work, self.pages):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_control(self.pages)

    def state_of(self, rank: int) -> Path:
        """Where a rank that takes over a state waits for it."""
        return self.pages / f"state.rank-{rank}"

    def note_fetched(self, rank: int, state_bytes: int, took_s: float) -> None:
        """Remember what it took to get a rank's state, for whichever agent will say so."""
        _write(self.path / f"fetched-{rank}.json", {"state_bytes": state_bytes, "took_s": took_s})

    def fetched(self) -> tuple[int, float]:
        """The bytes of all states that were fetched, and the seconds that the slowest of them took."""
        notes = [note for path in self.path.glob("fetched-*.json") if (note := _read(path, Fetched)) is not None]
        return sum(note.state_bytes for note in notes), max((note.took_s for note in notes), default=0.0)

    def drop_states(self) -> None:
        """Remove states that no task will take over any more, also those that have not come in whole."""
        for path in self.pages.glob("state.rank-*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def remove(self) -> subprocess.Popen[bytes]:
        """Begin to remove the folder with all that the task has left there, as far as that is possible.

        By `rm`, because a task may have made folders in folders deeper than Python's own ways of removing them go; and
        a million files take longer than other tasks can wait. Returns the process that does it.
        """
        return subprocess.Popen(["rm", "-rf", "--", str(self.path)], stderr=subprocess.DEVNULL)

    def outputs(self) -> list[Path]:
        """The files of output, by rank and stream."""
        return sorted(path for path in listed(self.path, OUTPUT, MOST_OUTPUTS) if path.is_file())

    def start_shim(self, spec: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start the task's shim in a session of its own, so that it outlives the agent.

        A second shim for the same folder ends at once: the first holds the lock.

        Raises:
            OSError: nothing was started; the disk has no room for what the shim is to write, among others.
        """
        self.make()
        _write(self.path / "spec.json", spec)
        for name, size in ROOMS.items():
            allocate(self.path / name, size)
        with (self.path / "shim.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(SHIM), str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def refuse(self, why: str, *, outcome: Refusal = "launch_failed") -> None:
        """Leave the result of a task that cannot be started."""
        self.make()
        ended = {"exit_code": None, "signal": None, "outcome": outcome, "rank": None, "stderr_tail": why}
        _write(self.path / "exit.json", ended)

    @property
    def lease(self) -> Path | None:
        """The lease under which the task was started; None: none, as by older agents."""
        try:
            path = json.loads((self.path / "spec.json").read_text())["lease"]["path"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Path(path) if isinstance(path, str) else None

    def note_suspended(self, suspended: bool) -> None:
        """Note whether the task is to stand still, for its shim, which lets it go on when a lease is renewed."""
        note = self.path / SUSPENDED
        try:
            if suspended:
                note.touch()
            else:
                note.unlink(missing_ok=True)
        except OSError as error:
            warn_once(f"{note}: {error}: the next renewal of a lease that has run out may let the task go on")

    def end_for_memory(self, why: str) -> None:
        """End the task because it has more memory than it asked for; that is noted first, for whichever agent looks."""
        try:
            _write(self.path / "memory.json", {"why": why})
        except OSError as error:
            warn_once(f"{self.path}: why the task is ended cannot be noted: {error}")
        self.signal_ranks(signal.SIGKILL)

    def is_deserted(self, *, started: bool) -> bool:
        """Whether the task has been started, and neither lives nor has left a result."""
        shim = self._shim(started=started)
        return shim is not None and not self._lives(shim) and not (self.path / "exit.json").exists()

    def lives(self) -> bool:
        """Whether the task has been started and has not ended."""
        shim = self._shim(started=False)
        return shim is not None and self._lives(shim)

    def look(self, *, starting: bool, started: bool, before_restart: bool = False) -> Seen:
        """What is to be seen of the task.

        Args:
            starting: a shim was started and may not have come so far as to take the lock.
            started: the task's start was seen before.
            before_restart: it was in an earlier life of the machine.
        """
        shim = self._shim(started=started)
        pid = shim.ranks[0] if shim is not None and shim.ranks else None
        if before_restart:
            shim = _Processes(None, [])  # other processes have these numbers by now, and must not be signalled
        ended = self._ended(shim)
        if ended is None and shim is not None and not self._lives(shim):
            ended = self._ended(shim) or self._lost(shim)
        launched = starting or shim is not None or self._is_locked()
        return Seen(launched=launched, pid=pid, ended=ended)

    def end_unknown(self) -> bool:
        """End what runs in the folder of a task that is on no record: the shim, and by that the ranks.

        Returns:
            Whether there was something.
        """
        shim = self._shim(started=True) if self._is_locked() else None
        if shim is None or shim.pid is None:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(shim.pid, signal.SIGSTOP)  # it leaves no result, and is the parent of all meanwhile
            self._membership(shim).tell(signal.SIGKILL)
            os.kill(shim.pid, signal.SIGKILL)
        return True

    def end_left(self) -> None:
        """Kill what a shim that has been killed has left; what the kernel does not let go in time stays."""
        shim = self._shim(started=True)
        for _ in range(LEFT_ROUNDS):
            if shim is None or self._lives(shim) or self._lost(shim) is not None:
                break

    def signal_ranks(self, *numbers: int) -> None:
        """Send signals to every process of the task; SIGTERM to the process groups of its ranks alone.

        Launchers pass that one on, and a rank that is told twice would begin to leave twice.
        """
        shim = self._shim(started=True) if numbers else None
        if shim is None:
            return
        task = self._membership(shim)
        for number in numbers:
            if number == signal.SIGTERM:
                living = {group_of(pid) for pid in task.pids()}  # others may have the numbers of those that have ended
                _signal([rank for rank in shim.ranks if rank in living], number)
            elif refused := task.tell(number):
                warn_once(f"{self.path.name}: processes {sorted(refused)} of another user do not take signals")

    def processes(self, table: Table | None = None) -> list[int]:
        """All that belong to the task, parents before their children.

        Args:
            table: a look at all processes; None: they are looked at now.
        """
        shim = self._shim(started=True)
        return self._membership(shim).pids(table) if shim is not None else []

    def cpu_s(self, table: Table) -> float:
        """Seconds of CPU time that the task has used so far, with what has ended.

        Args:
            table: a look at all processes.
        """
        shim = self._shim(started=True)
        if shim is None:
            return 0.0
        task = self._membership(shim)
        counted = task.cgroup.cpu_s() if task.cgroup is not None else None
        if counted is not None:
            return counted
        return table.cpu_s(task.pids(table), [task.shim] if task.shim is not None else [])

    @property
    def cgroup(self) -> Cgroup | None:
        """The control group of the task; None: it has none."""
        shim = self._shim(started=True)
        return shim.cgroup if shim is not None else None

    def shim_pid(self) -> int | None:
        """The shim's process, once it has started the ranks."""
        shim = self._shim(started=False)
        return shim.pid if shim is not None else None

    def ranks(self) -> list[int]:
        """The leaders of the ranks' process groups, by rank."""
        shim = self._shim(started=True)
        return shim.ranks if shim is not None else []

    def _membership(self, shim: _Processes) -> Membership:
        """How the task's processes are found; those of a shim of before, or one that has died, also by the variable."""
        there = shim.pid is not None and lives(shim.pid, shim.began) and (shim.began > 0 or self._lives(shim))
        adopts = there and shim.began > 0
        groups = () if adopts else tuple(shim.ranks)
        return Membership(self.path, shim.pid if there else None, groups, shim.cgroup, hint=not adopts)

    def _shim(self, *, started: bool) -> _Processes | None:
        """None before the ranks have been started.

        Args:
            started: they have been, so that a record that is not there has been removed.
        """
        path = self.path / "shim.json"
        try:
            found = read_record(path, Shim)
            if found is not None:
                return _Processes(found.pid, list(found.ranks.values()), found.began, self._cgroup(found.cgroup))
            if not started:
                return None
            why = f"{path}: it is gone"
        except Unreadable as error:
            why = str(error)
        warn_once(f"{why}: the task's processes are those of its shim, if that lives")
        pid = found_by([ANY_SHIM, str(self.path)])
        return _Processes(pid, Table().children(pid) if pid is not None else [])

    @property
    def _begun_s(self) -> float:
        """When the task was to be started, by the clock of files; never where that is not known."""
        try:
            return (self.path / "spec.json").stat().st_mtime
        except OSError:
            return math.inf

    def _cgroup(self, path: str) -> Cgroup | None:
        """None also for one that is not the task's own by its name: no record has others killed."""
        own = path and is_of(Path(path), self.path.name, self.path.parent.parent)
        return Cgroup(Path(path)) if own else None

    def _lives(self, shim: _Processes) -> bool:
        """The lock may be gone with the folder."""
        return self._is_locked() or (not (self.path / "lock").exists() and shim.pid is not None and lives(shim.pid))

    def _lost(self, shim: _Processes, why: str = "") -> Ended | None:
        """The shim has died without a word; the kernel has killed the ranks with it, we kill what they left.

        None while one of them is still on its way out, and has its memory.
        """
        _signal(shim.ranks, signal.SIGKILL)
        task = self._membership(shim)
        pids, refused = task.kill(KILLED_LOOK_S)
        remove_shared_files([*shim.ranks, *pids], self._begun_s)
        if not refused.issuperset(pids) or any(lives(pid) for pid in shim.ranks):
            return None
        if refused:
            warn_once(f"{self.path.name}: processes {sorted(refused)} of another user are left running")
        if task.cgroup is not None:
            task.cgroup.remove()
        return Ended(exit_code=None, signal=None if why else signal.SIGKILL, outcome="lost", stderr_tail=why)

    def _ended(self, shim: _Processes | None) -> Ended | None:
        """How the task has ended, as its shim says; while that lives, so may the processes, and no result counts."""
        try:
            found = read_record(self.path / "exit.json", Exit)
        except Unreadable as error:
            if self._is_locked():
                return None
            return self._lost(shim or _Processes(None, []), str(error))
        if self._is_locked() and not _has_ended(shim):
            found = self._held(shim)
        if found is None:
            return None
        exceeded = _read(self.path / "memory.json", MemoryExceeded) if found.signal == signal.SIGKILL else None
        if exceeded is not None:
            return Ended(
                exit_code=None,
                signal=found.signal,
                outcome="host_memory_exceeded",
                rank=found.rank,
                stderr_tail=exceeded.why.replace("\0", "\ufffd"),
                memory_signs=found.memory_signs,
            )
        if found.outcome in ("exited", "signalled") and found.exit_code != 0:
            fenced = _read(self.pages / NOTE, Fenced)
            if fenced is not None:  # what the other processes have died of follows from it
                why = fenced.why.replace("\0", "\ufffd")
                return Ended(exit_code=None, signal=None, outcome="interrupted", rank=found.rank, stderr_tail=why)
        return Ended(
            exit_code=found.exit_code,
            signal=found.signal,
            outcome=found.outcome,
            rank=found.rank,
            stderr_tail=found.stderr_tail.replace("\0", "\ufffd"),
            memory_signs=found.memory_signs,
        )

    def _held(self, shim: _Processes | None) -> Exit | None:
        """The result that a living shim keeps in memory, because it cannot write it."""
        if shim is None or shim.pid is None:
            return None
        path = Path(f"/proc/{shim.pid}/fd/{HELD}")
        try:
            if not os.readlink(path).startswith(f"/memfd:{HELD_NAME}"):
                return None
        except OSError:
            return None
        if (found := _read(path, Exit)) is not None:
            warn_once(f"{self.path}: there is no room for the task's result, which its shim has kept: it counts")
        return found

    def _is_locked(self) -> bool:
        try:
            with (self.path / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # of two that look neither takes the other for a shim
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


@dataclass(frozen=True)
class _Processes:
    """Of a task: its shim, as far as that is known, and the leaders of its ranks' process groups."""

    pid: int | None
    ranks: list[int]
    began: int = 0
    """Start of the shim in the kernel's ticks; 0: it is not known, and the shim may adopt no orphans."""
    cgroup: Cgroup | None = None


def _has_ended(shim: _Processes | None) -> bool:
    """Whether it is known to have; another process of the task may hold its lock."""
    return shim is not None and shim.pid is not None and not lives(shim.pid)


def _signal(groups: list[int], *numbers: int) -> None:
    for pid in groups:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)


def _read(path: Path, kind: type[R]) -> R | None:
    """None also when it is no such record, which is said."""
    try:
        return read_record(path, kind)
    except Unreadable as error:
        warn_once(f"{error}; it is left out")
        return None


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".agent")
    with open(temporary, "w", opener=regular) as file:
        file.write(json.dumps({"version": VERSION, **content}))
    temporary.chmod(0o600)
    temporary.rename(path)
