"""The processes of this machine, as /proc has them. Standard library only: shims and keepers of sessions use it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
PARENT, GROUP, USER, SYSTEM, ENDED_USER, ENDED_SYSTEM, THREADS, BEGAN = 1, 2, 11, 12, 13, 14, 17, 19
"""Places in a process's `stat`, counted from its state on."""
LONGEST_STAT = 1024
PR_SET_CHILD_SUBREAPER = 36
ROUNDS, EMPTY_LOOKS, ELUSIVE_LOOKS = 100, 2, 10
"""So often at most it is looked for processes that others have started while those were being signalled; so many looks
have to find none, and so many once a process has ended before its signal."""


def machine_start() -> str:
    """Names the present life of the machine, or of the container: no process of an earlier one is left."""
    first = _stat(PROC / "1")
    return f"{BOOT_ID.read_text().strip()}/{first[BEGAN] if first else ''}"


def machine_cpus() -> list[int]:
    """The CPUs that this process may use, ascending."""
    return sorted(os.sched_getaffinity(0))


def machine_memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def most_processes() -> int:
    """So many processes and threads a task may have: no more than half of what the machine has numbers for."""
    return max(1024, int((PROC / "sys/kernel/pid_max").read_text()) // 2)


def lives(pid: int, began: int = 0) -> bool:
    """Whether the process is there and more than a zombie.

    Args:
        pid: its number.
        began: its start in the kernel's ticks, which one that has the number by now does not share; 0: any.
    """
    found = _stat(PROC / str(pid))
    # The first thread of a process may end before the others do.
    return bool(found) and (found[0] != "Z" or int(found[THREADS]) > 1) and began in (0, int(found[BEGAN]))


def children_now(pid: int) -> list[int]:
    """Of a process with one thread, zombies too, within microseconds; none where the kernel does not list them."""
    try:
        return [int(child) for child in (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except OSError:
        return []


def group_of(pid: int) -> int:
    """The process group of a process; 0 when it has ended."""
    found = _stat(PROC / str(pid))
    return int(found[GROUP]) if found else 0


def run_s(pid: int) -> float:
    """Seconds for which the first thread of a process has run, to the nanosecond; 0 when it has ended."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def resident_bytes(pid: int, *, shared: bool) -> int:
    """Memory of a process; 0 when it has ended.

    Args:
        shared: counts what it has in common with others as its own; else it counts its part of that.
    """
    process = PROC / str(pid)
    try:
        if shared:
            return int((process / "statm").read_text().split()[1]) * PAGE_BYTES
        lines = (process / "smaps_rollup").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    except (OSError, IndexError):
        return 0


class Table:
    """All processes at one moment, by one pass over /proc; made once for all that look at the same time.

    One pass over `stat` instead of /proc/PID/task/TID/children: those have to be read per thread, are not in every
    kernel, and leave out children while siblings end.
    """

    def __init__(self) -> None:
        """Look at all processes now."""
        self._rows: dict[int, bytes] = {}
        """{pid: its `stat`}."""
        self._parents: dict[int, int] = {}
        for name in os.listdir(PROC):
            if name.isdecimal():
                self._read(int(name))
        # A parent that has ended during the pass has left its children to another one.
        for pid in [pid for pid, parent in self._parents.items() if parent and parent not in self._parents]:
            del self._rows[pid], self._parents[pid]
            self._read(pid)
        self._children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            self._children.setdefault(parent, []).append(pid)
        self._marked: dict[str, dict[bytes, list[int]]] = {}

    def _read(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
            try:
                row = os.read(descriptor, LONGEST_STAT)
            finally:
                os.close(descriptor)
            self._rows[pid], self._parents[pid] = row, int(_fields(row, 2)[PARENT])

    def __contains__(self, pid: int) -> bool:
        """Whether the process is there, be it a zombie."""
        return pid in self._rows

    def lives(self, pid: int) -> bool:
        """Whether the process is there and more than a zombie."""
        if pid not in self._rows:
            return False
        state = _fields(self._rows[pid], 1)[0]
        return state != b"Z" or int(_fields(self._rows[pid])[THREADS]) > 1

    def below(self, roots: Iterable[int]) -> list[int]:
        """The living processes that descend from these, each after its parent; without these themselves."""
        found, waiting = [], list(dict.fromkeys(roots))
        seen = set(waiting)
        for pid in waiting:  # it grows meanwhile
            for child in self._children.get(pid, ()):
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
                    if self.lives(child):
                        found.append(child)
        return found

    def parent(self, pid: int) -> int:
        """Of a process; 0: it has none, or is not there."""
        return self._parents.get(pid, 0)

    def children(self, pid: int) -> list[int]:
        """Of a process, the eldest first."""
        return sorted(self._children.get(pid, ()), key=lambda child: (int(_fields(self._rows[child])[BEGAN]), child))

    def in_groups(self, groups: Collection[int]) -> list[int]:
        """The living processes of these process groups."""
        found = [pid for pid, row in self._rows.items() if int(_fields(row, 3)[GROUP]) in groups] if groups else []
        return [pid for pid in found if self.lives(pid)]

    def named(self, comm: str) -> list[int]:
        """Those that call themselves so."""
        name = f"({comm})".encode()
        return [pid for pid, row in self._rows.items() if name in row]

    def marked(self, variable: str, value: str) -> list[int]:
        """The living processes that were started with this variable in their environment, ascending."""
        if variable not in self._marked:
            self._marked[variable] = self._by_value(f"{variable}=".encode())
        return sorted(pid for pid in self._marked[variable].get(os.fsencode(value), ()) if self.lives(pid))

    def _by_value(self, prefix: bytes) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for pid in self._rows:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                content = file.read()
                if prefix in content:
                    for entry in content.split(b"\0"):
                        if entry.startswith(prefix):
                            found.setdefault(entry[len(prefix) :], []).append(pid)
        return found

    def cpu_s(self, pids: Iterable[int], reapers: Iterable[int] = ()) -> float:
        """Seconds of CPU time that processes have used with their children that have ended.

        Args:
            pids: of the processes.
            reapers: those whose ended children count, without what they have used themselves.
        """
        ticks = sum(self._ticks(pid, USER, SYSTEM, ENDED_USER, ENDED_SYSTEM) for pid in pids)
        return (ticks + sum(self._ticks(pid, ENDED_USER, ENDED_SYSTEM) for pid in reapers)) / TICKS_PER_S

    def _ticks(self, pid: int, *places: int) -> int:
        fields = _fields(self._rows[pid]) if pid in self._rows else []
        return sum(int(fields[place]) for place in places) if fields else 0


class Looks:
    """The last look at all processes, shared by what asks within a moment. Not for signals: they need a new one."""

    FRESH_S = 0.2

    def __init__(self) -> None:
        """Nothing is looked at until somebody asks."""
        self._table: Table | None = None
        self._at_s = 0.0

    def recent(self) -> Table:
        """All processes, as they were `FRESH_S` ago at most."""
        if self._table is None or time.monotonic() - self._at_s > self.FRESH_S:
            self._at_s, self._table = time.monotonic(), Table()
        return self._table

    def forget(self) -> None:
        """Look anew the next time."""
        self._table = None


def tell(pids: Callable[[], list[int]], number: int) -> set[int]:
    """Send a signal to processes until no other one is found: one may have been started by one that was not told yet.

    Args:
        pids: looks for them, parents before their children, so that a shell stands still before it sees them stop.
        number: of the signal.

    Returns:
        Those that this process may not signal.
    """
    told, refused, empty_looks = set[int](), set[int](), EMPTY_LOOKS
    for _ in range(ROUNDS):
        fresh = [pid for pid in pids() if pid not in told]
        empty_looks = empty_looks - 1 if not fresh else empty_looks
        if empty_looks == 0:
            break
        for pid in reversed(fresh) if number == signal.SIGCONT else fresh:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                refused.add(pid)
        told.update(fresh)
        if number == signal.SIGCONT:  # what it starts now runs by itself
            break
        if not all(map(lives, fresh)):  # it was quicker, and may be as quick again: a look may meet none of its kind
            empty_looks = ELUSIVE_LOOKS
    return refused


def kill(pids: Iterable[int], wait_s: float) -> set[int]:
    """Kill processes, and wait until they are gone, with their memory. Returns those that this process may not kill.

    Args:
        pids: of the processes.
        wait_s: for each of them, at most.
    """
    descriptors, refused = [], set[int]()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                descriptors.append(descriptor)
            except OSError as error:
                os.close(descriptor)
                if isinstance(error, PermissionError):
                    refused.add(pid)
    for descriptor in descriptors:
        select.select([descriptor], [], [], wait_s)
        os.close(descriptor)
    return refused


def wait_for(pid: int, wait_s: float) -> None:
    """Wait until a process that is no child has ended, or so many seconds."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        select.select([descriptor], [], [], max(0.0, wait_s))
        os.close(descriptor)


def adopt_orphans() -> None:
    """Make this process the parent of all that descend from it and lose theirs, however they cut themselves loose."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def began(pid: int) -> int:
    """Start of a process in the kernel's ticks; 0 when it has ended."""
    found = _stat(PROC / str(pid))
    return int(found[BEGAN]) if found else 0


def signals_heard(pid: int) -> int:
    """The signals that a process has a handler for, blocks or ignores, as bits; 0 when it has ended."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    heard = 0
    for line in lines:
        if line.startswith(("SigCgt:", "SigBlk:", "SigIgn:")):
            heard |= int(line.split()[1], 16)
    return heard


def found_by(last_arguments: list[str]) -> int | None:
    """The process with these last arguments; of a path the end is enough. None: there is none."""
    for path in PROC.glob("[0-9]*"):
        found = arguments_of(int(path.name))
        last = found[-len(last_arguments) :]
        if len(last) == len(last_arguments) and all(map(str.endswith, last, last_arguments)):
            return int(path.name)
    return None


def arguments_of(pid: int) -> list[str]:
    """Of a process; empty when it has ended."""
    try:
        content = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return content.decode(errors="replace").rstrip("\0").split("\0")


def _fields(row: bytes, most: int = -1) -> list[bytes]:
    """Of a `stat`, from the state on; the name before it may have any character."""
    return row[row.rindex(b")") + 2 :].split(None, most)


def _stat(process: Path) -> list[str]:
    """From its state on; empty when the process has ended."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
