"""Drives a script with a Job as an agent would: through the control file, the pages, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torch_agent.harness import inject_path
from torch_agent.harness.control import ask_to_save, create_control, current_turn, turn_to
from torch_agent.harness.page import Handover, PageReading
from torch_agent.pages import pages

SCRIPT = "job_script.py"
"""Or another one beside it that takes a folder."""
PATIENCE_S = 240.0


class JobProcess:
    """One attempt at a job, of one or several ranks; each attempt has a folder of its own."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        script: str = SCRIPT,
        world_size: int = 1,
        port: int = 0,
        takes_over: bool = False,
        **environment: str,
    ) -> None:
        """Start it.

        Args:
            folder: of the job: losses, and where it stops.
            script: what it runs.
            port: where the ranks meet.
            takes_over: it is to wait for a state.
        """
        self.folder, self.pages, self.states = folder, folder / name / "pages", folder / name / "states"
        self.pages.mkdir(parents=True)
        self.states.mkdir()
        create_control(self.pages)
        given = {"SANJAYA_HARNESS_DIR": str(self.pages), "WORLD_SIZE": str(world_size)}
        if takes_over:
            turn_to(self.pages, suspend=True)
            given["SANJAYA_RESTORES"] = str(self.states)
        if port:
            given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self._script, self.stderr = script, folder / name / "stderr"
        self._ranks = [self._start({**given, **environment, "RANK": str(rank)}) for rank in range(world_size)]

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.stderr.open("ab") as stderr:
            return start_by_hand(self.folder, self._script, stderr=stderr.fileno(), **environment)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it; a process that ends meanwhile will not bring it about."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            ended = [rank.returncode for rank in self._ranks if rank.poll() is not None]
            assert not ended and time.monotonic() < deadline, (ended, self.stderr.read_text())
            time.sleep(0.01)

    def stops_after(self, number: int) -> None:
        """Wait until it has trained on so many batches, and waits."""
        stopped = [self.folder / f"stopped-{number}.{rank}" for rank in range(len(self._ranks))]
        self.until(lambda: all(path.exists() for path in stopped))

    def goes_on_after(self, number: int) -> None:
        """Let it go on from there."""
        (self.folder / f"go-{number}").touch()

    def stands_still_after(self, number: int) -> None:
        """Ask it in the middle of that batch, and wait until it stands still."""
        self.stops_after(number)
        turn_to(self.pages, suspend=True)
        self.goes_on_after(number)
        self.acknowledges()

    def resume(self) -> None:
        """Have it go on, and wait until it does."""
        turn_to(self.pages, suspend=False)
        self.acknowledges()

    def acknowledges(self) -> None:
        """Wait until all ranks have acknowledged the turn in force."""
        turn = current_turn(self.pages)
        self.until_all(lambda page: page.acknowledged.turn == turn)

    def until_all(self, condition: Callable[[PageReading], bool]) -> None:
        """Wait until every rank's page says so."""

        def holds() -> bool:
            found = pages(self.pages)
            return len(found) == len(self._ranks) and all(map(condition, found))

        self.until(holds)

    @property
    def handovers(self) -> list[Handover]:
        """How far each rank is with a move."""
        return [page.handover for page in pages(self.pages)]

    def save(self) -> list[Handover]:
        """Ask for the state, and wait for the answer."""
        request = ask_to_save(self.pages)
        self.until_all(lambda page: page.handover.saved == request)
        return self.handovers

    def saved(self) -> list[bytes]:
        """Each rank's state, as it is in its memory."""
        found = pages(self.pages)
        return [Path(f"/proc/{page.pid}/fd/{page.handover.save_fd}").read_bytes() for page in found]

    def hand_over(self, destination: JobProcess) -> None:
        """Save, give the state to the other process, and end this one."""
        self.save()
        destination.receive(self.saved())
        self.kill()
        destination.resume()

    def receive(self, states: list[bytes]) -> None:
        """Give it the states that it waits for, and wait until it has taken them over."""
        self.until_all(lambda page: page.handover.ready)
        self.put(states)
        self.until_all(lambda page: page.handover.restored)
        self.acknowledges()

    def put(self, states: list[bytes]) -> None:
        """Let the states appear where it waits for them."""
        for rank, state in enumerate(states):
            part = self.states / f"part.{rank}"
            part.write_bytes(state)
            part.rename(self.states / f"state.rank-{rank}")

    def signal(self, number: int) -> None:
        """Send it to the process groups, as an agent does."""
        for rank in self._ranks:
            os.killpg(rank.pid, number)

    def kill(self) -> None:
        """End what has not ended."""
        for rank in self._ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
        self.ended()

    def ended(self) -> list[int]:
        """Wait for the end. Returns the exit statuses."""
        return [rank.wait(PATIENCE_S) for rank in self._ranks]


def start_by_hand(
    folder: Path, script: str = SCRIPT, stderr: int | None = None, **environment: str
) -> subprocess.Popen[bytes]:
    """The script with no agent around it, unless the environment says that there is one."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SANJAYA_")}
    path = os.pathsep.join((inject_path(), os.environ.get("PYTHONPATH", "")))
    given = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **environment}
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder)]
    return subprocess.Popen(command, env={**inherited, **given}, stderr=stderr, start_new_session=True)
