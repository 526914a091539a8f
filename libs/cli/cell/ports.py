"""Whether the gateway's port is free; where it is not, what holds it."""

from __future__ import annotations

import shlex
import socket

import psutil

from libs.cli.cell.errors import CellError

LONGEST_COMMAND = 120


def refuse_taken(port: int, host: str = "127.0.0.1") -> None:
    """Make sure that the gateway can listen.

    A gateway without its port would be started again and again, and clients would talk to the port's holder.

    Raises:
        CellError: another process has the port; the message says which, and the state directory of its cell where it
            is a gateway of this user's.
    """
    with socket.socket() as probe:
        # As servers do: connections of an earlier gateway that have not timed out yet are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CellError(
                f"port {port} cannot be used: {error.strerror}; {holder_of(port)}; "
                f"expected a free port for the gateway  try: --port {port + 1}"
            ) from error


def holder_of(port: int) -> str:
    """What listens on the port, in words."""
    try:
        listening = [
            found.pid
            for found in psutil.net_connections("tcp")
            if found.status == psutil.CONN_LISTEN and found.laddr.port == port
        ]
        pid = next((pid for pid in listening if pid is not None), None)
        if pid is None:
            return "a process that cannot be seen from here holds it" if listening else "no process is seen to hold it"
        return _described(psutil.Process(pid))
    except psutil.Error:  # it has ended meanwhile, or /proc is closed to this user
        return "a process that cannot be seen from here holds it"


def _described(process: psutil.Process) -> str:
    command = process.cmdline()
    if "services.gateway" in command:
        try:
            environment = process.environ()
        except psutil.AccessDenied:  # another user's
            environment = {}
        if state_dir := environment.get("SANJAYA_STATE_DIR"):
            cell = environment.get("SANJAYA_CELL", "local")
            return f"it is held by another cell, {cell!r} at {state_dir} (process {process.pid})"
    return f"it is held by process {process.pid} ({shlex.join(command)[:LONGEST_COMMAND]})"
