"""A task's folder: how it is filled before the start, and what can be seen in it afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_agent.core.seen import Ended, Seen
from torch_agent.harness.control import create_control

SHIM = Path(__file__).with_name("shim.py")


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
        notes = [json.loads(path.read_text()) for path in self.path.glob("fetched-*.json")]
        return sum(note["state_bytes"] for note in notes), max((note["took_s"] for note in notes), default=0.0)

    def drop_states(self) -> None:
        """Remove states that nobody will take over any more, also those that have not come in whole."""
        for path in self.pages.glob("state.rank-*"):
            path.unlink(missing_ok=True)

    def outputs(self) -> list[Path]:
        """The files of output, by rank and stream."""
        return sorted(p for p in self.path.glob("rank-*") if p.suffix in (".out", ".err"))

    def start_shim(self, spec: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start the task's shim in a session of its own, so that it outlives the agent.

        A second shim for the same folder ends at once: the first holds the lock.
        """
        self.make()
        _write(self.path / "spec.json", spec)
        with (self.path / "shim.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", str(SHIM), str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def refuse(self, why: str) -> None:
        """Leave the result of a task that cannot be started."""
        self.make()
        ended = {"exit_code": None, "signal": None, "outcome": "launch_failed", "rank": None, "stderr_tail": why}
        _write(self.path / "exit.json", ended)

    def look(self, *, starting: bool) -> Seen:
        """What is to be seen of the task.

        Args:
            starting: a shim was started and may not have come so far as to take the lock.
        """
        pid = self._leader()
        ended = self._ended()
        if ended is None and pid is not None and not self._shim_lives():
            ended = self._ended() or self._lost()
        launched = starting or pid is not None or self._shim_lives()
        return Seen(launched=launched, pid=pid, ended=ended)

    def signal_ranks(self, *numbers: int) -> None:
        """Send signals to every process group of the task."""
        for pid in self._ranks():
            for number in numbers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number)

    def processes(self) -> list[int]:
        """All that are in the task's process groups, ascending."""
        groups = self._ranks()
        return sorted(int(path.name) for path in Path("/proc").glob("[0-9]*") if _group_of(path) in groups)

    def shim_pid(self) -> int | None:
        """The shim's process, once it has started the ranks."""
        found = _read(self.path / "shim.json")
        return int(found["pid"]) if found else None

    def _lost(self) -> Ended | None:
        """The shim has died without a word; the kernel has killed the ranks with it, we kill what they left.

        None while one of them is still on its way out, and has its memory.
        """
        self.signal_ranks(signal.SIGKILL)
        if any(lives(pid) for pid in self._ranks()):
            return None
        return Ended(exit_code=None, signal=signal.SIGKILL, outcome="lost")

    def _leader(self) -> int | None:
        ranks = self._ranks()
        return ranks[0] if ranks else None

    def _ranks(self) -> list[int]:
        found = _read(self.path / "shim.json")
        return list(found["ranks"].values()) if found else []

    def _ended(self) -> Ended | None:
        found = _read(self.path / "exit.json")
        return Ended(**found) if found else None

    def _shim_lives(self) -> bool:
        try:
            with (self.path / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False


def _group_of(process: Path) -> int:
    """0 when it has ended meanwhile."""
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[2])
    except OSError:
        return 0


def lives(pid: int) -> bool:
    """Whether the process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".agent")
    temporary.write_text(json.dumps(content))
    temporary.chmod(0o600)
    temporary.rename(path)
