"""With `wait_for_locality_s`: gangs wait for less than they gain and no longer than they may, and all of them start."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.gateway import IsolatedRate, PolicyChanged, ThroughputsProvided
from libs.contracts.placement import JobPlaced, JobQueued
from libs.contracts.quota import QuotaGranted
from libs.contracts.reasons import PendingReason
from libs.inspect.verify import verify
from libs.testing.builders import OPERATOR, Scenario, log_of
from libs.testing.standing import none_is_left_standing
from services.roster import SERVICES
from tests.properties.effort import whole_system
from tests.properties.test_wait_causes import look

MOST_GPUS = 8
ACQUIRE_S, BACKOFF_S = 20.0, 10.0
TRIES = 4
"""Each relaxes one step, and the last is kept until the gang has all of its GPUs."""
START_S = 60.0
"""More than all delays of one start and one end together."""


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Scenario, float]:
    """Few servers, gangs that are slower on many of them, and jobs that end earlier or later than they say."""
    luck = random.Random(draw(st.integers(0, 1 << 32)))  # drawn one by one most values would be the first
    limit_s = luck.choice((100.0, 400.0, 3000.0))
    scenario = Scenario(seed=draw(st.integers(0, 3))).servers(4, v100=4 * luck.randint(2, 5))
    scenario.plan(0.0, PolicyChanged(policy="philly", requested_by=OPERATOR))
    for name, value in (
        ("acquire_s", ACQUIRE_S),
        ("backoff_s", BACKOFF_S),
        ("relax_after", 1.0),
        ("wait_for_locality_s", limit_s),
        ("emptiest_above_gpus", 1.0),  # pairs are apart from each other, and leave parts of servers free
    ):
        scenario.setting("placement", name, value)
    kept = luck.choice((0.2, 0.5, 0.9))
    rows = [
        IsolatedRate(
            model="m", batch_size=None, gpus=gpus, steps_per_s={"v100": 1.0}, spread_steps_per_s={"v100": kept}
        )
        for gpus in range(2, MOST_GPUS + 1)
    ]
    scenario.plan(0.0, ThroughputsProvided(provided_by=OPERATOR, isolated=rows))
    for number in range(luck.randint(6, 16)):
        runs_s = luck.choice((50.0, 200.0, 400.0, 1000.0))
        said = luck.choice((None, 0.3, 1.0, 1.0, 3.0))
        fields: dict[str, Any] = {} if said is None else {"total_steps": said * runs_s, "throughputs": {"v100": 1.0}}
        gpus = luck.choice((1, 2, 2, 2, 3, 4, 4, 4, 6, MOST_GPUS)) if number > 4 else luck.choice((1, 2, 3))
        if gpus <= 6 and luck.random() < 0.3:
            fields["cpus"] = 10  # three on each server
        at = luck.choice((0.0, 5.0, 30.0, 60.0, 300.0))
        scenario.job(f"j{number}", gpus, at=at, runs_s=runs_s, model="m", **fields)
    return scenario, limit_s


@whole_system
@given(crowds())
def test_gangs_wait_for_less_than_they_gain_and_all_of_them_start(drawn: tuple[Scenario, float]):
    scenario, limit_s = drawn
    simulation = scenario.build(SERVICES)
    simulation.run(look)
    queued: dict[str, float] = {}
    waited_s: dict[str, float] = {}
    for record in simulation.records():
        event, time_s = record.envelope.event, record.envelope.time_s
        if isinstance(event, QuotaGranted):
            queued[event.job_id] = time_s
        elif isinstance(event, JobQueued) and "gain_s" in event.reason.numbers:
            assert event.reason.code == PendingReason.LOCALITY_RELAXING
            gain_s, wait_s = (float(event.reason.numbers[name]) for name in ("gain_s", "wait_s"))
            assert wait_s < gain_s and time_s + wait_s < queued[event.job_id] + limit_s
        elif isinstance(event, JobPlaced):
            waited_s[event.job_id] = time_s - queued[event.job_id]
            numbers = event.reason.numbers
            if "wait_s" in numbers:
                gain_s, wait_s = float(numbers["gain_s"]), float(numbers["wait_s"])
                assert gain_s <= wait_s or time_s + wait_s >= queued[event.job_id] + limit_s
    jobs = simulation.outcomes
    assert all(outcome.finish_s is not None for outcome in jobs.values())
    work_s = sum((outcome.finish_s or 0.0) - (outcome.first_start_s or 0.0) for outcome in jobs.values())
    bound_s = work_s + len(jobs) * (START_S + TRIES * (ACQUIRE_S + BACKOFF_S)) + limit_s
    assert max(waited_s.values()) <= bound_s
    none_is_left_standing(simulation)
    result = verify(log_of(simulation), SERVICES)
    assert result.ok, "\n".join(result.first.lines() if result.first else [])
