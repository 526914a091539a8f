"""Starts one task and stays with it: the parent of its processes, which outlives the agent.

Run by `run_shim.py`, with the standard library only, and what of this package needs no more. Reads `spec.json`, and
leaves in the same folder:

    lock         held as long as the shim lives
    shim.json    pids of the ranks, once they are started
    exit.json    how the task ended, written when none of its processes is left

Both records have room on the disk from before the start (`*.room`). A result that cannot be written all the same stays
in memory until it can: this process is the only witness of it. Meanwhile it keeps the lock, and an agent reads the
result from its descriptor HELD (`/proc/PID/fd/HELD`), a file in memory.

Told to end (SIGTERM: a machine that shuts down, a service manager or a container that ends everything in it), it tells
the ranks to, so that they save what they can, and leaves no `exit.json` unless they have done all their work: to the
next agent the task was interrupted, and has not failed.

A spec that names the lease of its node has the task stand still while that has run out, whether or not the agent lives
(`Lease`).

The records (records.py) have the version of the spec: the agent that wrote it is to read them. When the shim dies, the
kernel kills the ranks with it (PR_SET_PDEATHSIG): a task never runs unwatched. Processes that lose their parents become
children of the shim, so none that the task has started is overlooked (`membership.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_agent.cgroups import Cgroup
from torch_agent.membership import Membership, remove_shared_files
from torch_agent.processes import adopt_orphans, began, kill, wait_for

VERSION = 2
"""Of the records in the folder; version 1 does not say it."""
PR_SET_PDEATHSIG = 1
PEER_GRACE_S = 5.0
"""How long the other ranks may go on after one has ended badly, before each of the two signals."""
LEFT_GRACE_S = 60.0
"""How long processes may go on when SIGTERM has ended their starter before them: a batch script's shell ends at once,
its ranks save what they have done. The agent kills them sooner, at the end of the grace of its stop."""
LEFT_LOOK_S = 1.0
"""How often it is looked meanwhile at what is left."""
KILLED_WAIT_S = 10.0
"""How long a shim waits for a process that it has killed: a driver may take seconds to free the memory of its GPU."""
STDERR_TAIL_BYTES = 4096
HELD = 64
"""Descriptor of the file in memory that has a result which cannot be written."""
HELD_NAME = "sanjaya-result"
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 5.0
"""Between two attempts to write a result."""
ROOMS = {"shim.room": 4096, "exit.room": 32768}
"""{file in the task's folder: bytes}, kept free for `shim.json` and `exit.json`: the longest result is a tail of stderr
of which each byte takes six as JSON."""
HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM)
"""Taken by sigtimedwait alone."""
LEASE_LOOK_S = 3.2
"""How often a lease that has run out is read again: less than 20 times a minute."""
LEASE_BYTES = 512
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SUSPENDED = "suspended"
"""A file in the folder as long as the agent wants the task to stand still: a renewed lease does not let it go on."""
STANDS_STILL, HAS_ENDED = "Tt", "ZX"
GIVEN_UP = "the lease of its node has run out, and was not renewed before the end of the grace"


class CannotStart(Exception):
    """The task's processes cannot be started; the message says why."""


def main(folder: Path) -> int:
    """Run the task described in `folder` to its end. Returns 0 unless another shim has the task."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1
    if (folder / "exit.json").exists():
        return 0
    version = VERSION
    adopt_orphans()
    try:
        spec = _spec(folder / "spec.json")
        version = spec.get("version", 1)
        since_s = (folder / "spec.json").stat().st_mtime
        cgroup = _cgroup(spec)
        ranks = _start(spec, folder, cgroup)
    except CannotStart as error:
        leave_result(folder, version, _result(None, None, "launch_failed", stderr_tail=str(error)))
        return 0
    pids = {str(rank): process.pid for rank, process in ranks.items()}
    found_by = {"began": began(os.getpid()), "cgroup": str(cgroup.path) if cgroup is not None else ""}
    task = Membership(folder, os.getpid(), cgroup=cgroup)
    try:
        _leave(folder / "shim.json", version, {"pid": os.getpid(), "ranks": pids, **found_by})
    except OSError as error:  # no agent could signal them
        _kill_what_is_left(task)
        if cgroup is not None:
            cgroup.remove()
        leave_result(folder, version, _result(None, None, "node_failed", stderr_tail=f"shim.json: {error}"))
        return 0
    result = _watch(ranks, spec, folder, Lease(spec.get("lease"), folder, task.pids))  # None: interrupted
    if result is None or result["signal"] == signal.SIGTERM:
        told_all = result is None or result["outcome"] == "time_limit"
        _wait_for_what_is_left(task, PEER_GRACE_S if told_all else LEFT_GRACE_S)
    killed = _kill_what_is_left(task)
    remove_shared_files([*killed, *pids.values()], since_s)
    if cgroup is not None and result is not None:
        result |= _memory_signs(result, cgroup, spec, folder)
    if cgroup is not None:
        cgroup.remove()
    if result is not None:
        leave_result(folder, version, result)
    return 0


def _memory_signs(result: dict[str, Any], cgroup: Cgroup, spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the kernel has counted of the task's own kills for memory; where they were by its own bound, that is noted.

    Nothing where it counts none: then those of the machine are a sign.
    """
    kills = cgroup.oom_kills()
    if kills is None or result["signal"] is None:
        return {}
    bound, note = spec["cgroup"]["memory_bytes"], folder / "memory.json"
    if kills and bound is not None and result["signal"] == signal.SIGKILL and not note.exists():
        why = f"the kernel has ended its processes at {bound >> 20} MiB of the host's memory, more than it asked for"
        _leave(note, spec.get("version", 1), {"why": why})
    return {"oom_kills": kills, "memory_signs": kills > 0}


def _cgroup(spec: dict[str, Any]) -> Cgroup | None:
    """The task's control group; None: it has none, and the tree below this process holds it alone."""
    wanted = spec.get("cgroup")
    if not wanted:
        return None
    cgroup = Cgroup(Path(wanted["path"]))
    try:
        cgroup.make(memory_bytes=wanted["memory_bytes"], processes=wanted["processes"])
    except OSError as error:
        print(f"without a control group: {error}", file=sys.stderr, flush=True)
        return None
    return cgroup


def _wait_for_what_is_left(task: Membership, grace_s: float) -> None:
    """Let processes that save on SIGTERM do so; those that it would have ended, had they been told, are killed."""
    deadline = time.monotonic() + grace_s
    while (wait_s := deadline - time.monotonic()) > 0:
        kill(task.unsaving(), LEFT_LOOK_S)
        _reap({})
        if not (left := task.pids()):
            break
        wait_for(left[0], min(wait_s, LEFT_LOOK_S))


def _kill_what_is_left(task: Membership) -> set[int]:
    """Again and again, because one that is being killed may have started another. Returns those that it has killed."""
    # What has become a child of others, such as what a session has left to its agent, is only found by the variable.
    task, killed, refused = task._replace(hint=True), set[int](), set[int]()
    missed_until = time.monotonic() + KILLED_WAIT_S
    while True:
        pids, kept = task.kill(KILLED_WAIT_S)
        childless = _reap({})
        killed.update(pids)
        refused |= kept
        if refused.issuperset(pids):
            # What no look has met is a child of this process still, as the kernel has it.
            if childless or refused or time.monotonic() > missed_until:
                break
            time.sleep(0.001)
    if refused:
        print(f"of another user, and left running: processes {sorted(refused)}", file=sys.stderr, flush=True)
    return killed - refused


def _reap(ranks: dict[int, subprocess.Popen[bytes]]) -> bool:
    """Let go of adopted processes that have ended. Returns whether this process has no children any more.

    Args:
        ranks: those whose ends are waited for elsewhere.
    """
    kept = {process.pid for process in ranks.values()}
    try:
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in kept:
            os.waitpid(found.si_pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def _spec(path: Path) -> dict[str, Any]:
    """What to start.

    Raises:
        CannotStart: the file says something else, or is of a version that this code does not know.
    """
    try:
        spec: dict[str, Any] = json.loads(path.read_text())
        version = spec.get("version", 1)
    except (OSError, ValueError, AttributeError) as error:
        raise CannotStart(f"{path}: expected what to start, in JSON: {error}") from error
    if version not in (1, VERSION):
        raise CannotStart(f"{path}: what to start is of version {version}; this code knows version 1, {VERSION}")
    return spec


def _start(spec: dict[str, Any], folder: Path, cgroup: Cgroup | None) -> dict[int, subprocess.Popen[bytes]]:
    """{global rank: process}; all or none.

    Raises:
        CannotStart: one of them cannot be started.
    """
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    libc = ctypes.CDLL(None, use_errno=True)

    def in_the_child() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if cgroup is not None:
            cgroup.enter()
        if spec["data_limit_bytes"]:
            resource.setrlimit(resource.RLIMIT_DATA, (spec["data_limit_bytes"], spec["data_limit_bytes"]))
        if spec["nice"]:
            os.nice(spec["nice"])
        if spec.get("cpus"):
            os.sched_setaffinity(0, spec["cpus"])

    try:
        for environment in spec["environments"]:
            rank = int(environment.get("SANJAYA_RANK") or environment["RANK"])  # agents before it set RANK always
            with (folder / f"rank-{rank}.out").open("ab") as out, (folder / f"rank-{rank}.err").open("ab") as err:
                ranks[rank] = subprocess.Popen(
                    spec["command"],
                    cwd=spec["cwd"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    process_group=0,
                    preexec_fn=in_the_child,
                )
    except BaseException as error:
        for process in ranks.values():
            process.kill()
            process.wait()
        if isinstance(error, OSError | ValueError):
            raise CannotStart(f"cannot start {spec['command'][0]!r} in {spec['cwd']}: {error}") from error
        raise
    return ranks


def boottime_s() -> float:
    """Seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_lease(path: Path, renewed_s: float, lease_s: float, grace_s: float | None) -> None:
    """Renew a node's lease, in place: that takes no room, which a full disk does not have.

    Later versions of the file may add fields; the shims that read it are as old as their tasks.

    Args:
        path: the file.
        renewed_s: from when on it counts, on `boottime_s`.
        lease_s: for how long it holds.
        grace_s: how long tasks then stand still before they are killed; None: they are not.

    Raises:
        OSError: it cannot be written.
    """
    fields = {"version": 1, "boot_id": BOOT_ID.read_text().strip()}
    body = json.dumps({**fields, "renewed_s": renewed_s, "lease_s": lease_s, "grace_s": grace_s}).encode()
    content = body + f"\n{zlib.crc32(body):08x}\n".encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.pwrite(descriptor, content.ljust(LEASE_BYTES), 0)
    finally:
        os.close(descriptor)


def read_lease(path: Path) -> dict[str, Any] | None:
    """A node's lease as it was written last; None: there is none that can be read, of this life of the machine."""
    for _ in range(3):  # a renewal may be half done
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with open(descriptor, "rb", buffering=0) as file:
            body, _, rest = file.read(LEASE_BYTES).partition(b"\n")
        if rest[:8] == f"{zlib.crc32(body):08x}".encode():
            return _lease_in(body)
    return None


def _lease_in(body: bytes) -> dict[str, Any] | None:
    """None where a task has put something else there."""
    try:
        found = json.loads(body)
        times = {name: float(found[name]) for name in ("renewed_s", "lease_s")}
        grace_s = None if found["grace_s"] is None else float(found["grace_s"])
        is_of_now = found["boot_id"] == BOOT_ID.read_text().strip()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return {**times, "grace_s": grace_s} if is_of_now else None


def holds(path: Path) -> bool:
    """Whether a node's lease has not run out; also while there is none."""
    found = read_lease(path)
    return found is None or boottime_s() < found["renewed_s"] + found["lease_s"]


class Lease:
    """Has a task stand still while the lease of its node has run out, and go on when that is renewed.

    The grace before the task is killed counts while this process is awake alone: an agent that was frozen or asleep
    with it gets all of it. Sleeps until the lease as last read can run out, on a clock that counts the machine's sleep.
    """

    def __init__(self, spec: dict[str, Any] | None, folder: Path, pids: Callable[[], list[int]]) -> None:
        """See the class.

        Args:
            spec: `path` of the lease, and its `lease_s` and `grace_s` while there is no file; None: there is no lease.
            folder: the task's.
            pids: looks for the task's processes.
        """
        self._folder, self._pids = folder, pids
        self._path = Path(spec["path"]) if spec is not None else None
        self._known = {"renewed_s": boottime_s(), **(spec or {})}
        self._stopped: dict[int, str] = {}
        """{process that this has stopped: when it began}."""
        self._left_s: float | None = None
        self._looked_s = 0.0
        self._due_s = 0.0
        self._timer = _Timer() if spec is not None else None

    @property
    def is_out(self) -> bool:
        """Whether the task stands still, or should."""
        return self._left_s is not None

    def wait_s(self) -> float | None:
        """Seconds to the next look; None: a signal comes for it, or there is none."""
        if self._path is None:
            return None
        wait_s = max(0.0, self._due_s - boottime_s())
        return None if wait_s and self._timer is not None and self._timer.ring_at(self._due_s) else wait_s

    def look(self) -> bool:
        """Stop the task, or let it go on, when it is time to look. Returns whether it is to be killed."""
        now_s = boottime_s()
        if self._path is None or now_s < self._due_s:
            return False
        self._known = read_lease(self._path) or self._known
        ends_s = self._known["renewed_s"] + self._known["lease_s"]
        if now_s < ends_s:
            self._go_on()
            self._due_s = ends_s
            return False
        grace_s = self._known["grace_s"]
        if self._left_s is None:
            self._left_s = float("inf") if grace_s is None else grace_s
        else:
            self._left_s -= min(now_s - self._looked_s, 2 * LEASE_LOOK_S)
        self._looked_s = now_s
        self._stop()
        self._due_s = boottime_s() + min(LEASE_LOOK_S, max(0.1, self._left_s))
        return self._left_s <= 0

    def let_go(self) -> None:
        """Look no more, and let the task go on: it is being ended, and may save what it has."""
        self._path = None
        self._go_on()

    def _stop(self) -> None:
        """Until there is nothing that runs: a process that is about to be stopped may start another one."""
        for _ in range(10):
            running = [pid for pid in self._pids() if _stat(pid)[0] not in STANDS_STILL + HAS_ENDED]
            for pid in running:
                began = _stat(pid)[1]
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
                    self._stopped[pid] = began
            if not running:
                return

    def _go_on(self) -> None:
        """Those that others have stopped, and a task that is to be suspended, stand still on."""
        if not (self._folder / SUSPENDED).exists():
            for pid, began in self._stopped.items():
                if _stat(pid)[1] == began:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGCONT)
        self._stopped, self._left_s = {}, None


class _Timer:
    """Sends SIGALRM at a moment of `boottime_s`, after a sleep of the machine at once."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._id = ctypes.c_void_p()
        create = getattr(self._libc, "timer_create", None)  # elsewhere in a C library of before 2021
        self._there = create is not None and create(time.CLOCK_BOOTTIME, None, ctypes.byref(self._id)) == 0
        self._set_s = 0.0

    def ring_at(self, due_s: float) -> bool:
        """Whether it will, at `due_s` or at once if that has passed."""
        if self._there and due_s != self._set_s:
            nanoseconds = max(0, int(due_s * 1e9)) + 1000  # not a moment too early: it rings once
            when = (ctypes.c_long * 4)(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
            self._there = self._libc.timer_settime(self._id, 1, ctypes.byref(when), None) == 0  # 1: TIMER_ABSTIME
            self._set_s = due_s
        return self._there


def _stat(pid: int) -> tuple[str, str]:
    """State and beginning of a process; it has ended where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "X", ""


def _watch(
    ranks: dict[int, subprocess.Popen[bytes]], spec: dict[str, Any], folder: Path, lease: Lease
) -> dict[str, Any] | None:
    """Wait for all ranks; stop the rest when one ends badly, the time is over, or this process is told to end.

    Returns:
        How the task has ended; None when it was interrupted.
    """
    deadline = time.monotonic() + spec["time_limit_s"] if spec["time_limit_s"] else None
    running, first_bad, over_time, interrupted, given_up = dict(ranks), None, False, False, False
    escalation: list[tuple[float, int]] = []
    kills_for_memory, memory_signs = _kills_for_memory(), False
    while running:
        for rank, process in list(running.items()):
            code = process.poll()
            if code is not None:
                del running[rank]
                if code != 0 and first_bad is None:
                    first_bad = (rank, code)
                    memory_signs = _kills_for_memory() > kills_for_memory
        _reap(running)
        kills_for_memory = _kills_for_memory()
        now = time.monotonic()
        if first_bad is not None and running and not escalation:
            escalation = [(now + PEER_GRACE_S, signal.SIGTERM), (now + 2 * PEER_GRACE_S, signal.SIGKILL)]
        if deadline is not None and now >= deadline and not over_time:
            over_time, escalation = True, [(now, signal.SIGTERM), (now + PEER_GRACE_S, signal.SIGKILL)]
        if running and lease.look():
            given_up = True
            _signal_all(running, signal.SIGKILL)
        while escalation and now >= escalation[0][0]:
            _signal_all(running, escalation.pop(0)[1], goes_on=not lease.is_out)
        if running:
            wait_s = lease.wait_s()
            look = None if wait_s is None else time.monotonic() + wait_s
            times = [deadline if not over_time else None, escalation[0][0] if escalation else None, look]
            told = _sleep_until(times, now)
            if told and not interrupted:
                lease.let_go()
                now = time.monotonic()  # that of before has waited as long as nothing happened
                interrupted, escalation = True, [(now, signal.SIGTERM), (now + 2 * PEER_GRACE_S, signal.SIGKILL)]
    if given_up:
        return _result(None, signal.SIGKILL, "lease_expired", stderr_tail=GIVEN_UP)
    # What ends everything may have reached the ranks a moment earlier.
    interrupted = interrupted or signal.SIGTERM in signal.sigpending()
    return None if interrupted and first_bad is not None else _verdict(first_bad, over_time, folder, memory_signs)


def _kills_for_memory() -> int:
    """How many processes the kernel has killed for memory since the node started, in whichever cgroup; 0: not known.

    Looked at anew at each wake-up, a minute apart at most, so that an old kill is no sign for a new end.
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _sleep_until(times: list[float | None], now: float) -> bool:
    """Until the next deadline, a child's end or SIGTERM, whichever comes first. Returns whether it was SIGTERM."""
    wait_s = min([t - now for t in times if t is not None], default=60.0)
    heard = signal.sigtimedwait(HEARD, max(0.0, min(wait_s, 60.0)))
    return heard is not None and heard.si_signo == signal.SIGTERM


def _signal_all(running: dict[int, subprocess.Popen[bytes]], number: int, *, goes_on: bool = True) -> None:
    for process in running.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            if goes_on:  # else it does not hear what it can take
                os.killpg(process.pid, signal.SIGCONT)


def _verdict(first_bad: tuple[int, int] | None, over_time: bool, folder: Path, memory_signs: bool) -> dict[str, Any]:
    if first_bad is None:
        return _result(0, None, "exited")
    rank, code = first_bad
    tail = _tail(folder / f"rank-{rank}.err")
    exit_code, number = (code, None) if code > 0 else (None, -code)
    outcome = "time_limit" if over_time else "signalled" if number is not None else "exited"
    return _result(exit_code, number, outcome, rank=rank, stderr_tail=tail) | {"memory_signs": memory_signs}


def _result(
    exit_code: int | None, number: int | None, outcome: str, *, rank: int | None = None, stderr_tail: str = ""
) -> dict[str, Any]:
    return {"exit_code": exit_code, "signal": number, "outcome": outcome, "rank": rank, "stderr_tail": stderr_tail}


def _tail(path: Path) -> str:
    """Empty where the task has put something else in the file's place: no pipe is waited for, no device read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return ""
    with open(descriptor, "rb") as file:
        file.seek(max(0, found.st_size - STDERR_TAIL_BYTES))
        return file.read(STDERR_TAIL_BYTES).decode(errors="replace").replace("\0", "\ufffd")


def leave_result(folder: Path, version: int, result: dict[str, Any]) -> None:
    """Write `exit.json`, however long the disk takes to have room for it, or to work again."""
    held, pause_s = False, FIRST_RETRY_S
    while folder.is_dir():  # else nobody asks any more
        try:
            _leave(folder / "exit.json", version, result)
            return
        except OSError as error:
            if not held:
                _hold(_encoded(version, result))
                held = True
                with contextlib.suppress(OSError):
                    print(f"the result stays in memory until it can be written: {error}", file=sys.stderr, flush=True)
        # SIGTERM changes nothing: without this process the result would be gone, and the task would run again.
        signal.sigtimedwait(HEARD, pause_s)
        pause_s = min(LONGEST_RETRY_S, 1.5 * pause_s)


def _hold(record: bytes) -> None:
    """Have agents read a record from this process."""
    in_memory = os.memfd_create(HELD_NAME, os.MFD_CLOEXEC)
    os.write(in_memory, record)
    fcntl.fcntl(in_memory, fcntl.F_DUPFD_CLOEXEC, HELD)
    os.close(in_memory)


def _leave(path: Path, version: int, content: dict[str, Any]) -> None:
    """Write atomically and durably, in the room that was kept for it: a reader sees all of it or nothing.

    Raises:
        OSError: it cannot be written now.
    """
    room = path.with_suffix(".room")
    for place in (room, path):
        if place.is_dir() and not place.is_symlink():  # the task has put it there
            place.rename(place.with_name(f"{place.name}.{time.time_ns()}"))
    with open(_opened(room), "r+b", buffering=0) as file:
        record = memoryview(_encoded(version, content))
        while record:
            record = record[file.write(record) :]
        file.truncate()  # shorter at the end alone: up to here an attempt that failed can be made again
        os.fsync(file.fileno())
    room.rename(path)


def _opened(room: Path) -> int:
    """The file with the room; a new one where there is none, or the task has put something else in its place."""
    with contextlib.suppress(OSError):
        descriptor = os.open(room, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return descriptor
        os.close(descriptor)
    room.unlink(missing_ok=True)
    return os.open(room, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _encoded(version: int, content: dict[str, Any]) -> bytes:
    return json.dumps(content if version == 1 else {"version": version, **content}).encode()
