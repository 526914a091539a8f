"""A clock that is wrong stops, hurries and doubles nothing: timers go by what elapses, and the log dates its records.

`time.time` of chosen processes is off by what a file has, and may jump while they run. What is compared is measured by
this process: turns by what jobs themselves write, and everything else by its own monotonic clock.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.testing.leftovers import nothing_left_of
from libs.testing.processes import agent_process
from libs.testing.thorough import rows
from tests.chaos.test_kills import check_log, fetch, wait_for_all
from tests.e2e.checking import sanjaya
from tests.e2e.test_joined_agents import HOST

pytestmark = pytest.mark.chaos

AN_HOUR_S, A_DAY_S, TO_2099_S = 3_600.0, 86_400.0, 2.3e9
SLICE_S, TIMEOUT_S, MARGIN_S = 4.0, 6.0, 1.0
WITHIN_S = 2.0
"""A slice, a back-off, a time-out may be longer by this."""
WRONG_CLOCK = """
import os, time
right, right_ns, file = time.time, time.time_ns, os.environ["CLOCK_IS_OFF_BY"]
def off_by():
    with open(file) as lines:
        return float(lines.read() or 0)
time.time = lambda: right() + off_by()
time.time_ns = lambda: right_ns() + int(off_by() * 1e9)
"""
TURNS = """
import os, sys, time
with open(sys.argv[1], "a", buffering=1) as witness:
    ends_s = time.monotonic() + 600
    while time.monotonic() < ends_s and not os.path.exists(sys.argv[2]):
        print(sys.argv[3], time.monotonic(), file=witness)
        time.sleep(0.05)
"""


class Clock:
    """The clock of some processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK)
        self._file = folder / "off_by"
        self.environment = {"PYTHONPATH": str(folder), "CLOCK_IS_OFF_BY": str(self._file)}
        self.set(0.0)

    def set(self, off_by_s: float) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(repr(off_by_s))
        new.rename(self._file)


def plan_of(folder: Path, bus: str, host: str = "", clock: Clock | None = None) -> CellPlan:
    settings = {
        "SANJAYA_NODE_TIMEOUT_S": str(TIMEOUT_S),
        "SANJAYA_LEASE_MARGIN_S": str(MARGIN_S),
        "SANJAYA_CHECK_EVERY_RECORDS": "1",
        **(clock.environment if clock is not None else {}),
    }
    return CellPlan(
        folder / "cell",
        agents=1,
        gpus_per_agent=1,
        gateway_port=free_port(),
        kafka="" if bus == "kafka" else None,
        host=host,
        settings=settings,
    )


@contextmanager
def second_agent(cell: Cell, clock: Clock, how: str, folder: Path) -> Iterator[None]:
    """The agent of node `wrong`, which has this clock, and one GPU of a type that no job asks for."""
    given = ["--bus", cell.plan.bus, "--cell", cell.plan.cell]
    if how == "http":
        assert cell.plan.joining is not None
        given = shlex.split(cell.plan.joining.command())[2:]
    own = ["--virtual-gpus", "1", "--gpu-type", "other"]
    with agent_process("wrong", folder / "wrong", *given, *own, environment=clock.environment):
        yield


