"""Starts the command of one session and stays with it: nothing of a session outlives this process's other end.

    python keeper.py DESCRIPTOR TASK_FOLDER

Standard library only, and what of this package needs no more. The descriptor is a socket to the agent, one JSON object
per line:

    from the agent   {"command", "cwd", "env", "terminal", "data_limit_bytes", "nice", "cgroup"}, then {"signal": N} as
                     often as there are some
    to the agent     {"exit_code": N}, {"signal": N} or {"error": …, "exit_code": N}, once none of the processes is left

When the agent closes its end, on purpose or by its death, every process of the session is ended. Processes that have
left their parent are children of this one (PR_SET_CHILD_SUBREAPER), so none is overlooked; what the command leaves
running when it ends is ended too. All of them belong to the task, which finds them by the name and the last argument of
this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, isolated: the package may be nowhere else
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from torch_agent.cgroups import Cgroup
from torch_agent.membership import KEEPER
from torch_agent.processes import Table, adopt_orphans, wait_for

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
HANGUP_GRACE_S = 1.0
"""Between the polite and the forceful signal."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes, as shells have them."""


class Agent:
    """The other end."""

    def __init__(self, control: socket.socket) -> None:
        self._control, self._rest = control, b""
        self.is_there = True

    def fileno(self) -> int:
        """For select."""
        return self._control.fileno()

    def says(self) -> list[dict[str, Any]]:
        """What has come; waits until something has. Nothing when the agent has closed its end."""
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.is_there = bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, result: dict[str, Any]) -> None:
        """It may be gone."""
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(result).encode() + b"\n")


def main(control: socket.socket) -> None:
    """Run one session to its end."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, KEEPER.encode())
    adopt_orphans()
    agent = Agent(control)
    said: list[dict[str, Any]] = []
    while not said and agent.is_there:
        said = agent.says()
    if not said:
        return
    try:
        pid = _start(said[0], libc)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        missing = isinstance(error, OSError) and error.errno == errno.ENOENT
        command, cwd = said[0]["command"][0], said[0]["cwd"]
        code = NOT_FOUND if missing else NOT_EXECUTABLE
        agent.tell({"error": f"cannot start {command!r} in {cwd}: {error}", "exit_code": code})
        return
    _leave_streams()
    status = _ended(pid, agent)
    status = _end_all(pid, status)
    code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
    agent.tell({"exit_code": code} if code >= 0 else {"signal": -code})


def _start(spec: dict[str, Any], libc: ctypes.CDLL) -> int:
    def in_the_child() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if spec["cgroup"]:
            Cgroup(Path(spec["cgroup"])).enter()
        if spec["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if spec["data_limit_bytes"]:
            resource.setrlimit(resource.RLIMIT_DATA, (spec["data_limit_bytes"], spec["data_limit_bytes"]))
        if spec["nice"]:
            os.nice(spec["nice"])

    process = subprocess.Popen(
        spec["command"], cwd=spec["cwd"], env=spec["env"], start_new_session=True, preexec_fn=in_the_child
    )
    process.returncode = 0  # it is waited for below
    return process.pid


def _leave_streams() -> None:
    """Else the agent would not see their ends."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _ended(pid: int, agent: Agent) -> int | None:
    """Wait for the command's end and pass signals on. Returns its status; None when the agent has closed its end."""
    process = os.pidfd_open(pid)
    try:
        while agent.is_there:
            ready, _, _ = select.select([process, agent.fileno()], [], [])
            if process in ready:
                return os.waitpid(pid, 0)[1]
            for order in agent.says():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, order["signal"])
    finally:
        os.close(process)
    return None


def _end_all(pid: int, status: int | None) -> int | None:
    """End what is left. Returns the command's status."""
    deadline, number = time.monotonic() + HANGUP_GRACE_S, signal.SIGHUP
    told: set[int] = set()
    while left := Table().below([os.getpid()]):
        if time.monotonic() >= deadline:
            number = signal.SIGKILL
        for one in left:
            if number == signal.SIGKILL or one not in told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)
        told.update(left)
        wait_for(left[0], max(0.01, deadline - time.monotonic()))
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            status = found[1] if found[0] == pid else status
    return status


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
