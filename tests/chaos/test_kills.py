"""kill -9 of anything at any moment: every job ends exactly once, and the log replays."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client, ClientError
from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import JobArrived
from libs.inspect.conservation import conservation
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from services.roster import SERVICES

pytestmark = pytest.mark.chaos

JOBS, KILLS = 30, 20
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
ENDS_WITHIN_S = 500.0


@pytest.mark.parametrize("bus", cases("kafka", thorough=("embedded",)))
def test_thirty_jobs_survive_twenty_kills(bus: str, tmp_path: Path):
    chance = random.Random(20)
    plan = CellPlan(
        state_dir=tmp_path / "cell",
        agents=2,
        gateway_port=free_port(),
        kafka="" if bus == "kafka" else None,
        settings={"SANJAYA_CHECK_EVERY_RECORDS": "1", "SANJAYA_SNAPSHOT_EVERY_RECORDS": "50"},
    )
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        submitted = [submit(client, number, chance) for number in range(JOBS)]
        killed = victims(sorted(cell.children), chance)
        for victim in killed:
            time.sleep(chance.uniform(0.2, 1.5))
            cell.kill(victim)
        states = wait_for_all(client, submitted)
        log = tmp_path / "log.jsonl"
        fetch(client, log)
    assert Counter(states.values()) == {"SUCCEEDED": JOBS}, (killed, states)
    check_log(log, submitted)
    assert nothing_left_of(tmp_path) == []


def victims(names: list[str], chance: random.Random) -> list[str]:
    """Every process at least once, in random order."""
    chosen = names + chance.choices(names, k=KILLS - len(names))
    chance.shuffle(chosen)
    return chosen


def submit(client: Client, number: int, chance: random.Random) -> str:
    """A job of one or two processes that takes a moment; the same key again must not make a second job."""
    gpus = chance.choice([1, 1, 1, 2])
    command = ["python", "-c", f"import time; print('job {number}'); time.sleep({chance.uniform(0.5, 3):.2f})"]
    request = {"name": f"job-{number}", "command": command, "gpus": gpus, "max_retries": 3}
    first = client.submit(request, idempotency_key=f"chaos-{number}")
    again = client.submit(request, idempotency_key=f"chaos-{number}")
    assert first["id"] == again["id"]
    return str(first["id"])


def wait_for_all(client: Client, submitted: list[str]) -> dict[str, str]:
    """{job id: final state}; the gateway may be away meanwhile."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    states: dict[str, str] = {}
    while time.monotonic() < deadline:
        try:
            states = {job["id"]: job["state"] for job in client.jobs()}
        except ClientError:
            states = {}
        if set(states) >= set(submitted) and all(state in FINAL for state in states.values()):
            break
        time.sleep(0.5)
    return states


def fetch(client: Client, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(client.export())


def check_log(path: Path, submitted: list[str]) -> None:
    with open_log(str(path), cell="local") as log:
        records = list(log.control())
    ids = Counter(record.envelope.id for record in records)
    assert [event_id for event_id, times in ids.items() if times > 1] == []
    arrived = Counter(r.envelope.event.job_id for r in records if isinstance(r.envelope.event, JobArrived))
    assert arrived == Counter(submitted)
    ended = Counter(r.envelope.event.job_id for r in records if isinstance(r.envelope.event, TERMINAL))
    assert ended == Counter(submitted)
    assert conservation(records).ok
    with open_log(str(path), cell="local") as log:
        result = verify(log, SERVICES)
    assert result.differences == 0, result.first
