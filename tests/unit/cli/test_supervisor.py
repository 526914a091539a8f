"""The supervisor of a cell: when it cannot go on, that is said, and nothing waits for it."""

from __future__ import annotations

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


def test_a_supervisor_that_fails_later_ends_the_waiting(tmp_path: Path):
    cell = Cell(CellPlan(state_dir=tmp_path, agents=0, gateway_port=free_port()))
    with pytest.raises(CellError, match="ZeroDivisionError"), cell:
        cell.children["quota"].tend = lambda: 1 // 0  # type: ignore[method-assign]
        cell.wait()
