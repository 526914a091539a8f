"""A job is paused and goes on, again and again, and at each step a process is killed.

Not a bit of its result changes, and nothing is left over.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.gateway import JobPauseRequested, JobResumeRequested
from libs.contracts.placement import AttemptFailed, JobPlaced, JobPreempted
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked
from tests.e2e.disturbed import DisturbedJob, everywhere, named
from tests.e2e.patience import PATIENT
from tests.e2e.test_rounds import wait_until

pytestmark = pytest.mark.e2e

PAUSE = ("job.pause_requested.v1", "job.suspended.v1")
RESUME = ("job.resume_requested.v1", "job.resumed.v1")
ONE_EACH = ("placement", "agent", "task", "agent")
"""What to kill after which of these events."""
EVERYWHERE = everywhere(PAUSE + RESUME, ONE_EACH)


class PausedJob(DisturbedJob):
    """It is told to stand still, and to go on."""

    def stands_still(self) -> bool:
        """On its GPU, or without one, if its task was killed."""
        job = self.client.job(self.job_id)
        return job["state"] == "SUSPENDED" or (job["state"] == "QUEUED" and job["held"])

    def pause_and_resume(self, kind: str = "", victim: str = "") -> None:
        """Kill the victim after the first event of this kind; wait until it trains again."""
        before = self.last_offset()
        self.client.pause(self.job_id)
        if kind in PAUSE:
            self._kill_after(kind, victim, before)
        self.until(self.stands_still)
        self.client.resume(self.job_id)
        if kind in RESUME:
            self._kill_after(kind, victim, before)
        self.until(lambda: self.client.job(self.job_id)["state"] == "RUNNING")
        self.goes_on()

    def _kill_after(self, kind: str, victim: str, before: int) -> None:
        self.until(lambda: self.seen(kind, before))
        if victim == "task":
            self.kill_task("n1")
        else:
            self.cell.kill("agent-n1" if victim == "agent" else victim)


@pytest.mark.parametrize("victims", cases(ONE_EACH, thorough=EVERYWHERE), ids=named)
def test_whatever_is_killed_during_a_pause_the_job_ends_once_with_the_right_result(
    tmp_path: Path, victims: tuple[str, ...]
):
    plan = CellPlan(state_dir=tmp_path / "cell", agents=1, gpus_per_agent=1, gateway_port=free_port(), settings=PATIENT)
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        job = PausedJob(cell, client, tmp_path)
        job.pause_and_resume()
        for kind, victim in zip(PAUSE + RESUME, victims, strict=True):
            job.pause_and_resume(kind, victim)
        job.ends()
        log = job.log()
    check_log(log, victims)
    assert nothing_left_of(tmp_path) == []


WAITS = """
import sys, time
from pathlib import Path

while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def test_another_job_has_the_gpu_of_a_paused_one_and_all_services_are_killed_meanwhile(tmp_path: Path):
    plan = CellPlan(state_dir=tmp_path / "cell", agents=1, gpus_per_agent=1, gateway_port=free_port(), settings=PATIENT)
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        job = PausedJob(cell, client, tmp_path)
        end = tmp_path / "end of the other"
        other = str(client.submit({"name": "other", "command": [sys.executable, "-c", WAITS, str(end)]})["id"])
        client.pause(job.job_id)
        job.until(lambda: client.job(other)["state"] == "RUNNING")
        paused = client.job(job.job_id)
        assert (paused["state"], paused["held"], paused["reason"]) == ("SUSPENDED", True, "OnHold")
        assert "its memory is parked on n1, and its GPUs are given away" in paused["message"]
        written = job.losses.read_bytes()
        for name in cell.pids():
            cell.kill(name)
        job.until(lambda: client.pause(other))
        job.until(lambda: "which stay its own" in client.job(other)["message"])
        assert "do not listen at mini-batch boundaries" in client.job(other)["message"]
        job.until(lambda: client.resume(other))
        job.until(lambda: client.resume(job.job_id))
        job.until(lambda: client.job(job.job_id)["reason"] == "InsufficientGpus")
        assert client.job(job.job_id)["state"] == "SUSPENDED" and job.losses.read_bytes() == written
        end.touch()
        job.until(lambda: client.job(job.job_id)["state"] == "RUNNING")
        job.ends()
        assert client.job(other)["state"] == "SUCCEEDED"
        log = job.log()
    kinds = Counter((type(envelope.event), envelope.event.subject) for envelope in checked(log))
    assert kinds[JobPlaced, job.job_id] == kinds[JobPlaced, other] == 1, "neither was restarted"
    assert nothing_left_of(tmp_path) == []


SLOW_TORCH = """
import os, time
from pathlib import Path

folder = Path(__file__).parent.parent
(folder / f"importing-{os.environ['SANJAYA_ATTEMPT']}").touch()
while not (folder / "go").exists():
    time.sleep(0.05)
"""


def test_a_job_that_is_paused_while_it_imports_torch_gives_its_gpu_away_and_begins_anew(tmp_path: Path):
    """On a loaded node the import of torch takes a minute, and the pause may last for days."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SLOW_TORCH)
    (tmp_path / "train.py").write_text("import torch")
    plan = CellPlan(state_dir=tmp_path / "cell", agents=1, gpus_per_agent=1, gateway_port=free_port(), settings=PATIENT)
    with Cell(plan), Client(plan.gateway_url) as client:

        def state(job_id: str) -> tuple[str, str]:
            job = client.job(job_id)
            return job["state"], job["reason"]

        slow = str(client.submit({"name": "slow", "command": [sys.executable, str(tmp_path / "train.py")]})["id"])
        wait_until((tmp_path / "importing-1").exists)
        client.pause(slow)
        other = str(client.submit({"name": "other", "command": ["true"]})["id"])
        wait_until(lambda: state(other)[0] == "SUCCEEDED")
        assert state(slow) == ("QUEUED", "OnHold")
        (tmp_path / "go").touch()
        client.resume(slow)
        wait_until(lambda: state(slow)[0] == "SUCCEEDED")
        assert (client.job(slow)["attempt"], client.job(slow)["retries_used"]) == (2, 0)
        log = tmp_path / "log.jsonl"
        log.write_bytes(b"".join(client.export()))
    kinds = Counter(type(envelope.event) for envelope in checked(log))
    assert (kinds[JobPlaced], kinds[JobPreempted], kinds[AttemptFailed]) == (3, 1, 0)
    assert nothing_left_of(tmp_path) == []


def check_log(path: Path, victims: tuple[str, ...]) -> None:
    kinds = Counter(type(envelope.event) for envelope in checked(path))
    assert kinds[JobPauseRequested] == kinds[JobResumeRequested] == len(victims) + 1
    assert kinds[JobPlaced] == 1 + victims.count("task"), "it was restarted only where its task was killed"
