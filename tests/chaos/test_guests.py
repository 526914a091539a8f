"""kill -9 around guests: no gate stays closed for a dead owner, no loss differs, and the log replays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_agent.harness import inject_path

from libs.cli.cell import Cell
from libs.client import Client
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobPlaced
from libs.contracts.quota import JobUpgraded
from libs.coordination.recording import derive
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases, often
from tests.chaos.sharing_memory import SharingCell, Watch
from tests.e2e.patience import PATIENT
from tests.e2e.test_guests import WAITS, GuestsCell, plan_of
from tests.e2e.test_rounds import wait_until
from tests.integration.test_memory_bursts import CAPACITY, SCRIPT

pytestmark = pytest.mark.chaos
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the memory of virtual GPUs needs a C compiler")

SERVICES = ("agent", "placement", "quota", "introspection")
"""What is killed at a moment: at the first one the first of these that the case names, at the next one the next."""
FEWEST_LOSSES = 10
"""Of each process, so that a comparison says something."""
TRAINS = """
import os, sys, time
import libs.testing.quick_torch
import torch
from pathlib import Path

folder, name, pause_s, steps = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(1)
torch.set_num_threads(1)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return steps * 4

    def __getitem__(self, number):
        time.sleep(pause_s / 4)
        return torch.randn(8, generator=torch.Generator().manual_seed(number))


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with (folder / f"{name}.{os.getpid()}.losses").open("w", buffering=1) as losses:
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=4):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.write(f"{loss.item().hex()}\\n")
        if (folder / f"end of {name}").exists():
            break
"""


class KilledCell(GuestsCell):
    """A cell whose processes are killed."""

    def __init__(self, cell: Cell, client: Client, folder: Path) -> None:
        super().__init__(client, folder)
        self.cell = cell

    def train(self, name: str, of_class: str, tenant: str, pause_s: float) -> str:
        command = [sys.executable, "-c", TRAINS, str(self.folder), name, str(pause_s), "1000000"]
        job = {"name": name, "command": command, "gpus": 1, "class": of_class, "tenant": tenant, "max_retries": 3}
        return str(self.client.submit(job)["id"])

    def fill_the_quota_of(self, tenant: str) -> str:
        """A job that holds a GPU until its file is there; as far as quota knows, for an hour."""
        command = [sys.executable, "-c", WAITS, str(self.folder / "end of first")]
        job = {"name": "first", "command": command, "gpus": 1, "class": "guaranteed", "tenant": tenant}
        found = str(self.client.submit({**job, "time_limit_s": 3600})["id"])
        self.waits_for("RUNNING", found)
        return found

    def kill_at(self, moment: str, job_id: str, victim: str) -> None:
        """Kill a process as soon as the log says that about the job."""
        self.until(lambda: any(self.client.events(type=moment, job=job_id)))
        for name in [each for each in self.cell.children if each.startswith(victim)]:
            self.cell.kill(name)

    def losses(self, name: str) -> dict[int, list[str]]:
        """{process: its losses so far}, in the order in which the processes began."""
        files = sorted(self.folder.glob(f"{name}.*.losses"), key=lambda path: path.stat().st_ctime_ns)
        return {int(path.name.split(".")[1]): path.read_text().splitlines() for path in files}

    def goes_on(self, name: str) -> None:
        """Until the newest process of the job has done ten mini-batches more."""
        self.until(lambda: self.losses(name))
        pid, before = list(self.losses(name).items())[-1]
        self.until(lambda: len(self.losses(name)[pid]) >= len(before) + 10)

    def kill_process(self, name: str) -> None:
        """Kill the job's process, and wait until another one trains in its place."""
        [*_, pid] = self.losses(name)
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: list(self.losses(name))[-1] != pid)


@pytest.mark.parametrize("turn", cases(0, thorough=(1, 2, 3)))
@pytest.mark.parametrize("bus", cases("embedded", thorough=("kafka",)))
def test_nothing_is_lost_when_processes_die_around_guests(bus: str, turn: int, tmp_path: Path, monkeypatch: Any):
    trains_with_the_harness(monkeypatch)
    victims = SERVICES[turn:] + SERVICES[:turn]
    plan = plan_of(tmp_path, bus, agents=1, gpus_per_agent=2, settings=PATIENT)
    with Cell(plan) as running, Client(plan.gateway_url) as client:
        cell = KilledCell(running, client, tmp_path)
        client.set_policy("antman")
        client.set_tenant("vision", gpu_limit=1)
        client.set_tenant("lab", gpu_limit=1)
        first = cell.fill_the_quota_of("lab")
        guest = cell.train("guest", "automatic", "lab", 0.02)
        cell.kill_at("job.placed.v1", guest, victims[0])
        cell.goes_on("guest")
        owner = cell.train("owner", "guaranteed", "vision", 0.05)
        cell.kill_at("job.placed.v1", owner, victims[1])
        cell.goes_on("owner")
        cell.goes_on("guest")
        cell.kill_process("owner")
        cell.goes_on("guest")
        cell.goes_on("owner")
        cell.kill_process("guest")
        cell.goes_on("guest")
        cell.end("owner", "first")
        cell.waits_for("SUCCEEDED", owner, first)
        cell.kill_at("upgrade.offered.v1", guest, victims[2])
        cell.kill_at("job.upgraded.v1", guest, victims[3])
        cell.goes_on("guest")
        cell.end("guest")
        cell.waits_for("SUCCEEDED", guest)
        log = cell.log()
        losses = [*cell.losses("guest").values(), *cell.losses("owner").values()]
    assert [envelope.event.job_id for envelope in log if isinstance(envelope.event, JobUpgraded)] == [guest]
    assert attempts(log, guest) == [1, 2] and attempts(log, owner) == [1, 2]
    undisturbed = losses_of_an_undisturbed_run(tmp_path, max(map(len, losses)))
    assert len(losses) == 4 and all(len(each) >= FEWEST_LOSSES for each in losses)
    assert all(each == undisturbed[: len(each)] for each in losses)
    assert nothing_left_of(tmp_path) == []


