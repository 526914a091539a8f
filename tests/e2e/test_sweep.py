"""A sweep on a running cell: real trials take turns, the hopeless are given up, and the log can be audited."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.client.client import FINAL, SWEEP_OVER
from libs.contracts.agent import JobSuspended, MetricsReported
from libs.contracts.sweeps import SweepEnded, TrialPromoted, TrialPruned, TrialStarted
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.test_rounds import wait_until

pytestmark = pytest.mark.e2e

TRIALS, STEPS = 6, 40
SCRIPT = f"""
import itertools
import pathlib
import sys
import time
from sanjaya_job import parameters, report

size, judged, done = parameters()["size"], pathlib.Path(sys.argv[1]), 0
for step in itertools.count(1):
    time.sleep(0.3)
    done += judged.exists()
    report(step, score=size * (1 - 1 / step) if done else min(size * (1 - 1 / step), 0.79))
    if done == {STEPS}:
        break
"""
"""No trial reaches the target, nor its end, before the search has judged: how many reports of it are heard until then
is a question of the machine's speed."""
SPACE = {"size": {"type": "choice", "choices": [0.1, 0.2, 0.9]}}


def test_trials_take_turns_until_one_reaches_the_target(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    judged = tmp_path / "judged"
    plan = CellPlan(state_dir=tmp_path / "cell", agents=1, gpus_per_agent=2, gateway_port=free_port(), kafka="")
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_policy("gandiva")
        client.set_setting("placement", "slice_s", 4)
        sweep = client.submit_sweep(
            {
                "name": "sizes",
                "trial": {"command": shlex.join([sys.executable, str(script), str(judged)]), "gpus": 1},
                "space": SPACE,
                "objective": {"metric": "score", "direction": "maximize", "target": 0.8},
                "trials": TRIALS,
                "sampler": "random",
                "last_step": STEPS,
                "favourites": 1,
                "seed": 3,
            }
        )["id"]
        wait_until(lambda: has_judged(client.sweep(sweep)["trials"]))
        judged.touch()
        wait_until(lambda: client.sweep(sweep)["state"] in SWEEP_OVER)
        found = client.sweep(sweep)
        wait_until(lambda: all(job["state"] in FINAL for job in client.jobs()))
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    assert found["state"] == "TARGET_REACHED"
    assert found["best_value"] >= 0.8 and found["best_parameters"] == {"size": 0.9}
    check_log(tmp_path / "log.jsonl")
    assert nothing_left_of(tmp_path) == []


def has_judged(trials: list[dict[str, Any]]) -> bool:
    best_first = any(trial["favourite"] for trial in trials if trial["parameters"]["size"] == 0.9)
    return best_first and any(trial["state"] == "PRUNED" for trial in trials)


def check_log(path: Path) -> None:
    said = [envelope.event for envelope in checked(path)]
    sizes = {event.number: event.parameters["size"] for event in said if isinstance(event, TrialStarted)}
    assert len(sizes) == TRIALS
    given_up = [event.number for event in said if isinstance(event, TrialPruned)]
    assert given_up and all(float(sizes[number]) < 0.8 for number in given_up)
    assert any(sizes[event.number] == 0.9 for event in said if isinstance(event, TrialPromoted))
    assert any(isinstance(event, JobSuspended) for event in said), "more trials than GPUs take turns"
    assert any(isinstance(event, MetricsReported) for event in said)
    [ended] = [event for event in said if isinstance(event, SweepEnded)]
    assert ended.outcome == "target_reached"
