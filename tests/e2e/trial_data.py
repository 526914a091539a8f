"""A job of a live cell with data that is not as its schema says, and what its trial finds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.admission import TrialFailed
from libs.contracts.agent import DataChecked, JobExited
from libs.contracts.cluster import width_of
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobPlaced
from tests.bench._data_sets import FORMATS, Place
from tests.e2e.checking import checked, sanjaya

SCRIPT = Path(__file__).with_name("trial_script.py")
WIDE = 2


def plan_in(folder: Path) -> CellPlan:
    """A cell with one agent of two GPUs; `start` lets jobs of two run a trial first."""
    return CellPlan(state_dir=folder / "cell", agents=1, gpus_per_agent=WIDE, gateway_port=free_port())


def start(cell: Cell) -> None:
    """Jobs of more than one GPU run a trial first from now on."""
    sanjaya(cell, "settings", "set", "admission.trial_above_gpus", str(WIDE - 1))


@dataclass(frozen=True)
class Found:
    """What the trial of a job has come to."""

    places: list[Place]
    """That were named as wrong, in order."""
    first: str
    """The first of them, as the job's output says it."""
    rows: int
    """That were looked at."""
    took_s: float
    """From the order to start the trial to what was found, by the log's clock."""
    failed: TrialFailed
    widths: list[int]
    """GPUs of each placement of the job."""


def found_in_trial(cell: Cell, folder: Path, form: str) -> Found:
    """Submit a job that names the files of the folder, and wait for its end; the log is checked."""
    schema = cell.plan.state_dir.parent / "data.schema.json"
    schema.write_text(json.dumps(FORMATS[form].schema))
    options = ("--data-schema", str(schema), "--data", str(folder / FORMATS[form].pattern))
    job_id = sanjaya(
        cell, "submit", "--gpus", str(WIDE), "--no-upload", *options, "--", "python", str(SCRIPT), "none"
    ).strip()
    sanjaya(cell, "wait", job_id, accepted=(0, 1, 2))
    path = cell.plan.state_dir.parent / "log.jsonl"
    with Client(cell.plan.gateway_url) as client:
        path.write_bytes(b"".join(client.export()))
    return _found([each for each in checked(path) if each.event.subject == job_id])


def _found(said: list[Envelope]) -> Found:
    events = [each.event for each in said]
    [exited] = [event for event in events if isinstance(event, JobExited)]
    [failed] = [event for event in events if isinstance(event, TrialFailed)]
    [(checked_s, check)] = [(each.time_s, each.event) for each in said if isinstance(each.event, DataChecked)]
    placed = [(each.time_s, each.event) for each in said if isinstance(each.event, JobPlaced)]
    return Found(
        places=[Place(each.file, each.row, each.column) for each in check.violations],
        first=exited.stderr_tail,
        rows=check.rows,
        took_s=checked_s - placed[0][0],
        failed=failed,
        widths=[width_of(event.gang) for _, event in placed],
    )
