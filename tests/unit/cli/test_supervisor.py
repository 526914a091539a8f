"""The supervisor of a cell: when it cannot go on, that is said, and nothing waits for it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellError, CellPlan
from libs.cli.cell.child import QUICK_ENDS, Child
from libs.cli.cell.plan import Command
from libs.cli.cell.ports import refuse_taken
from libs.testing.disks import fill

pytestmark = pytest.mark.timeout(300)


class BrokenPlan(CellPlan):
    """Its only service is a program that does not exist."""

    def services(self) -> list[Command]:
        return [Command("quota", ["/no/such/program"], self.environment())]


def test_a_supervisor_that_fails_ends_the_start_with_a_sentence(tmp_path: Path):
    cell = Cell(BrokenPlan(state_dir=tmp_path, agents=0, gateway_port=free_port()))
    with pytest.raises(CellError, match="the supervisor of the cell has failed") as raised, cell:
        pass
    assert "/no/such/program" in str(raised.value)


NAMED_AT_ITS_END = """
import pathlib, signal, sys
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def end(*_):
    with (folder / "ended").open("a") as file:
        file.write(f"{name} ")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / f"{name} is ready").touch()
while True:
    signal.pause()
"""


class BreaksLater(CellPlan):
    """A service and an agent that are ready for their end, and then a program that does not exist."""

    def services(self) -> list[Command]:
        return [self._named("quota")]

    def agent_commands(self) -> Iterator[Command]:  # type: ignore[override]
        yield self._named("agent-n1")
        while not all((self.state_dir / f"{name} is ready").exists() for name in ("quota", "agent-n1")):
            time.sleep(0.01)
        yield Command("agent-n2", ["/no/such/program"], self.environment())

    def _named(self, name: str) -> Command:
        return Command(name, [sys.executable, "-c", NAMED_AT_ITS_END, str(self.state_dir), name], self.environment())


def test_the_processes_of_a_supervisor_that_fails_end_in_order(tmp_path: Path):
    """The kernel would end them all at once with the thread that has started them."""
    cell = Cell(BreaksLater(state_dir=tmp_path, agents=0, gateway_port=free_port()))
    with pytest.raises(CellError, match="/no/such/program"), cell:
        pass
    assert (tmp_path / "ended").read_text().split() == ["agent-n1", "quota"]
    assert cell.pids() == {}


class GivesUp(CellPlan):
    """Its only service ends at once, with a word."""

    def services(self) -> list[Command]:
        return [Command("quota", ["sh", "-c", "echo no share is left >&2; exit 7"], self.environment())]


def test_a_process_that_gives_up_again_and_again_ends_the_cell_with_its_last_words(tmp_path: Path):
    said: list[str] = []
    cell = Cell(GivesUp(state_dir=tmp_path, agents=0, gateway_port=free_port()), said.append)
    with pytest.raises(CellError, match="quota has ended with status 7") as raised, cell:
        pass
    assert "no share is left" in str(raised.value)
    assert (tmp_path / "logs" / "quota.log").read_text().split("\n") == ["no share is left"] * 3 + [""]
    assert said.count("quota ended with status 7; it is started again") == 2


class EndsWith(CellPlan):
    """Its only service ends at once, with the setting STATUS, until there is a file `go`."""

    def services(self) -> list[Command]:
        script = 'echo x >> "$0/starts"; [ -e "$0/go" ] && exec sleep 60; exit $STATUS'
        return [Command("quota", ["sh", "-c", script, str(self.state_dir)], self.environment())]


def starts(cell: Cell, state_dir: Path, least: int) -> int:
    """How often the service was started, once that was so often."""
    path = state_dir / "starts"
    while not path.exists() or len(path.read_text().split()) < least:
        cell.require_supervisor()
        time.sleep(0.01)
    return len(path.read_text().split())


@contextmanager
def supervised(plan: CellPlan, said: list[str]) -> Iterator[Cell]:
    """A cell that is supervised, and never ready."""
    cell = Cell(plan, said.append)
    cell._work.start()
    try:
        for command in plan.services():
            cell._add(command)
        yield cell
    finally:
        cell.stop()


@pytest.mark.parametrize("status", [69, 1])
def test_a_process_that_ends_for_want_of_room_is_started_again_until_there_is_some(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, status: int
):
    """It says so by its status, or the disk does."""
    monkeypatch.setattr("libs.cli.cell.child.LONGEST_DELAY_S", 0.05)
    plan = EndsWith(state_dir=small_disk, agents=0, gateway_port=free_port(), settings={"STATUS": str(status)})
    said = list[str]()
    (small_disk / "logs").mkdir()
    (small_disk / "starts").write_text("x\n")
    if status != 69:
        fill(small_disk)
    with supervised(plan, said) as cell:
        starts(cell, small_disk, 3 * QUICK_ENDS)
        (small_disk / "go").touch()
        while not cell.pids():
            time.sleep(0.01)
    assert f"quota ended with status {status}, for the disk has no room; it is started again" in said


def test_a_process_that_another_one_has_replaced_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("libs.cli.cell.child.FIRST_DELAY_S", 0.01)
    plan, said = (
        EndsWith(state_dir=tmp_path, agents=0, gateway_port=free_port(), settings={"STATUS": "75"}),
        list[str](),
    )
    (tmp_path / "logs").mkdir()
    with supervised(plan, said) as cell:
        while not said:
            time.sleep(0.01)
        time.sleep(0.5)  # many times as long as the delay of a start
        assert starts(cell, tmp_path, 1) == 1
    assert said == ["quota ended with status 75: another one works in its place; it is not started again"]


def test_a_process_that_is_killed_again_and_again_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("libs.cli.cell.child.LONGEST_DELAY_S", 0.0)
    monkeypatch.setattr("libs.cli.cell.child.FIRST_DELAY_S", 0.0)
    child = Child(Command("quota", ["sleep", "60"], {}), tmp_path)
    child.start()
    for ends in range(QUICK_ENDS + 1):
        child.kill()
        while child.restarts == ends:
            child.tend()
    assert not child.is_hopeless and child.pid is not None
    child.kill()


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cell = Cell(CellPlan(state_dir=tmp_path, gateway_port=port))
        with pytest.raises(CellError, match=f"port {port} cannot be used: Address already in use") as raised, cell:
            pass
    # As this process was called: `python -m pytest` gives no path of the interpreter.
    called = Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert f"it is held by process {os.getpid()} ({shlex.quote(called)}" in str(raised.value)
    assert cell.children == {}


LISTENS = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    server.accept()
"""


def test_a_port_of_another_cell_is_refused_with_that_cell(tmp_path: Path):
    environment = {**os.environ, "SANJAYA_STATE_DIR": "/data/lab", "SANJAYA_CELL": "lab"}
    command = [sys.executable, "-c", LISTENS, "services.gateway"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        with pytest.raises(CellError) as raised:
            refuse_taken(int(gateway.stdout.readline()))
        gateway.kill()
    assert f"it is held by another cell, 'lab' at /data/lab (process {gateway.pid})" in str(raised.value)


def test_a_supervisor_that_fails_later_ends_the_waiting(tmp_path: Path):
    cell = Cell(CellPlan(state_dir=tmp_path, agents=0, gateway_port=free_port()))
    with pytest.raises(CellError, match="ZeroDivisionError"), cell:
        cell.children["quota"].tend = lambda *_: 1 // 0  # type: ignore[method-assign]
        cell.wait()
