"""An array and a DAG of real processes on a cell with the embedded log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.testing.leftovers import nothing_left_of
from tests.e2e.test_rounds import wait_until

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("groups")
    with Cell(CellPlan(state_dir=folder, agents=1, gpus_per_agent=4, gateway_port=free_port())) as running:
        yield running
    assert nothing_left_of(folder) == []


def sanjaya(cell: Cell, *arguments: str, code: int = 0) -> str:
    environment = {**os.environ, "SANJAYA_GATEWAY": cell.plan.gateway_url}
    done = subprocess.run(
        [SANJAYA, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.strip()


def told(cell: Cell, *arguments: str) -> Any:
    return json.loads(sanjaya(cell, *arguments, "--json"))


def spans(folder: Path) -> dict[str, tuple[int, int]]:
    """{job: nanoseconds of its begin and its end}, as the jobs have written them."""
    found = {path.stem: tuple(map(int, path.read_text().split())) for path in folder.glob("*.span")}
    return {name: (span[0], span[1]) for name, span in found.items() if len(span) == 2}


def script(folder: Path, name: str) -> str:
    """Tells when it begins and ends; it does not end before there is a file `gate`."""
    wait = f"while [ ! -e {folder}/gate ]; do sleep 0.05; done; sleep 0.2"
    return f"date +%s%N > {folder}/{name}.span; {wait}; date +%s%N >> {folder}/{name}.span"


def test_an_array_of_twelve_with_three_at_once_over_kills_of_what_decides(cell: Cell, tmp_path: Path):
    array = sanjaya(
        cell,
        "submit",
        "-n",
        "many",
        "--no-upload",
        "--array",
        "0-11%3",
        "--",
        "sh",
        "-c",
        script(tmp_path, "$SLURM_ARRAY_TASK_ID"),
    )
    assert array.startswith("a-")
    after = sanjaya(
        cell, "submit", "-n", "collect", "--no-upload", "--after", "many", "--", "sh", "-c", script(tmp_path, "last")
    )
    wait_until(lambda: "DependencyNotMet" in (why := sanjaya(cell, "why", after)) and array in why)
    wait_until(lambda: len(told(cell, "jobs", array)) == 12)
    (tmp_path / "gate").touch()
    cell.kill("admission")
    cell.kill("sweeps")
    (row,) = [row for row in told(cell, "jobs") if row["name"] == "many"]
    assert (row["id"], row["jobs"]) == (array, 12)
    assert len(told(cell, "jobs", array)) == 12 and len(told(cell, "jobs", "--expand")) == 13
    assert sanjaya(cell, "wait", array).startswith(f"{array} SUCCEEDED: 12 of 12 ended")
    sanjaya(cell, "wait", after)
    found = spans(tmp_path)
    assert set(found) == {*map(str, range(12)), "last"}
    assert found["last"][0] >= max(end for name, (_, end) in found.items() if name != "last")
    most = max(sum(begin <= moment < end for begin, end in found.values()) for moment, _ in found.values())
    assert most <= 3, found
    assert told(cell, "show", "many[7]")["spec"]["env"]["SANJAYA_ARRAY_INDEX"] == "7"
    assert "array" in sanjaya(cell, "show", array) and "SUCCEEDED" in sanjaya(cell, "why", array)


def test_a_diamond_runs_in_order_and_its_broken_twin_is_rejected(cell: Cell, tmp_path: Path):
    def dag(folder: Path, first: str) -> Path:
        folder.mkdir()
        jobs = {
            "d": {"command": script(folder, "d"), "after": ["b", "c"]},
            "b": {"command": script(folder, "b"), "after": "a"},
            "c": {"command": script(folder, "c"), "after": "a"},
            "a": {"command": first},
            "clean": {"command": script(folder, "clean"), "after": "d:any"},
        }
        path = folder / f"{folder.name}.yaml"
        path.write_text(json.dumps({"jobs": jobs}))
        return path

    whole, broken = tmp_path / "diamond", tmp_path / "broken"
    good = sanjaya(cell, "submit", "--no-upload", "-f", str(dag(whole, script(whole, "a"))))
    bad = sanjaya(cell, "submit", "--no-upload", "-f", str(dag(broken, "exit 3")))
    (whole / "gate").touch()
    (broken / "gate").touch()
    cell.kill("admission")
    cell.kill("sweeps")
    assert "5 of 5 ended: 5 succeeded" in sanjaya(cell, "wait", good)
    found = spans(whole)
    assert found["a"][1] <= min(found["b"][0], found["c"][0])
    assert max(found["b"][1], found["c"][1]) <= found["d"][0] and found["d"][1] <= found["clean"][0]
    assert "FAILED" in sanjaya(cell, "wait", bad, code=1)
    states = {row["name"]: (row["state"], row["reason"]) for row in told(cell, "jobs", bad)}
    never = ("REJECTED", "DependencyNeverMet")
    assert (states["b"], states["c"], states["d"], states["a"][0], states["clean"][0]) == (
        never,
        never,
        never,
        "FAILED",
        "SUCCEEDED",
    )


def test_an_array_is_paused_resumed_given_a_priority_and_cancelled_by_one_command(cell: Cell):
    array = sanjaya(cell, "submit", "-n", "long", "--no-upload", "--array", "0-9%2", "--", "sleep", "600")
    for command in (("pause", array), ("resume", array), ("set", array, "--priority", "5"), ("cancel", array)):
        sanjaya(cell, *command)
    assert "10 of 10 ended: 10 cancelled" in sanjaya(cell, "wait", array, code=143)
    assert {row["priority"] for row in told(cell, "jobs", array)} == {5}


def test_every_decision_can_be_derived_again(cell: Cell):
    assert "0 differences" in sanjaya(cell, "replay", "--verify")
