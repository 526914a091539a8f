"""The disk of a cell is full at any moment of a job's life, and has room again: every job runs once, all goes on.

State directory, log, read models and journals lie on one small file system, which is filled to the last byte. The
witness is a file elsewhere that each job appends a line to when it begins and when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client, ClientError
from libs.testing.disks import disk, fill
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.chaos.test_kills import FINAL, check_log, fetch

pytestmark = pytest.mark.chaos

DISK_BYTES = 40 << 20
FULL_S, LONG_S = 6.0, 30.0
"""Longer than anything that is retried waits between two attempts; than a node may be silent."""
WITHIN_S = 120.0
SERVICES = ("placement", "admission", "quota", "introspection", "projection", "failure_analysis", "gateway")


class Life:
    """One job beside two others: one that has ended before, and one that runs all the time."""

    def __init__(self, cell: Cell, client: Client, elsewhere: Path) -> None:
        self.cell, self.client, self.elsewhere = cell, client, elsewhere
        self.state_dir = cell.plan.state_dir
        self.ids: dict[str, str] = {}

    def submit(self, name: str, code: int = 0, **request: Any) -> str:
        """A job that begins, waits for `go` and ends with a code; its lines are on stdout as well."""
        witness, go = self.elsewhere / f"{name}.witness", self.elsewhere / f"{name}.go"
        script = (
            f"echo began | tee -a {witness}; while [ ! -e {go} ]; do sleep 0.05; done; echo ended | tee -a {witness}"
        )
        command = ["sh", "-c", f"{script}; exit {code}"]
        self.ids[name] = self.client.submit({"name": name, "command": command, "max_retries": 0, **request})["id"]
        return self.ids[name]

    def is_taken(self, name: str) -> bool:
        """Submit a job, which the gateway refuses until it has seen that there is room again."""
        try:
            self.submit(name)
        except ClientError:
            return False
        return True

    def go(self, name: str) -> None:
        (self.elsewhere / f"{name}.go").touch()

    def witness(self, name: str) -> list[str]:
        path = self.elsewhere / f"{name}.witness"
        return path.read_text().split() if path.exists() else []

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what}; {self.last_words()}"
            self.cell.require_supervisor()
            time.sleep(0.01)

    def last_words(self) -> str:
        return "\n".join(f"{name}: {child.last_words()[-1500:]}" for name, child in self.cell.children.items())

    def state(self, name: str) -> str:
        try:
            return str(self.client.job(self.ids[name])["state"])
        except ClientError:
            return ""

    def folder(self, name: str) -> Path:
        return self.state_dir / "nodes" / "n1" / "tasks" / f"{self.ids[name]}.1"

    def began(self, name: str) -> None:
        self.until(lambda: self.witness(name) == ["began"], f"{name} begins")

    def ended(self, name: str) -> None:
        self.until(lambda: self.witness(name) == ["began", "ended"], f"{name} ends")


Moment = Callable[[Life, Callable[[], None]], None]


def submitted(life: Life, full: Callable[[], None]) -> None:
    life.submit("job")
    full()


def folder_is_made(life: Life, full: Callable[[], None]) -> None:
    life.submit("job")
    life.until(lambda: life.folder("job").exists(), "its folder is made")
    full()


def shim_is_started(life: Life, full: Callable[[], None]) -> None:
    life.submit("job")
    life.until(lambda: (life.folder("job") / "spec.json").exists(), "its shim is started")
    full()


def it_begins(life: Life, full: Callable[[], None]) -> None:
    life.submit("job")
    life.began("job")
    full()


def it_runs(life: Life, full: Callable[[], None]) -> None:
    life.submit("job")
    life.until(lambda: life.state("job") == "RUNNING", "it runs")
    full()


def it_ends_on_the_full_disk(life: Life, full: Callable[[], None]) -> None:
    it_runs(life, full)
    life.go("job")
    life.ended("job")


def it_fails_on_the_full_disk(life: Life, full: Callable[[], None]) -> None:
    life.submit("job", code=3)
    life.began("job")
    full()
    life.go("job")
    life.ended("job")


def its_result_is_written(life: Life, full: Callable[[], None]) -> None:
    life.submit("job")
    life.began("job")
    life.go("job")
    life.until(lambda: (life.folder("job") / "exit.json").exists(), "its result is written")
    full()


def it_ends_and_the_agent_is_killed(life: Life, full: Callable[[], None]) -> None:
    it_runs(life, full)
    life.cell.kill("agent-n1")
    life.go("job")
    life.ended("job")
    life.cell.kill("agent-n1")


def it_ends_and_all_services_are_killed(life: Life, full: Callable[[], None]) -> None:
    it_runs(life, full)
    life.go("job")
    life.ended("job")
    for name in SERVICES:
        life.cell.kill(name)


def it_ends_and_everything_is_killed_again_and_again(life: Life, full: Callable[[], None]) -> None:
    it_runs(life, full)
    life.go("job")
    for _ in range(3):
        for name in (*SERVICES, "agent-n1"):
            life.cell.kill(name)
        time.sleep(2.0)
    life.ended("job")


def it_waits_for_a_gpu_that_becomes_free(life: Life, full: Callable[[], None]) -> None:
    for name in ("before", "also", "again"):
        life.submit(name)
        life.began(name)
    life.submit("job")
    life.until(lambda: life.state("job") == "QUEUED", "it waits")
    full()
    life.go("before")
    life.ended("before")


MOMENTS = cases(
    submitted,
    it_ends_on_the_full_disk,
    it_ends_and_everything_is_killed_again_and_again,
    thorough=(
        folder_is_made,
        shim_is_started,
        it_begins,
        it_runs,
        it_fails_on_the_full_disk,
        its_result_is_written,
        it_ends_and_the_agent_is_killed,
        it_ends_and_all_services_are_killed,
        it_waits_for_a_gpu_that_becomes_free,
    ),
)


@pytest.mark.thorough
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_disk_that_is_full_at_a_moment_of_a_jobs_life(moment: Moment, tmp_path: Path):
    said: list[str] = []
    with disk(tmp_path / "disk", DISK_BYTES) as folder:
        plan = CellPlan(
            state_dir=folder / "cell",
            gateway_port=free_port(),
            settings={"SANJAYA_DISK_RESERVE_BYTES": "65536"},
        )
        with Cell(plan, said.append) as cell, Client(plan.gateway_url) as client:
            life = Life(cell, client, tmp_path)
            life.submit("first")
            life.go("first")
            life.submit("beside")
            life.began("beside")
            life.until(lambda: life.state("first") == "SUCCEEDED", "the first job ends")
            ballasts: list[Path] = []
            moment(life, lambda: ballasts.append(fill(folder)))
            fill_until(folder, time.monotonic() + (LONG_S if moment is it_ends_on_the_full_disk else FULL_S))
            ballasts[0].unlink()
            for name in life.ids:
                life.go(name)
            life.until(lambda: all(life.state(name) in FINAL for name in life.ids), "all jobs end")
            states = {name: life.state(name) for name in life.ids}
            failed = moment is it_fails_on_the_full_disk
            assert states == {name: "FAILED" if failed and name == "job" else "SUCCEEDED" for name in life.ids}
            life.until(lambda: life.is_taken("after"), "a new job is taken")
            life.go("after")
            life.until(lambda: life.state("after") == "SUCCEEDED", "a new job runs")
            for name in life.ids:
                assert life.witness(name) == ["began", "ended"], name
            assert set(cell.pids()) == set(cell.children)
            log = tmp_path / "log.jsonl"
            fetch(client, log)
            check_log(log, list(life.ids.values()))

        assert nothing_left_of(tmp_path) == []


def fill_until(folder: Path, deadline: float) -> None:
    """Keep the disk full: what is given back is taken at once."""
    while time.monotonic() < deadline:
        fill(folder)
        time.sleep(0.05)
