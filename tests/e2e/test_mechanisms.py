"""A fourth mechanism on a running cell; and each taking over from each other one while jobs train."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import JobPlaced, JobPreempted, JobSucceeded
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import balanced
from tests.e2e.second_tree import Replacement, environment, second_tree
from tests.e2e.test_rounds import FINAL, wait_until
from tests.e2e.upgrading import sanjaya

pytestmark = pytest.mark.e2e

MECHANISM = '''"""The whole cluster is one job's until it ends."""

from libs.contracts.reasons import Reason
from services.placement.core.cell import Cell
from services.placement.core.cluster import gangs
from services.placement.core.lifecycle.placing import placed
from services.placement.core.lifecycle.plan import Plan
from services.placement.core.lifecycle.queue import HeadsInOrder
from services.placement.core.mechanism import Mechanism, Moment


class OneAtATime(Mechanism):
    kind = "one_at_a_time"

    def step(self, cell: Cell, moment: Moment) -> Plan:
        if any(job.gang for job in cell.jobs.values()):
            return
        for job in HeadsInOrder(cell):
            fit = gangs.best_fit(job.spec.gpus, cell.servers())
            if fit is not None:
                yield placed(job, fit.gang, Reason(code="ItsTurn", message="no other job runs"))
                return
'''
POLICY = '''"""One job at a time."""

from libs.policies.policy import Policy

SOLO = Policy(name="solo", kind="one_at_a_time", describes="One job at a time.")
'''
LINES = (
    Replacement(
        "services/placement/core/mechanisms/table.py",
        "(QueueingMechanism(), RoundsMechanism(), SlicingMechanism())",
        "(QueueingMechanism(), RoundsMechanism(), SlicingMechanism(), OneAtATime())",
    ),
    Replacement(
        "services/placement/core/mechanisms/table.py",
        "from services.placement.core.mechanisms.queueing.mechanism import QueueingMechanism\n",
        "from services.placement.core.mechanisms.one_at_a_time import OneAtATime\n"
        "from services.placement.core.mechanisms.queueing.mechanism import QueueingMechanism\n",
    ),
    Replacement("libs/policies/table.py", "**SLICING_POLICIES}", '**SLICING_POLICIES, "solo": SOLO}'),
    Replacement(
        "libs/policies/table.py",
        "from libs.policies.slicing.table import SLICING_POLICIES\n",
        "from libs.policies.slicing.table import SLICING_POLICIES\nfrom libs.policies.solo import SOLO\n",
    ),
)
TRAINS = """
import os, sys
import libs.testing.quick_torch
import time, torch
from pathlib import Path

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
steps, folder = int(os.environ.get("STEPS", sys.maxsize)), Path(sys.argv[2])
progress, end = open(folder / f"{sys.argv[1]}.progress", "a", buffering=1), folder / "end"
for number in range(1, steps + 1):
    loss = (model(torch.randn(16, 8)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(number, file=progress)
    if end.exists() or number == steps:
        break
    time.sleep(0.0 if steps < sys.maxsize else 0.1)
print(number, loss.item().hex(), flush=True)
"""
EACH_AFTER_EACH = (
    "backfill",
    "max_min_fairness",
    "backfill",
    "gandiva",
    "backfill",
    "solo",
    "max_min_fairness",
    "gandiva",
    "max_min_fairness",
    "solo",
    "gandiva",
    "solo",
    "backfill",
)
"""A policy of every kind comes after one of every other, once."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One in which there is a fourth mechanism: a room, a policy, and a line for each."""
    folder = second_tree(tmp_path_factory.mktemp("tree") / "tree", LINES)
    (folder / "services/placement/core/mechanisms/one_at_a_time.py").write_text(MECHANISM)
    (folder / "libs/policies/solo.py").write_text(POLICY)
    return folder


def plan_of(tree: Path, state_dir: Path) -> CellPlan:
    settings = environment(tree)
    return CellPlan(state_dir=state_dir, agents=1, gpus_per_agent=2, gateway_port=free_port(), settings=settings)


def verified(tree: Path, log: Path) -> list:
    """The events of control, when the books balance and the code of the tree decides the same again."""
    status, document = sanjaya(tree, "replay", str(log), "--verify", "--json")
    assert status == 0 and document["differences"] == 0, document
    return [envelope.event for envelope in balanced(log)]


def test_twelve_jobs_run_under_a_fourth_mechanism(tree: Path, tmp_path: Path):
    plan = plan_of(tree, tmp_path / "cell")
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_policy("solo", "one at a time")
        command = {"command": [sys.executable, "-c", "print('done')"]}
        jobs = [str(client.submit({**command, "name": f"j{n}", "gpus": 1 + n % 2})["id"]) for n in range(12)]
        wait_until(lambda: all(client.job(job)["state"] in FINAL for job in jobs))
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    events = verified(tree, tmp_path / "log.jsonl")
    assert [type(e) for e in events if isinstance(e, JobPlaced | JobSucceeded)] == [JobPlaced, JobSucceeded] * 12
    assert nothing_left_of(tmp_path) == []


def test_each_mechanism_takes_over_from_each_other_one_while_jobs_train(tree: Path, tmp_path: Path):
    assert Counter(pairwise(EACH_AFTER_EACH)) == dict.fromkeys(permutations(set(EACH_AFTER_EACH), 2), 1)
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    plan = plan_of(tree, tmp_path / "cell")
    with Cell(plan), Client(plan.gateway_url) as client:
        for name in ("round_s", "slice_s"):
            client.set_setting("placement", name, 2)
        jobs = [submitted(client, script, seed) for seed in range(4)]
        for policy in EACH_AFTER_EACH[1:]:
            client.set_policy(policy, "its turn")
            changed = int(client.status()["next_offset"])
            wait_until(lambda changed=changed: (client.positions() or {}).get("placement", 0) >= changed)
            batches = done(tmp_path)
            wait_until(lambda batches=batches: done(tmp_path) >= batches + 10)
            assert client.status()["conservation"]["light"] == "green"
        (tmp_path / "end").touch()
        wait_until(lambda: all(client.job(job)["state"] in FINAL for job in jobs))
        printed = [[line["text"] for line in client.logs(job)] for job in jobs]
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    assert printed == [[undisturbed(script, seed, lines[-1])] for seed, lines in enumerate(printed)]
    events = verified(tree, tmp_path / "log.jsonl")
    assert sum(isinstance(event, PolicyChanged) for event in events) == len(EACH_AFTER_EACH) - 1
    assert not [event for event in events if isinstance(event, JobPreempted)]
    placed = Counter(event.job_id for event in events if isinstance(event, JobPlaced))
    assert placed == dict.fromkeys(jobs, 1), "none has begun anew"
    assert nothing_left_of(tmp_path) == []


def submitted(client: Client, script: Path, seed: int) -> str:
    command = [sys.executable, str(script), str(seed), str(script.parent)]
    return str(client.submit({"command": command, "name": f"job-{seed}"})["id"])


def done(folder: Path) -> int:
    """Mini-batches of all jobs."""
    return sum(file.read_text().count("\n") for file in folder.glob("*.progress"))


def undisturbed(script: Path, seed: int, last: str) -> str:
    """What a job prints that is run by hand for as many steps."""
    aside = script.parent / "by_hand"
    aside.mkdir(exist_ok=True)
    environment = {**os.environ, "STEPS": last.split()[0]}
    command = [sys.executable, str(script), str(seed), str(aside)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
