"""Sweeps in simulation: trials are played, judged by their curves, and the whole is replayable."""

from __future__ import annotations

from typing import Any

import pytest

from libs.cli.executing import execute
from libs.cli.simulation import simulation_of
from libs.contracts.sweeps import SweepEnded, TrialPruned
from libs.inspect.logs import simulated
from libs.inspect.verify import verify
from libs.sim.choice import Choice
from libs.sim.simulation import Simulation
from libs.studies.experiments.runs import RunSpec
from libs.studies.generators.sweep import SweepWorkload
from services.roster import SERVICES

SMALL = SweepWorkload(trials=24, place=20, trial_s=600.0, reports=20, target=0.55, favourites=2)


def played(workload: SweepWorkload, policy: str) -> Simulation:
    choice = Choice(policy=policy, cluster="p40=4", slice_s=20.0)
    simulation = simulation_of(
        [], workload.rates(), choice, requests=workload.requests(0), surface=workload.surface, keep_log=True
    )
    simulation.run()
    return simulation


def document(**changes: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {"policy": "gandiva", "cluster": "p40=4", "slice_s": 20.0, "workload": SMALL}
    return execute(RunSpec(**wanted | changes))


def test_a_sweep_ends_when_a_trial_reaches_the_target():
    simulation = played(SMALL, "gandiva")
    events = [envelope.event for envelope in simulation.log.control]
    (ended,) = [event for event in events if isinstance(event, SweepEnded)]
    assert ended.outcome == "target_reached"
    assert ended.best_value is not None and ended.best_value >= SMALL.target
    assert any(isinstance(event, TrialPruned) for event in events)
    assert all(job.status in ("SUCCEEDED", "CANCELLED") for job in simulation.outcomes.values())
    assert len(simulation.outcomes) == SMALL.trials


def test_every_decision_of_a_sweep_is_derived_again():
    simulation = played(SMALL, "gandiva")
    positions = {name: replica.next_offset for name, replica in simulation.replicas.items()}
    found = verify(simulated("test", simulation.log.control, simulation.log.orders, positions), SERVICES)
    assert found.differences == 0, found.details


def test_a_forged_trial_is_noticed():
    """A job that claims to be a trial, and that no sweep has asked for."""
    simulation = played(SMALL, "gandiva")
    control = list(simulation.log.control)
    place, arrived = next((i, e) for i, e in enumerate(control) if e.source == "sweeps")
    del control[place]
    positions = {name: replica.next_offset for name, replica in simulation.replicas.items()}
    found = verify(simulated("test", control, simulation.log.orders, positions), SERVICES)
    assert found.differences > 0
    assert arrived.event.owner == "sweeps"


def test_the_same_trials_are_tried_whatever_the_policy():
    sharing, fifo = document(), document(policy="strict_fifo")
    assert [row["job_id"] for row in sharing["jobs"]] == [row["job_id"] for row in fifo["jobs"]]


def test_turns_and_early_judgement_find_the_target_sooner():
    plain = SweepWorkload(trials=24, place=20, trial_s=600.0, reports=20, target=0.55, give_up_below=0.3)
    (sharing,), (fifo,) = document()["sweeps"], document(policy="strict_fifo", workload=plain)["sweeps"]
    assert sharing["outcome"] == fifo["outcome"] == "target_reached"
    assert sharing["took_s"] < fifo["took_s"]
    assert sharing["best_so_far"] == sorted(sharing["best_so_far"])


@pytest.mark.parametrize("policy", ["gandiva", "backfill"])
def test_a_target_out_of_reach_ends_with_all_trials_over(policy: str):
    hopeless = SweepWorkload(trials=6, place=0, trial_s=60.0, reports=10)
    (row,) = document(policy=policy, workload=hopeless)["sweeps"]
    assert row["outcome"] == "exhausted" and row["pruned"] + row["completed"] == 6
