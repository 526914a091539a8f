"""Starts one task and stays with it: the parent of its processes, which outlives the agent.

    python shim.py TASK_FOLDER

Standard library only; reads `spec.json`, and leaves in the same folder:

    lock         held as long as the shim lives
    shim.json    pids of the ranks, once they are started
    exit.json    how the task ended, written when none of its processes is left

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
import signal
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
STDERR_TAIL_BYTES = 4096


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
    result = _watch(ranks, spec, folder)
    for process in ranks.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what the ranks have left behind
    _leave(folder / "exit.json", version, result)
    return 0


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
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if spec["data_limit_bytes"]:
            resource.setrlimit(resource.RLIMIT_DATA, (spec["data_limit_bytes"], spec["data_limit_bytes"]))
        if spec["nice"]:
            os.nice(spec["nice"])

    try:
        for environment in spec["environments"]:
            rank = int(environment["RANK"])
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


def _watch(ranks: dict[int, subprocess.Popen[bytes]], spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Wait for all ranks; stop the rest when one ends badly or the time is over."""
    deadline = time.monotonic() + spec["time_limit_s"] if spec["time_limit_s"] else None
    running, first_bad, over_time = dict(ranks), None, False
    escalation: list[tuple[float, int]] = []
    while running:
        for rank, process in list(running.items()):
            code = process.poll()
            if code is not None:
                del running[rank]
                if code != 0 and first_bad is None:
                    first_bad = (rank, code)
        now = time.monotonic()
        if first_bad is not None and running and not escalation:
            escalation = [(now + PEER_GRACE_S, signal.SIGTERM), (now + 2 * PEER_GRACE_S, signal.SIGKILL)]
        if deadline is not None and now >= deadline and not over_time:
            over_time, escalation = True, [(now, signal.SIGTERM), (now + PEER_GRACE_S, signal.SIGKILL)]
        while escalation and now >= escalation[0][0]:
            _signal_all(running, escalation.pop(0)[1])
        if running:
            _sleep_until([deadline if not over_time else None, escalation[0][0] if escalation else None], now)
    return _verdict(first_bad, over_time, folder)


def _sleep_until(times: list[float | None], now: float) -> None:
    """Until the next deadline or a child's end, whichever comes first."""
    wait_s = min([t - now for t in times if t is not None], default=60.0)
    signal.sigtimedwait([signal.SIGCHLD], max(0.0, min(wait_s, 60.0)))


def _signal_all(running: dict[int, subprocess.Popen[bytes]], number: int) -> None:
    for process in running.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)


def _verdict(first_bad: tuple[int, int] | None, over_time: bool, folder: Path) -> dict[str, Any]:
    if first_bad is None:
        return _result(0, None, "exited")
    rank, code = first_bad
    tail = _tail(folder / f"rank-{rank}.err")
    exit_code, number = (code, None) if code > 0 else (None, -code)
    outcome = "time_limit" if over_time else "signalled" if number is not None else "exited"
    return _result(exit_code, number, outcome, rank=rank, stderr_tail=tail)


def _result(
    exit_code: int | None, number: int | None, outcome: str, *, rank: int | None = None, stderr_tail: str = ""
) -> dict[str, Any]:
    return {"exit_code": exit_code, "signal": number, "outcome": outcome, "rank": rank, "stderr_tail": stderr_tail}


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - STDERR_TAIL_BYTES))
        return file.read().decode(errors="replace").replace("\0", "\ufffd")


def _leave(path: Path, version: int, content: dict[str, Any]) -> None:
    """Write atomically and durably: a reader sees all of it or nothing."""
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        json.dump(content if version == 1 else {"version": version, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # taken by sigtimedwait alone
    sys.exit(main(Path(sys.argv[1])))