VICTIMS = ("agent", "guest", "owner", "placement", "quota", "introspection")
MOMENTS = ("shrink", "growth", "burst")
"""Of a burst of the owner's memory: the guest is told to shrink, the owner may grow, some of it lies on the host."""
CLOSED_MOST_S = 5.0


def trains_with_the_harness(monkeypatch: Any) -> None:
    """Jobs find the harness, and what they need of the tests; so do agents what they are started from."""
    path = [inject_path(), str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def turns(number: int) -> tuple[tuple[str, str], ...]:
    """(moment, victim): in six turns each victim dies at each moment, in any of them the owner and the guest once."""
    return tuple((moment, VICTIMS[(number + place * 2) % 6]) for place, moment in enumerate(MOMENTS))


@needs_compiler
@pytest.mark.parametrize("turn", cases(0, thorough=(1, 2, 3, 4, 5)))
@pytest.mark.parametrize("bus", cases("embedded", thorough=("kafka",)))
def test_limits_stay_within_the_gpu_when_processes_die_in_bursts(bus: str, turn: int, tmp_path: Path, monkeypatch: Any):
    trains_with_the_harness(monkeypatch)
    settings = {"SANJAYA_GPU_MEMORY": str(CAPACITY), "SANJAYA_PEAK_S": "1", **PATIENT}
    plan = plan_of(tmp_path, bus, agents=1, gpus_per_agent=1, settings=settings)
    kills = turns(turn)[: often(2, thorough=3)]
    with Cell(plan) as running, Client(plan.gateway_url) as client:
        cell = SharingCell(running, client, tmp_path)
        client.set_policy("antman")
        client.set_tenant("vision", gpu_limit=1)
        with Watch(cell.node) as watch:
            guest = cell.train("guest", "lab")
            owner = cell.train("owner", "vision")
            for moment, victim in kills:
                cell.kill_at(moment, victim)
            cell.finish("owner", owner)
            cell.finish("guest", guest)
        log = cell.log()
        losses = {name: list(cell.losses(name).values()) for name in ("guest", "owner")}
    assert watch.samples > 100 and watch.most_allowed <= CAPACITY, watch.worst
    assert watch.most_closed_s <= CLOSED_MOST_S
    killed = [victim for _, victim in kills]
    for job_id, name in ((guest, "guest"), (owner, "owner")):
        assert attempts(log, job_id) == list(range(1, 2 + killed.count(name)))
    undisturbed = losses_of_an_undisturbed_burst(tmp_path, max(len(each) for of in losses.values() for each in of))
    for each in (*losses["guest"], *losses["owner"]):
        assert len(each) >= FEWEST_LOSSES and each == undisturbed[: len(each)]
    assert recorded_steps(cell.records) > 0
    assert nothing_left_of(tmp_path) == []


def recorded_steps(records: Path) -> int:
    """How many steps of coordination are on record; each is derived again."""
    found = 0
    for path in records.glob("*.jsonl"):
        for step in derive(path.read_bytes().splitlines(keepends=True)):
            assert step.is_same, step
            found += 1
    return found


def losses_of_an_undisturbed_burst(folder: Path, steps: int) -> list[str]:
    """Of the same script alone, without an agent."""
    alone = folder / "undisturbed"
    alone.mkdir()
    with subprocess.Popen([sys.executable, str(SCRIPT), str(alone), "1", "0.0"]):

        def losses() -> list[str]:
            return [line for path in alone.glob("*.losses") for line in path.read_text().splitlines()]

        try:
            wait_until(lambda: len(losses()) >= steps)
        finally:
            (alone / "end").touch()
    return losses()


def attempts(log: list[Envelope], job_id: str) -> list[int]:
    placed = [envelope.event for envelope in log if isinstance(envelope.event, JobPlaced)]
    return [event.attempt for event in placed if event.job_id == job_id]


def losses_of_an_undisturbed_run(folder: Path, steps: int) -> list[str]:
    subprocess.run([sys.executable, "-c", TRAINS, str(folder), "undisturbed", "0", str(steps)], check=True)
    [path] = folder.glob("undisturbed.*.losses")
    return path.read_text().splitlines()
