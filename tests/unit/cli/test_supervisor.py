"""The supervisor of a cell: when it cannot go on, that is said, and nothing waits for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellError, CellPlan
from libs.cli.cell.plan import Command

pytestmark = pytest.mark.timeout(60)


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


def test_a_supervisor_that_fails_later_ends_the_waiting(tmp_path: Path):
    cell = Cell(CellPlan(state_dir=tmp_path, agents=0, gateway_port=free_port()))
    with pytest.raises(CellError, match="ZeroDivisionError"), cell:
        cell.children["quota"].tend = lambda: 1 // 0  # type: ignore[method-assign]
        cell.wait()
