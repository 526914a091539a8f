"""Lost means stopped: by what tasks themselves have written, no two attempts of a job ever run at the same time.

An agent is frozen (SIGSTOP: a machine that is paused, storage that stalls) or refused, and its tasks go on without it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.node.lease import LeaseTerms
from libs.testing.leftovers import nothing_left_of
from libs.testing.processes import ROOT, agent_process
from libs.testing.proxy import Proxy
from libs.testing.thorough import THOROUGH, cases, rows
from tests.chaos.test_kills import check_log, fetch, wait_for_all
from tests.e2e.test_joined_agents import HOST

pytestmark = pytest.mark.chaos

TERMS = LeaseTerms(node_timeout_s=20.0, margin_s=4.0) if THOROUGH else LeaseTerms(node_timeout_s=4.0, margin_s=1.0)
SHORT, LONG, LONGEST = (15.0, 32.0, 60.0) if THOROUGH else (3.0, 8.0, 15.0)
WORK_S = 4 * TERMS.node_timeout_s
"""How long a job takes; longer than a frozen node needs to be lost."""
SETTINGS = {
    "SANJAYA_NODE_TIMEOUT_S": str(TERMS.node_timeout_s),
    "SANJAYA_LEASE_MARGIN_S": str(TERMS.margin_s),
    "SANJAYA_CHECK_EVERY_RECORDS": "1",
}
NOTE = """
import os, time
from pathlib import Path

def note(step=0, loss=0.0, name=os.environ["SANJAYA_JOB_NAME"], attempt=os.environ["SANJAYA_ATTEMPT"]):
    with open(Path(__file__).with_name("witness") / name, "a") as file:
        file.write(f"{attempt} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f} {step} {loss.hex()}\\n")
"""
PLAIN = f"""{NOTE}
ends_s = time.monotonic() + {WORK_S}
while time.monotonic() < ends_s:
    note()
    time.sleep(0.02)
"""
STEPS = int(WORK_S / 0.05)
TRAINING = """import libs.testing.quick_torch
import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)

