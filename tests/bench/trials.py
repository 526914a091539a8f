"""Trial runs on Philly's trace, with failures drawn as the Philly study counted them, beside the same without trials.

    python -m tests.bench.trials [--data ../shared/data] [--first 0] [--jobs 16000] [--gpus 512]

Of the failures of jobs of more than four GPUs whose cause is the program, so many happen in a trial. What a trial saves
is the GPU time that those jobs used less than without trials; all jobs together pay for the trials that pass.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from libs.cli.simulation import simulation_of
from libs.contracts.admission import TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.placement import AttemptFailed
from libs.sim.choice import Choice, Failures
from libs.sim.failing import EARLY_S
from libs.sim.simulation import Simulation
from libs.sim.throughputs import NO_THROUGHPUTS
from libs.sim.traces import TraceJob, read_trace
from tests.bench.report import Report

DATA = Path("../shared/data")
ABOVE_GPUS = 4


def ran(jobs: list[TraceJob], gpus: int, *, above_gpus: int, pool: int = 0) -> Simulation:
    """The jobs, to the end of the last; `pool`: servers of them that are set apart for trials."""
    choice = Choice(
        policy="backfill",
        cluster=f"v100={gpus}",
        gpus_per_server=8,
        failures=Failures.TABLE6,
        trial_above_gpus=above_gpus,
        trial_pool=pool,
    )
    simulation = simulation_of(jobs, NO_THROUGHPUTS, choice, keep_log=True)
    simulation.run()
    return simulation


def measured(simulation: Simulation, wide: set[str]) -> dict[str, Any]:
    """What is compared."""
    said = [each.event for each in simulation.log.control]
    outcomes = simulation.outcomes
    return {
        **failures(said, wide),
        "trials_skipped": sum(isinstance(e, TrialSkipped) for e in said),
        "median_wait_s": round(median(outcome.queue_s for outcome in outcomes.values()), 1),
        "median_wait_wide_s": round(median(outcomes[job_id].queue_s for job_id in wide), 1),
        "gpu_hours": round(sum(outcome.gpu_s for outcome in outcomes.values()) / 3600),
        "gpu_hours_of_wide_failed": round(
            sum(outcomes[job_id].gpu_s for job_id in wide if outcomes[job_id].status == "FAILED") / 3600
        ),
    }


def failures(said: list[Event], wide: set[str]) -> dict[str, int]:
    """How many failures of wide jobs the program has caused, and how many of them a trial has met or could have.

    A trial meets what fails early. Of the failures that come early, it does not meet those of a later attempt than the
    one that it came before, nor those of jobs of which it was skipped. So the first failures of jobs are counted apart.
    """
    in_trial = {(e.job_id, e.attempt): e.trial for e in said if isinstance(e, AttemptFailed)}
    ran_s = {(e.job_id, e.attempt): e.ran_s for e in said if isinstance(e, JobExited)}
    passed = {e.job_id for e in said if isinstance(e, TrialPassed)}
    classified = [e for e in said if isinstance(e, FailureClassified) and e.job_id in wide]
    own = [e for e in classified if e.category == "user"]
    early = [e for e in own if in_trial[e.job_id, e.attempt] or ran_s[e.job_id, e.attempt] < EARLY_S]
    met = [e for e in own if in_trial[e.job_id, e.attempt]]
    first = {e.job_id: e for e in reversed(classified)}
    first_own = [e for e in first.values() if e.category == "user"]
    repeats = [e for e in early if e not in met and e.job_id in passed and first[e.job_id] is not e]
    return {
        "failures_by_program": len(own),
        "of_them_within_5_min": len(early),
        "of_them_in_trials": len(met),
        "early_after_a_passed_trial": len(repeats),
        "first_failures_by_program": len(first_own),
        "of_the_first_in_trials": sum(in_trial[e.job_id, e.attempt] for e in first_own),
    }


def main() -> None:
    """Run both and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=16_000)
    parser.add_argument("--gpus", type=int, default=512)
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"{arguments.data}: no such folder; nothing is measured without the data")
    trace = read_trace(arguments.data / "traces" / "philly-early.csv")
    jobs = list(trace)[arguments.first : arguments.first + arguments.jobs]
    wide = {job.job_id for job in jobs if job.gpus > ABOVE_GPUS}
    report = Report("trials", "Trial runs of wide jobs")
    for name, above, pool in (
        ("without trials", 0, 0),
        ("with trials", ABOVE_GPUS, 0),
        ("with trials, one server set apart for them", ABOVE_GPUS, 1),
    ):
        simulation = ran(jobs, arguments.gpus, above_gpus=above, pool=pool)
        report.row(name, jobs=len(jobs), wide=len(wide), **measured(simulation, wide))
    report.write()


if __name__ == "__main__":
    main()
