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
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.placement import AttemptFailed
from libs.sim.choice import Choice, Failures
from libs.sim.simulation import Simulation
from libs.sim.throughputs import NO_THROUGHPUTS
from libs.sim.traces import TraceJob, read_trace
from tests.bench.report import Report

DATA = Path("../shared/data")
ABOVE_GPUS = 4


def ran(jobs: list[TraceJob], gpus: int, *, above_gpus: int) -> Simulation:
    """The jobs, to the end of the last."""
    choice = Choice(
        policy="backfill",
        cluster=f"v100={gpus}",
        gpus_per_server=8,
        failures=Failures.TABLE6,
        trial_above_gpus=above_gpus,
    )
    simulation = simulation_of(jobs, NO_THROUGHPUTS, choice, keep_log=True)
    simulation.run()
    return simulation


def measured(simulation: Simulation, wide: set[str]) -> dict[str, Any]:
    """What is compared."""
    said = [each.event for each in simulation.log.control]
    in_trial = {(e.job_id, e.attempt): e.trial for e in said if isinstance(e, AttemptFailed)}
    jobs_in_trial = {job_id for (job_id, _), trial in in_trial.items() if trial}
    own = [e for e in said if isinstance(e, FailureClassified) and e.category == "user" and e.job_id in wide]
    outcomes = simulation.outcomes
    return {
        "failures_by_program": len(own),
        "of_them_in_trials": sum(in_trial[e.job_id, e.attempt] for e in own),
        "jobs_failed_by_program": len({e.job_id for e in own}),
        "jobs_failed_by_program_in_trials": len({e.job_id for e in own} & jobs_in_trial),
        "median_wait_s": round(median(outcome.queue_s for outcome in outcomes.values()), 1),
        "median_wait_wide_s": round(median(outcomes[job_id].queue_s for job_id in wide), 1),
        "gpu_hours": round(sum(outcome.gpu_s for outcome in outcomes.values()) / 3600),
        "gpu_hours_of_wide_failed": round(
            sum(outcomes[job_id].gpu_s for job_id in wide if outcomes[job_id].status == "FAILED") / 3600
        ),
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
    for name, above in (("without trials", 0), ("with trials", ABOVE_GPUS)):
        report.row(name, jobs=len(jobs), wide=len(wide), **measured(ran(jobs, arguments.gpus, above_gpus=above), wide))
    report.write()


if __name__ == "__main__":
    main()
