"""Turns become longer the further a forward run is, and the number of steps is the same on any machine."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.forecast.branch import Branch
from libs.forecast.expected import FORWARD, MOST_LOOKS, MOST_STEPS, expected_start
from libs.forecast.turns import LONGEST_S, ROUNDS_BEFORE_LONGER, TURNS_BEFORE_LONGER, Turns
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario, Spec
from tests.unit.forecast.crowded_cell import stopped_at

HOURS = 50


def crowded(policy: str) -> Simulation:
    """Two jobs take turns for many hours on all GPUs; a third one has to wait for an end, as no more may take part."""
    scenario = Scenario().servers(4, v100=4).setting("placement", "max_height", 2.0)
    scenario.plan(0.0, PolicyChanged(policy=policy, requested_by=OPERATOR))
    for number in range(3):
        runs_s = HOURS / 2 * 3600.0
        spec = Spec("m").gpus(4).runs(runs_s).with_(total_steps=runs_s, throughputs={"v100": 1.0})
        scenario.job(f"job-{number}", at=float(number), spec=spec)
    return stopped_at(300.0, scenario)


def test_a_start_far_away_takes_few_steps_and_is_as_exact_as_it_matters():
    simulation = crowded("gandiva")
    assert HOURS * 3600.0 / 60.0 > MOST_STEPS, "with turns of one length the run would not come so far"
    expected = expected_start(Branch(simulation.replicas, simulation.now_s), "job-2")
    assert expected.how == FORWARD
    assert expected.steps < MOST_STEPS / 2
    assert expected.in_s == pytest.approx(HOURS * 3600.0, rel=1.0 / TURNS_BEFORE_LONGER)


@pytest.mark.parametrize(
    ("policy", "setting", "before"),
    [
        ("gandiva", "slice_s", TURNS_BEFORE_LONGER),
        ("max_min_fairness", "round_s", ROUNDS_BEFORE_LONGER),
        ("backfill", "", 1),
    ],
)
def test_only_what_the_policy_in_force_has_as_turns_is_lengthened(policy: str, setting: str, before: int):
    simulation = crowded(policy)
    branch = Branch(simulation.replicas, simulation.now_s)
    now = branch.present("")
    turns = Turns(branch, now)
    assert (now.turn_setting, now.turn_s) == (setting, now.settings.get(setting, 0.0))
    for times, doubled in ((before - 1, 1), (before, 2), (2 * before - 1, 2), (2 * before, 4)):
        branch.advance_to(simulation.now_s + times * now.turn_s)
        turns.lengthen()
        changed = {**now.settings, **({setting: doubled * now.turn_s} if setting else {})}
        assert branch.present("").settings == changed


def test_turns_do_not_become_longer_than_it_matters():
    simulation = crowded("gandiva")
    branch = Branch(simulation.replicas, simulation.now_s)
    turns = Turns(branch, branch.present(""))
    branch.advance_to(1e12)
    for _ in range(100):
        turns.lengthen()
    assert LONGEST_S / 2 < branch.present("").turn_s <= LONGEST_S


def test_the_more_jobs_there_are_the_fewer_steps_are_played():
    scenario = Scenario().servers(4, v100=4).job("runs", 4, runs_s=1e6)
    for number in range(399):
        scenario.job(f"job-{number:03}", 4, at=1.0 + number / 1000, runs_s=10.0)
    simulation = stopped_at(5.0, scenario)
    expected = expected_start(Branch(simulation.replicas, simulation.now_s), "job-398")
    assert expected.steps == MOST_LOOKS // 400
