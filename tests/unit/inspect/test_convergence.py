"""Figure 9 of the Philly study from a log: losses made for it, and a job that asked to be stopped."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from libs.contracts.introspection import JobConverged
from libs.contracts.jobs import JobSpec
from libs.inspect.convergence import EPOCHS_OF_PASSED, JobCurve, curves_of, figure_9
from libs.inspect.verify import verify
from libs.sim.learning import LearningCurve
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, events, log_of
from services.roster import SERVICES

EPOCHS, EPOCH_S = 10, 100.0
EARLY = (9.0, 5.0, 1.0005, 1.0004, 1.0003, 1.0002, 1.0001, 1.0, 1.0, 1.0)
"""Near its lowest loss after 3 epochs, at it after 8."""
LATE = (9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.5, 1.0)
FLAT = (9.0, 1.0005, 1.0004, 1.0003, 1.0002, 1.0001, 1.00009, 1.00008, 1.00007, 1.0)


@dataclass(frozen=True, kw_only=True)
class Given(LearningCurve):
    """Losses as they are written down."""

    losses: Sequence[float]

    def value(self, step: int, luck: random.Random) -> float:
        """That of the epoch."""
        return self.losses[step - 1]


def surface(spec: JobSpec) -> LearningCurve | None:
    losses = {"early": EARLY, "late": LATE, "flat": FLAT}.get(spec.name.split("-")[0])
    if losses is None:
        return None
    fields = {"first": 0.0, "limit": 0.0, "rate": 0.0, "bend": 1.0}
    return Given(metric="loss", reports=EPOCHS, losses=losses, **fields)


def trained(*names: str, **wishes: object) -> Simulation:
    """Jobs of two GPUs; an epoch takes 100 s, the last one is told a little before the end."""
    scenario = Scenario().servers(v100=8).options(surface=surface)
    for name in names:
        scenario.job(name, gpus=2, runs_s=EPOCH_S * (EPOCHS + 0.5), **wishes)
    return scenario.run(SERVICES)


def of(simulation: Simulation) -> list[JobCurve]:
    return curves_of(simulation.log.control)


def test_the_epochs_and_the_gpu_time_of_a_curve():
    [curve] = of(trained("early-1", "silent"))
    assert (curve.job_id, curve.status, curve.epochs) == ("early-1", "passed", 10)
    assert (curve.best_epoch, curve.near_epoch) == (8, 3)
    assert (curve.gpu_s, curve.gpu_s_after) == pytest.approx((2000, 1400))


def test_the_four_numbers_on_curves_made_for_them():
    passed = figure_9(of(trained("early-1", "late-1", "flat-1", "flat-2")), "passed", EPOCHS_OF_PASSED)
    assert (passed.jobs, passed.best_at_last_ratio, passed.near_by_ratio) == (4, 0.75, 0.75)
    assert passed.gpu_time_after_ratio == pytest.approx((1400 + 0 + 1600 + 1600) / 8000)
    nothing = figure_9(of(trained("silent")), "killed", 0.5)
    assert (nothing.jobs, nothing.near_by_ratio, nothing.gpu_time_after_ratio) == (0, None, None)


def test_a_simulated_job_is_stopped_as_a_live_one_and_the_log_can_be_verified():
    simulation = trained("flat-1", when_converged="stop", converge_epochs=3)
    [curve] = of(simulation)
    assert (curve.status, curve.epochs) == ("killed", 5)
    [fact] = events(simulation, JobConverged)
    assert (fact.epoch, fact.best_epoch, fact.converged_epoch) == (5, 5, 2)
    assert fact.gpu_s_since == pytest.approx(600)
    assert verify(log_of(simulation), SERVICES).ok
