"""An elastic job grows onto idle GPUs and gives them back at once: not a bit of its losses changes.

Its agent is killed while the second growth is under way.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.migration import MigrationStarted
from libs.contracts.placement import JobPlaced, JobResized, TimeSliceStarted
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.growing import MOST, WIDTHS, Growing, losses_of, undisturbed
from tests.e2e.patience import PATIENT

pytestmark = pytest.mark.e2e


def test_a_job_goes_from_one_to_two_to_four_gpus_and_back(tmp_path: Path):
    plan = CellPlan(
        state_dir=tmp_path / "cell", agents=1, gpus_per_agent=MOST, gateway_port=free_port(), settings=PATIENT
    )
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        growing = Growing(client, tmp_path, pause_s=0.001)
        growing.goes_up_and_down(lambda: None, during_growth=lambda: cell.kill("agent-n1"))
        batches = growing.ends()
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    assert losses_of(growing.lines()) == losses_of(undisturbed(tmp_path, batches))
    check_log(tmp_path / "log.jsonl")
    assert nothing_left_of(tmp_path) == []


def check_log(path: Path) -> None:
    said = [envelope.event for envelope in checked(path)]
    resized = [event for event in said if isinstance(event, JobResized)]
    assert [event.gpus for event in resized] == WIDTHS[1:]
    assert [event.reason.code for event in resized] == ["IdleGpus", "IdleGpus", "GpusNeeded", "GpusNeeded"]
    grown = [event.gpus for event in said if isinstance(event, MigrationStarted) and event.gpus]
    assert grown == [2, 4]
    assert not [event for event in said if isinstance(event, TimeSliceStarted)], "no job had to take turns"
    assert len([event for event in said if isinstance(event, JobPlaced)]) == 4, "no job was restarted"