class Turns:
    """Two jobs that share one GPU in turns, and what they write while they have it."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client, self._witness, self._end = client, folder / "witness", folder / "end"
        client.set_policy("gandiva", "turns")
        client.set_setting("placement", "slice_s", SLICE_S)
        script = folder / "turns.py"
        script.write_text(TURNS)
        command = [sys.executable, str(script), str(self._witness), str(self._end)]
        gpus = {"count": 1, "types": [client.gpus()[0]["gpu_type"]]}
        self.jobs = [
            str(client.submit({"name": name, "command": [*command, name], "gpus": gpus})["id"]) for name in ("a", "b")
        ]

    def begin(self) -> None:
        """Wait for the first turns."""
        until(lambda: len(self.lengths(0.0)) >= 3, 120.0)

    def lengths(self, since_s: float) -> list[float]:
        """How long each turn since then was, of those that are over, in seconds."""
        lines = [line.split() for line in self._witness.read_text().splitlines()] if self._witness.exists() else []
        written = [(name, float(at_s)) for name, at_s in lines if float(at_s) > since_s]
        begins = [at_s for (before, _), (name, at_s) in pairwise([("", 0.0), *written]) if name != before]
        return [later - earlier for earlier, later in pairwise(begins)][1:]  # the first had begun before

    def go_on(self, since_s: float, turns: int) -> None:
        """Turns end when a slice does, whatever clocks show: one or, for the job that has had a little less, two."""
        until(lambda: len(self.lengths(since_s)) >= turns, (turns + 3) * (2 * SLICE_S + WITHIN_S))
        found = self.lengths(since_s)
        slices_and_rests = [divmod(length + 0.5, SLICE_S) for length in found]
        assert all(slices in (1, 2) and rest_s - 0.5 <= WITHIN_S for slices, rest_s in slices_and_rests), found

    def end(self) -> None:
        self._end.touch()
        states = wait_for_all(self._client, self.jobs)
        assert [states[job_id] for job_id in self.jobs] == ["SUCCEEDED", "SUCCEEDED"]


def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    ends_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.05)


def off_by(client: Client, node_id: str) -> float:
    return next((float(node["clock_skew_s"]) for node in client.nodes() if node["id"] == node_id), 0.0)


def second_try_after_s(client: Client) -> float:
    """How long after the end of its first attempt a job's second one starts."""
    command = [sys.executable, "-c", "import sys; sys.exit(7)"]
    job_id = str(client.submit({"name": "fails", "command": command, "max_retries": 1})["id"])
    seen: dict[str, float] = {}

    def started_again() -> bool:
        for event in client.events(job=job_id):
            seen.setdefault(f"{event['type']}/{event['data'].get('attempt')}", time.monotonic())
        return "job.placed.v1/2" in seen

    until(started_again)
    return seen["job.placed.v1/2"] - seen["retry.scheduled.v1/2"]


@pytest.mark.parametrize(
    ("how", "off_by_s", "jumps"),
    rows(
        ("log", TO_2099_S, False),
        ("http", -AN_HOUR_S, True),
        thorough=(
            ("log", -AN_HOUR_S, False),
            ("log", A_DAY_S, True),
            ("http", TO_2099_S, False),
            ("http", A_DAY_S, False),
            ("kafka", TO_2099_S, False),
            ("kafka", -AN_HOUR_S, True),
        ),
    ),
)
def test_a_node_whose_clock_is_wrong_moves_no_timer_and_is_named(
    how: str, off_by_s: float, jumps: bool, tmp_path: Path
):
    clock = Clock(tmp_path / "clock")
    clock.set(0.0 if jumps else off_by_s)
    plan = plan_of(tmp_path, "kafka" if how == "kafka" else "embedded", host=HOST if how == "http" else "")
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        turns = Turns(client, tmp_path)
        with second_agent(cell, clock, how, tmp_path):
            until(lambda: "wrong" in {node["id"] for node in client.nodes()})
            turns.begin()
            clock.set(off_by_s)
            until(lambda: abs(off_by(client, "wrong") - off_by_s) < 5.0)
            turns.go_on(time.monotonic(), 3)
            assert "clock of wrong" in sanjaya(cell, "doctor", accepted=(0, 1))
        turns.go_on(time.monotonic(), 2)
        assert client.clock()["ahead_s"] == 0.0
        turns.end()
        fetch(client, tmp_path / "log.jsonl")
    check_log(tmp_path / "log.jsonl", turns.jobs)
    assert nothing_left_of(tmp_path) == []


@pytest.mark.parametrize(
    ("bus", "set_by_s"),
    rows(("embedded", -AN_HOUR_S), thorough=(("embedded", A_DAY_S), ("kafka", -AN_HOUR_S), ("kafka", A_DAY_S))),
)
def test_the_machines_clock_is_set_while_all_runs(bus: str, set_by_s: float, tmp_path: Path):
    clock = Clock(tmp_path / "clock")
    plan = plan_of(tmp_path, bus, clock=clock)
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        turns = Turns(client, tmp_path)
        turns.begin()
        clock.set(set_by_s)
        turns.go_on(time.monotonic(), 3)
        turns.end()
        assert second_try_after_s(client) == pytest.approx(2.0, abs=WITHIN_S)
        agent = cell.pids()["agent-n1"]
        frozen_s = time.monotonic()
        os.kill(agent, signal.SIGSTOP)
        until(lambda: any(client.events(type="node.lost.v1")))
        lost_after_s = time.monotonic() - frozen_s
        os.kill(agent, signal.SIGCONT)
        assert TIMEOUT_S - WITHIN_S <= lost_after_s <= TIMEOUT_S + MARGIN_S + 2 * WITHIN_S
        until(lambda: client.nodes()[0]["state"] == "UP")
        jobs = [str(job["id"]) for job in client.jobs()]
        wait_for_all(client, jobs)
        fetch(client, tmp_path / "log.jsonl")
    check_log(tmp_path / "log.jsonl", jobs)
    assert nothing_left_of(tmp_path) == []
