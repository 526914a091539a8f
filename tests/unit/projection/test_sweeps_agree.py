"""What users see of a sweep is what the sweeps service decides by, whatever is reported in whatever order."""

from __future__ import annotations

import random

import pytest

from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import SweepCancelRequested
from libs.contracts.placement import JobCancelled, JobSucceeded
from libs.contracts.read_models import FINAL_SWEEP_STATES, SweepRow, TrialRow
from libs.contracts.searching import Pruner, Sampler
from libs.testing.core_case import CoreCase
from services.sweeps.core.state import State
from services.sweeps.service import SERVICE
from tests.unit.projection.story import Story, reason
from tests.unit.projection.sweep_story import job_of, report, sweep_arrived


def happens(dice: random.Random) -> Event:
    """Something that the world may say of one of six trials."""
    number = dice.randrange(6)
    kind = dice.random()
    if kind < 0.85:
        step, accuracy = dice.randrange(1, 9), dice.randrange(10) / 10
        return report(number, step, accuracy, attempt=dice.randint(1, 2))
    about = {"job_id": job_of(number), "attempt": 1}
    if kind < 0.9:
        return JobSucceeded(**about)
    if kind < 0.95:
        return JobAbandoned(**about, exit_code=1, signal=None, reason=reason())
    return (
        JobCancelled(**about, reason=reason()) if kind < 0.99 else SweepCancelRequested(sweep_id="s", requested_by="")
    )


def assert_agree(story: Story, state: State) -> None:
    sweep = state.sweeps.get("s")
    row = story.rows.get(SweepRow, "s")
    assert row is not None
    if sweep is None:  # over, and forgotten by the service
        assert row.state in FINAL_SWEEP_STATES
        return
    best = sweep.best()
    expected = (None, None) if best is None else (best[0].number, best[1].value)
    assert (row.best_trial, row.best_value) == expected
    for trial in sweep.trials:
        shown = story.rows.get(TrialRow, trial.job_id)
        assert shown is not None
        top = sweep.best_of(trial)
        assert (shown.reports, shown.best_value) == (len(trial.reports), top.value if top else None)
        under_way = trial.outcome == ""
        assert (shown.ended_s is None, shown.favourite) == (under_way, under_way and trial.favourite)


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_and_the_counts_are_the_services(seed: int, maximize: bool) -> None:
    dice = random.Random(seed)
    core, story = CoreCase(SERVICE), Story()
    target = None if seed % 2 else (0.9 if maximize else 0.0)
    fields = {"trials": 6, "at_once": 3, "sampler": Sampler.RANDOM, "pruner": Pruner.MEDIAN, "target": target}
    told: list[Event] = [sweep_arrived(maximize=maximize, last_step=8.0, favourites=1, **fields)]
    told += [happens(dice) for _ in range(150)]
    for event in told:
        story.says(event, *core.give(event, at=float(story.offset)))
        assert_agree(story, core.replica.state)
    assert story.rows.all(TrialRow)
