"""Runs a program of the corpus in a folder of its own, and records what it printed and how it ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from libs.bus.local_broker.network import free_port
from tests.corpus.manifest import Program
from tests.corpus.needs import MEMORY_CGROUPS, without_privileges

OTHERS_S = 15.0
"""So long the other ranks may take to notice that one has failed; then they are stopped, as launchers do."""
POLL_S = 0.02
FOLDER, PYTHON = "/workspace/job", "/opt/venv"
"""What stands in a log for the folder of the run and for the interpreter's."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A record of failures/1, with its label."""

    id: str
    log: str
    exit_code: int
    signal: str | None
    reason: str
    deciding_line: str | None
    note: str = ""
    origin: str = "run"


class NotAsMeant(Exception):
    """A program did not fail in the way that it was written for."""


def record(program: Program, store: str) -> Recorded:
    """Run a program.

    Args:
        program: which.
        store: the URL of the server that plays stores.

    Raises:
        NotAsMeant: it ended well, took too long, or its log lacks the line that its label names.
    """
    folder = Path(tempfile.mkdtemp(prefix="corpus-"))
    try:
        _lay_out(program, folder)
        with _cgroup(program) as group:
            code, log = _Gang(program, folder, store, group).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    log = _without_places(log, folder)
    if code == 0:
        raise NotAsMeant(f"it ended well:\n{log}")
    return Recorded(
        id=program.id,
        log=log,
        exit_code=code if code > 0 else 128 - code,
        signal=signal.Signals(-code).name if code < 0 else None,
        reason=program.reasons[0],
        deciding_line=labelled_line(program, log),
        note=program.note,
    )


def _lay_out(program: Program, folder: Path) -> None:
    for name, text in program.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def labelled_line(program: Program, log: str) -> str | None:
    """The line that a program's label names: one that is it, else one that has it; None where the label names none.

    Raises:
        NotAsMeant: there is no such line.
    """
    if program.line is None:
        return None
    lines = log.splitlines()
    found = next((line for line in lines if line.strip() == program.line), None)
    found = found or next((line for line in lines if program.line in line), None)
    if found is None:
        raise NotAsMeant(f"no line has {program.line!r}:\n{log}")
    return found


def _without_places(log: str, folder: Path) -> str:
    for place, name in ((str(folder), FOLDER), (sys.prefix, PYTHON), (sys.base_prefix, "/opt/python")):
        log = log.replace(place, name)
    return log


@contextmanager
def _cgroup(program: Program) -> Iterator[Path | None]:
    if not program.limit_mb:
        yield None
        return
    group = MEMORY_CGROUPS / f"corpus-{os.getpid()}-{program.id}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(program.limit_mb << 20))
        yield group
    finally:
        group.rmdir()


class _Gang:
    """The processes of a program; alone, where it has one rank."""

    def __init__(self, program: Program, folder: Path, store: str, group: Path | None) -> None:
        self._program = program
        self._lines: list[str] = []
        command = f"echo $$ > {group}/cgroup.procs\n{program.run}" if group else program.run
        env = _environment(program, folder, store)
        port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(program.ranks):
            world = _world(rank, program.ranks, port) if program.ranks > 1 else {}
            self._processes.append(
                subprocess.Popen(
                    ["bash", "-c", command],
                    cwd=folder,
                    env={**env, **world},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def run(self) -> tuple[int, str]:
        """The status of the rank that failed first (negative = by a signal), and the lines of all in order of time."""
        readers = [threading.Thread(target=self._read, args=(rank,)) for rank in range(len(self._processes))]
        for reader in readers:
            reader.start()
        try:
            code = self._wait()
        finally:
            for process in self._processes:
                _kill(process)
            for reader in readers:
                reader.join()
        return code, "".join(self._lines)

    def _read(self, rank: int) -> None:
        stream = self._processes[rank].stdout
        assert stream is not None
        prefix = f"[default{rank}]:" if self._program.ranks > 1 else ""  # as torchrun --tee does
        with stream:
            for line in stream:
                self._lines.append(prefix + line.decode("utf-8", "replace"))

    def _wait(self) -> int:
        deadline = time.monotonic() + self._program.limit_s
        first: int | None = None
        while True:
            codes = [process.poll() for process in self._processes]
            if first is None and (bad := [code for code in codes if code]):
                first = bad[0]
                deadline = min(deadline, time.monotonic() + OTHERS_S)
            if None not in codes:
                return first or 0
            if time.monotonic() > deadline:
                if first is None:
                    raise NotAsMeant(f"it still ran after {self._program.limit_s:.0f} s:\n{''.join(self._lines)}")
                return first
            time.sleep(POLL_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(program: Program, folder: Path, store: str) -> dict[str, str]:
    bin_folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        "PATH": ":".join(bin_folders),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "NO_COLOR": "1",
        "STORE": store,
        "PLAIN": without_privileges(),
        **program.env,
    }


def _world(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
