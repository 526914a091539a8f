"""Commands that prepare an environment: each runs to its end, and its output is added to that of the job."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from torch_agent.membership import TASK_VARIABLE, kill_marked
from torch_agent.shim import PR_SET_PDEATHSIG

PREFIX = "[setup] "
"""Of each line that is added to the job's output."""
_TAIL_LINES = 20
_CHUNK = 1 << 16
_LONGEST_LINE = 8 * 1024


class SetupFailed(Exception):
    """The command has not prepared the environment; the message ends with the line that says why."""


class Commands:
    """The commands of one setup, one after the other."""

    def __init__(self, cwd: Path, mark: str, output: Path) -> None:
        """
        Args:
            cwd: where they run.
            mark: is in the environment of all their processes, which are found by it.
            output: the file that gets what they write.
        """
        self._cwd, self._mark, self._output = cwd, mark, output
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    async def run(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Run a command to its end, and end what it has left running.

        Raises:
            SetupFailed: it does not start, or ended badly.
        """
        # The pipe is not asyncio's own: `wait` would last until all processes that hold the pipe have ended, and so
        # would a start that is cancelled.
        reading, writing = os.pipe()
        with open(writing, "wb", buffering=0) as end:
            source, transport = await _source(reading)
            with contextlib.closing(transport):
                process = await self._started(command, environment, end)
                end.close()  # what the command has started holds the last copies
                code = await self._ended(process, source)
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            last = f": {self._tail[-1]}" if self._tail else ""
            before = "".join(f"{line}\n" for line in self._tail)
            raise SetupFailed(f"{before}setup ended with {how}{last}")

    async def _started(
        self, command: list[str], environment: Mapping[str, str], end: BinaryIO
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=self._cwd,
                env={**environment, TASK_VARIABLE: self._mark, "SANJAYA_HARNESS": "0"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=end,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_the_agent,
            )
        except OSError as error:
            raise SetupFailed(f"{command[0]} in {self._cwd}: {error}") from error

    async def _ended(self, process: asyncio.subprocess.Process, source: asyncio.StreamReader) -> int:
        """The exit status, when all that the command has started has ended and what it wrote is copied."""
        copying = asyncio.create_task(self._copied(source))
        try:
            code = await process.wait()
            await asyncio.to_thread(kill_marked, self._mark)
            await copying
            return code
        finally:
            copying.cancel()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    async def _copied(self, source: asyncio.StreamReader) -> None:
        """Add what comes to the output, line by line with the prefix."""
        rest = b""
        with self._output.open("ab") as file:
            while data := await source.read(_CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    lines, rest = [*lines, rest], b""
                self._add(file, lines)
                file.flush()
            self._add(file, [rest] if rest else [])

    def _add(self, file: BinaryIO, lines: list[bytes]) -> None:
        for line in lines:
            file.write(PREFIX.encode() + line + b"\n")
            if text := line.decode(errors="replace").strip():
                self._tail.append(text)


def say(output: Path, text: str) -> None:
    """Add lines to the job's output."""
    with output.open("a") as file:
        file.write("".join(f"{PREFIX}{line}\n" for line in text.splitlines()))


async def _source(reading: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """What comes from a pipe, and what closes it."""
    source = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), os.fdopen(reading, "rb", buffering=0)
    )
    return source, transport


def _die_with_the_agent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
