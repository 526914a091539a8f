"""Starts one task and stays with it: the parent of its processes, which outlives the agent.

    python shim.py TASK_FOLDER

Standard library only; reads `spec.json`, and leaves in the same folder:

    lock         held as long as the shim lives
    shim.json    pids of the ranks, once they are started
    exit.json    how the task ended, written when none of its processes is left

Told to end (SIGTERM: a machine that shuts down, a service manager or a container that ends everything in it), it tells
the ranks to, so that they save what they can, and leaves no `exit.json` unless they have done all their work: to the
next agent the task was interrupted, and has not failed.

The records (records.py) have the version of the spec: the agent that wrote it is to read them. When the shim dies, the
kernel kills the ranks with it (PR_SET_PDEATHSIG): a task never runs unwatched.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VERSION = 2
"""Of the records in the folder; version 1 does not say it."""
PR_SET_PDEATHSIG = 1
PEER_GRACE_S = 5.0
"""How long the other ranks may go on after one has ended badly, before each of the two signals."""
LEFT_GRACE_S = 60.0
"""How long processes may go on when SIGTERM has ended their starter before them: a batch script's shell ends at once,
its ranks save what they have done. The agent kills them sooner, at the end of the grace of its stop."""
KILLED_LOOK_S = 1.0
KILLED_WAIT_S = 10.0
"""How long a shim waits for a process that it has killed: a driver may take seconds to free the memory of its GPU.
An agent waits shorter, because everything else waits for it."""
STDERR_TAIL_BYTES = 4096
HEARD = (signal.SIGCHLD, signal.SIGTERM)
"""Taken by sigtimedwait alone."""
TASK_VARIABLE = "SANJAYA_HARNESS_DIR"
"""All processes of a task have it in their environment, with the same value; those of no other task have."""


class CannotStart(Exception):
    """The task's processes cannot be started; the message says why."""


def main(folder: Path) -> int:
    """Run the task described in `folder` to its end. Returns 0 unless another shim has the task."""
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1
    if (folder / "exit.json").exists():
        return 0
    version = VERSION
    try:
        spec = _spec(folder / "spec.json")
        version = spec.get("version", 1)
        ranks = _start(spec, folder)
    except CannotStart as error:
        _leave(folder / "exit.json", version, _result(None, None, "launch_failed", stderr_tail=str(error)))
        return 0
    pids = {str(rank): process.pid for rank, process in ranks.items()}
    _leave(folder / "shim.json", version, {"pid": os.getpid(), "ranks": pids})
    result = _watch(ranks, spec, folder)  # None: interrupted
    mark = spec["environments"][0].get(TASK_VARIABLE, "")
    if result is None or result["signal"] == signal.SIGTERM:
        told_all = result is None or result["outcome"] == "time_limit"
        _wait_for_what_is_left(mark, PEER_GRACE_S if told_all else LEFT_GRACE_S)
    _kill_what_is_left(ranks, mark)
    if result is not None:
        _leave(folder / "exit.json", version, result)
    return 0


def members(mark: str) -> list[int]:
    """The living processes of a task, ascending; launchers start their ranks in process groups of their own.

    Args:
        mark: the value of `TASK_VARIABLE` of this task.
    """
    wanted, found = f"{TASK_VARIABLE}={mark}".encode(), []
    for entry in os.scandir("/proc") if mark else ():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(entry.name))
    return sorted(found)


def _wait_for_what_is_left(mark: str, grace_s: float) -> None:
    deadline = time.monotonic() + grace_s
    while (left := members(mark)) and (wait_s := deadline - time.monotonic()) > 0:
        _wait_for(left[0], wait_s)


def _kill_what_is_left(ranks: dict[int, subprocess.Popen[bytes]], mark: str) -> None:
    while kill_members(mark, KILLED_WAIT_S):  # again, because one that is being killed may have started another
        pass
    for process in ranks.values():  # afterwards: what this kills is not waited for
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def kill_members(mark: str, wait_s: float = KILLED_LOOK_S) -> bool:
    """Kill the processes of a task, and wait until they are gone, with their memory. Returns whether there were any.

    Held by descriptors: a process that is on its way out has no environment any more by which it would be found.

    Args:
        mark: the value of `TASK_VARIABLE` of this task.
        wait_s: for each of them, at most.
    """
    descriptors = []
    for pid in members(mark):
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    for descriptor in descriptors:
        select.select([descriptor], [], [], wait_s)
        os.close(descriptor)
    return bool(descriptors)


def _wait_for(pid: int, wait_s: float) -> None:
    """Until a process that is no child has ended, or so long."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        select.select([descriptor], [], [], wait_s)
        os.close(descriptor)


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


def _start(spec: dict[str, Any], folder: Path) -> dict[int, subprocess.Popen[bytes]]:
    """{global rank: process}; all or none.

    Raises:
        CannotStart: one of them cannot be started.
    """
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    libc = ctypes.CDLL(None, use_errno=True)

    def in_the_child() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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


def _watch(ranks: dict[int, subprocess.Popen[bytes]], spec: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Wait for all ranks; stop the rest when one ends badly, the time is over, or this process is told to end.

    Returns:
        How the task has ended; None when it was interrupted.
    """
    deadline = time.monotonic() + spec["time_limit_s"] if spec["time_limit_s"] else None
    running, first_bad, over_time, interrupted = dict(ranks), None, False, False
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
        kills_for_memory = _kills_for_memory()
        now = time.monotonic()
        if first_bad is not None and running and not escalation:
            escalation = [(now + PEER_GRACE_S, signal.SIGTERM), (now + 2 * PEER_GRACE_S, signal.SIGKILL)]
        if deadline is not None and now >= deadline and not over_time:
            over_time, escalation = True, [(now, signal.SIGTERM), (now + PEER_GRACE_S, signal.SIGKILL)]
        while escalation and now >= escalation[0][0]:
            _signal_all(running, escalation.pop(0)[1])
        if running:
            told = _sleep_until([deadline if not over_time else None, escalation[0][0] if escalation else None], now)
            if told and not interrupted:
                now = time.monotonic()  # that of before has waited as long as nothing happened
                interrupted, escalation = True, [(now, signal.SIGTERM), (now + 2 * PEER_GRACE_S, signal.SIGKILL)]
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


def _signal_all(running: dict[int, subprocess.Popen[bytes]], number: int) -> None:
    for process in running.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
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


def _leave(path: Path, version: int, content: dict[str, Any]) -> None:
    """Write atomically and durably: a reader sees all of it or nothing."""
    temporary = path.with_suffix(".new")
    for place in (temporary, path):
        if place.is_dir() and not place.is_symlink():  # the task has put it there
            place.rename(place.with_name(f"{place.name}.{time.time_ns()}"))
    temporary.unlink(missing_ok=True)  # or a pipe
    with temporary.open("x") as file:
        json.dump(content if version == 1 else {"version": version, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    sys.exit(main(Path(sys.argv[1])))
