"""A command beside the processes of a task, or a terminal there."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libs.contracts.sessions import (
    CHUNK_BYTES,
    STDERR,
    STDIN,
    STDOUT,
    EndOfInput,
    Exited,
    FromClient,
    Notice,
    Resize,
    Signal,
    Start,
    Terminal,
    from_client,
)
from torch_agent.processes import Table, tell
from torch_agent.sessions.entering import Process, Room
from torch_agent.sessions.websocket import FULL_BYTES, HasDescriptor, WebSocket, ready

log = logging.getLogger(__name__)

KEEPER = Path(__file__).with_name("keeper.py")
LOOK_S = 0.25
"""How often a session looks whether its task was suspended or goes on."""
END_OF_TRANSMISSION = b"\x04"
TASK_ENDED = "the job's processes on this node have ended"
TASK_STOPPED = "the job's processes on this node are being stopped, and the session's with them"


@dataclass(eq=False)
class Pipe:
    """One end of a stream of the command, or the terminal, which is its input and its output."""

    descriptor: int
    channel: int
    pending: bytearray = field(default_factory=bytearray)
    ends: bool = False
    """Whether it is to be closed when nothing is pending any more."""

    def fileno(self) -> int:
        """For select."""
        return self.descriptor

    def read(self) -> bytes:
        """Nothing at its end; that of a terminal is an error."""
        try:
            return os.read(self.descriptor, CHUNK_BYTES)
        except OSError:
            return b""

    def write(self) -> bool:
        """As much as goes. Returns whether the reader is still there."""
        try:
            del self.pending[: os.write(self.descriptor, self.pending)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


class Running:
    """One session from its start to its end; runs in a thread of its own."""

    def __init__(self, client: WebSocket, room: Room, start: Start, spec: dict[str, Any]) -> None:
        self._client, self._room = client, room
        self._terminal = start.terminal
        self._closing = ExitStack()
        self._input: Pipe | None = None
        self._outputs: list[Pipe] = []
        self._result: dict[str, Any] | None = None
        self._told, self._ending, self._stood_still = b"", False, False
        self._keeper, self._control = self._launch(spec)
        self._pid = self._keeper.pid

    def run(self, early: list[str | bytes]) -> None:
        """Until the command, the client or the task has ended. None of the session's processes is left then.

        Args:
            early: messages that have come with the first one.
        """
        with self._closing:
            try:
                for message in early:
                    self._take(message)
                while not self._client.is_over and not (self._result is not None and not self._outputs):
                    self._turn()
            finally:
                self._end()
                self._keeper.wait()
            self._client.send(self._exited())

    def _turn(self) -> None:
        readers: list[HasDescriptor] = [self._client, *self._room.living]
        if self._input is not None and len(self._input.pending) >= FULL_BYTES:
            readers.remove(self._client)
        if self._result is None:
            readers.append(self._control)
        if not self._client.is_full:
            readers += self._outputs
        writers: list[HasDescriptor] = [self._client] if self._client.waits else []
        if self._input is not None and self._input.pending:
            writers.append(self._input)
        readable, writable = ready(readers, writers, LOOK_S)
        if self._client in writable:
            self._client.flush()
        if self._input is not None and self._input in writable:
            self._write(self._input)
        for one in readable:
            self._read(one)
        self._follow_the_task()

    def _read(self, one: HasDescriptor) -> None:
        if isinstance(one, Pipe):
            data = one.read()
            if data:
                self._client.send_bytes(one.channel, data)
            else:
                self._outputs.remove(one)
        elif isinstance(one, Process):
            self._room.ended(one)
        elif one is self._control:
            self._hear()
        else:
            for message in self._client.receive():
                self._take(message)

    def _take(self, message: str | bytes) -> None:
        """A message of the client."""
        if isinstance(message, bytes):
            self._take_input(message)
        else:
            self._obey(from_client.decode(message))

    def _take_input(self, message: bytes) -> None:
        if self._input is not None and not self._input.ends and message[:1] == bytes([STDIN]):
            self._input.pending += message[1:]
            self._write(self._input)

    def _write(self, pipe: Pipe) -> None:
        if not pipe.write() or (pipe.ends and not pipe.pending):
            self._drop_input()

    def _drop_input(self) -> None:
        """The command sees the end of its input, or has left it unread."""
        if self._input is not None and self._terminal is None:
            os.close(self._input.descriptor)
        self._input = None

    def _obey(self, message: FromClient) -> None:
        if isinstance(message, Resize) and self._outputs and self._terminal is not None:
            _resize(self._outputs[0].descriptor, message)
        elif isinstance(message, Signal):
            number = signal.Signals[f"SIG{message.name}"]
            with suppress(OSError):
                self._control.sendall(json.dumps({"signal": number}).encode() + b"\n")
        elif isinstance(message, EndOfInput) and self._input is not None:
            if self._terminal is not None:
                self._input.pending += END_OF_TRANSMISSION
            else:
                self._input.ends = True
            self._write(self._input)

    def _hear(self) -> None:
        """The keeper says how the command has ended, or dies without a word."""
        try:
            data = self._control.recv(CHUNK_BYTES)
        except ConnectionError:
            data = b""
        self._told += data
        if b"\n" in self._told:
            self._result = json.loads(self._told.partition(b"\n")[0])
        elif not data:
            self._result = {"signal": int(signal.SIGKILL)}

    def _follow_the_task(self) -> None:
        if self._room.is_empty and not self._ending:
            self._end()
        still = self._room.stands_still
        if still != self._stood_still and not self._ending:
            # Its processes are told with the task's own; what has just begun is told here.
            self._stood_still = still
            tell(lambda: Table().below([self._pid]), signal.SIGSTOP if still else signal.SIGCONT)
            word = "is suspended, and this session with it" if still else "goes on"
            self._client.send(Notice(text=f"{self._room.task.order.job_id} {word}"))

    def _end(self) -> None:
        """The keeper ends all processes when it sees this."""
        self._ending = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def _exited(self) -> Exited:
        result = self._result or {}
        note = str(result.get("error", ""))
        if self._room.is_empty:
            note = TASK_ENDED
        elif self._room.is_being_stopped and result.get("exit_code") != 0:
            note = TASK_STOPPED
        return Exited(exit_code=result.get("exit_code"), signal=result.get("signal"), note=note)

    def _launch(self, spec: dict[str, Any]) -> tuple[subprocess.Popen[bytes], socket.socket]:
        streams, left = self._streams()
        ours, theirs = socket.socketpair()
        self._closing.callback(ours.close)
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-I", str(KEEPER), str(theirs.fileno()), str(self._room.folder)],
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                pass_fds=(theirs.fileno(),),
                cwd="/",
            )
        except BaseException:
            self._closing.close()
            raise
        finally:
            theirs.close()
            for descriptor in left:
                os.close(descriptor)
        with suppress(OSError):  # a keeper that has ended is noticed
            ours.sendall(json.dumps(spec).encode() + b"\n")
        return keeper, ours

    def _streams(self) -> tuple[list[int], set[int]]:
        """The command's three streams, and what is to be closed here once it has them."""
        if self._terminal is not None:
            master, slave = pty.openpty()
            _resize(master, self._terminal)
            self._closing.callback(os.close, master)
            os.set_blocking(master, False)
            self._input = Pipe(master, STDOUT)
            self._outputs = [self._input]
            return [slave] * 3, {slave}
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = (os.pipe() for _ in range(3))
        for descriptor in (in_write, out_read, err_read):
            os.set_blocking(descriptor, False)
        self._closing.callback(self._drop_input)
        self._closing.callback(os.close, out_read)
        self._closing.callback(os.close, err_read)
        self._input, self._outputs = Pipe(in_write, STDIN), [Pipe(out_read, STDOUT), Pipe(err_read, STDERR)]
        return [in_read, out_write, err_write], {in_read, out_write, err_write}


def _resize(descriptor: int, size: Terminal | Resize) -> None:
    """The kernel tells the processes in the foreground (SIGWINCH)."""
    with suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