def train(step):
    optimizer.zero_grad()
    loss = model(torch.full((1, 4), 1.0 + step % 7)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
SAVING = f"""{TRAINING}
from sanjaya_job import Job
{NOTE}
job = Job(model=model, optimizer=optimizer, checkpoint_every=10)
for epoch in job.epochs(1):
    for step in job.batches(range({STEPS})):
        note(step, train(step))
        time.sleep(0.05)
"""
ALONE = f"""{TRAINING}
for step in range({STEPS}):
    print(train(step).hex())
"""


@dataclass(frozen=True)
class Wrote:
    """One line of a task."""

    attempt: int
    time_s: float
    step: int
    loss: str


def submitted(client: Client, folder: Path) -> dict[str, str]:
    """{job id: name} of five plain jobs, two that save, and a gang over two nodes: they leave a node's room."""
    (folder / "witness").mkdir()
    jobs = {}
    for name, gpus in [*((f"plain-{number}", 1) for number in range(5)), ("save-0", 1), ("save-1", 1), ("gang", 5)]:
        script = folder / ("save.py" if name.startswith("save") else "plain.py")
        script.write_text(SAVING if name.startswith("save") else PLAIN)
        job = {"name": name, "command": ["python", str(script)], "gpus": gpus, "max_retries": 3}
        jobs[client.submit(job)["id"]] = name
    return jobs


def witness(folder: Path, name: str) -> list[Wrote]:
    path = folder / "witness" / name
    lines = path.read_text().splitlines() if path.exists() else []
    return [Wrote(int(a), float(t), int(s), loss) for a, t, s, loss in (line.split() for line in lines)]


def losses_alone() -> list[str]:
    """One for each step, of a training without a scheduler."""
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def overlap_s(lines: list[Wrote]) -> float:
    """For how long at most two attempts have run at the same time, in seconds; 0: never."""
    found = 0.0
    for attempt in {line.attempt for line in lines}:
        first_s = min(line.time_s for line in lines if line.attempt == attempt)
        earlier = [line.time_s for line in lines if line.attempt < attempt]
        found = max([found, *(time_s - first_s for time_s in earlier)])
    return found


def silent_s(folder: Path, name: str) -> float:
    """Seconds since a task has last written a line."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - witness(folder, name)[-1].time_s


def until(holds: Callable[[], bool], within_s: float = 120.0) -> None:
    ends_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("bus", "frozen_s"),
    rows(("embedded", SHORT), ("embedded", LONG), thorough=(("embedded", LONGEST), ("kafka", SHORT), ("kafka", LONG))),
)
def test_an_agent_that_is_frozen_runs_nothing_twice_and_fails_nothing(bus: str, frozen_s: float, tmp_path: Path):
    kafka = "" if bus == "kafka" else None
    plan = CellPlan(
        tmp_path / "cell", agents=4, gpus_per_agent=4, gateway_port=free_port(), kafka=kafka, settings=SETTINGS
    )
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        jobs = submitted(client, tmp_path)
        until(lambda: all(len(witness(tmp_path, name)) > 30 for name in jobs.values()))
        saving = next(job_id for job_id, name in jobs.items() if name == "save-0")
        node_id = next(gpu["node_id"] for gpu in client.gpus() if gpu["job_id"] == saving)
        agent = cell.pids()[f"agent-{node_id}"]
        os.kill(agent, signal.SIGSTOP)
        time.sleep(frozen_s)
        os.kill(agent, signal.SIGCONT)
        states = wait_for_all(client, list(jobs))
        log = tmp_path / "log.jsonl"
        fetch(client, log)
    lines = {name: witness(tmp_path, name) for name in jobs.values()}
    assert {name: round(overlap_s(found), 3) for name, found in lines.items() if overlap_s(found) > 0} == {}
    assert Counter(states.values()) == {"SUCCEEDED": len(jobs)}
    alone = losses_alone()
    for name in ("save-0", "save-1"):
        assert {line.step for line in lines[name]} == set(range(STEPS))
        assert [line for line in lines[name] if line.loss != alone[line.step]] == []
    check_log(log, list(jobs))
    again = [name for name, found in lines.items() if max(line.attempt for line in found) > 1]
    assert bool(again) is (frozen_s > TERMS.lost_s)
    assert nothing_left_of(tmp_path) == []


def test_a_whole_cell_that_is_frozen_or_asleep_goes_on_where_it_was(tmp_path: Path):
    plan = CellPlan(tmp_path / "cell", agents=2, gpus_per_agent=4, gateway_port=free_port(), settings=SETTINGS)
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        jobs = submitted(client, tmp_path)
        until(lambda: sum(len(witness(tmp_path, name)) > 30 for name in jobs.values()) >= 5)
        everything = [psutil.Process(pid) for pid in cell.pids().values()]
        everything += [
            p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])
        ]
        everything = list(dict.fromkeys(everything))
        for process in everything:
            process.suspend()
        time.sleep(40.0 if THOROUGH else LONG)
        for process in everything:
            process.resume()
        states = wait_for_all(client, list(jobs))
    lines = {name: witness(tmp_path, name) for name in jobs.values()}
    assert Counter(states.values()) == {"SUCCEEDED": len(jobs)}
    assert {name: line.attempt for name, found in lines.items() for line in found if line.attempt > 1} == {}


@contextmanager
def east(network: Proxy, folder: Path, token: Path) -> Iterator[None]:
    """An agent that has joined by the gateway, with a token in a file."""
    joins = ["--join", f"https://127.0.0.1:{network.port}", "--token-file", str(token), "--on-exit", "requeue"]
    with agent_process("east", folder / "east", *joins):
        yield


def test_tasks_whose_agent_is_refused_stop_in_time_and_go_on_when_it_is_taken_again(tmp_path: Path):
    """As a join token that has leaked is exchanged: the agent's own is not known, until it is given the new one."""
    (tmp_path / "witness").mkdir()
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    token = tmp_path / "token"
    plan = CellPlan(tmp_path / "cell", agents=0, gateway_port=free_port(), host=HOST, settings=SETTINGS)
    assert plan.joining is not None
    with Proxy(plan.gateway_port, HOST) as network, ExitStack() as agents:
        with Cell(plan), Client(plan.gateway_url) as client:
            token.write_text(plan.joining.token_file.read_text())
            agents.enter_context(east(network, tmp_path, token))
            job = {"command": ["python", str(script)], "gpus": 1, "max_retries": 3}
            jobs = {name: client.submit(job | {"name": name})["id"] for name in ("kept", "cancelled")}
            until(lambda: all(len(witness(tmp_path, name)) > 5 for name in jobs))
        plan.joining.token_file.unlink()
        with Cell(plan), Client(plan.gateway_url) as client:
            client.cancel(jobs["cancelled"])
            until(lambda: client.job(jobs["cancelled"])["state"] == "CANCELLED")
            assert all(silent_s(tmp_path, name) > TERMS.margin_s for name in jobs), "what is lost still runs"
            assert [node["state"] for node in client.nodes()] == ["LOST"]
            token.write_text(plan.joining.token_file.read_text())
            states = wait_for_all(client, list(jobs.values()))
            assert states == {jobs["kept"]: "SUCCEEDED", jobs["cancelled"]: "CANCELLED"}
            assert [overlap_s(witness(tmp_path, name)) for name in jobs] == [0.0, 0.0]
            assert {line.attempt for line in witness(tmp_path, "cancelled")} == {1}
    assert nothing_left_of(tmp_path) == []


@contextmanager
def agent_of(cell: Cell, state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of node `east`, on the cell's log."""
    reaches = ["--bus", cell.plan.bus, "--cell", cell.plan.cell, "--on-exit", "requeue"]
    settings = SETTINGS | {"SANJAYA_LEASE_GRACE_S": "1"}
    with agent_process("east", state_dir, *reaches, environment=settings) as process:
        yield process


@pytest.mark.parametrize("bus", cases("embedded", thorough=("kafka",)))
def test_a_second_agent_of_a_name_begins_when_the_tasks_of_the_first_have_stopped(bus: str, tmp_path: Path):
    (tmp_path / "witness").mkdir()
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    kafka = "" if bus == "kafka" else None
    plan = CellPlan(tmp_path / "cell", agents=0, gateway_port=free_port(), kafka=kafka, settings=SETTINGS)
    with Cell(plan) as cell, Client(plan.gateway_url) as client, agent_of(cell, tmp_path / "first") as first:
        job = {"command": ["python", str(script)], "gpus": 1, "max_retries": 3}
        jobs = {name: client.submit(job | {"name": name})["id"] for name in ("one", "two")}
        until(lambda: all(len(witness(tmp_path, name)) > 5 for name in jobs))
        with agent_of(cell, tmp_path / "second"):
            until(lambda: "node east has another agent" in (tmp_path / "second.log").read_text())
            time.sleep(TERMS.lost_s + TERMS.margin_s)  # nothing comes of it, which no event tells
            assert [client.job(job)["attempt"] for job in jobs.values()] == [1, 1]
            first.kill()
            first.wait()
            states = wait_for_all(client, list(jobs.values()))
    assert Counter(states.values()) == {"SUCCEEDED": 2}
    lines = {name: witness(tmp_path, name) for name in jobs}
    assert {name: {line.attempt for line in found} for name, found in lines.items()} == {name: {1, 2} for name in jobs}
    assert [overlap_s(found) for found in lines.values()] == [0.0, 0.0]
    until(lambda: nothing_left_of(tmp_path) == [])
