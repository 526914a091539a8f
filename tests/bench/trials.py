"""Trial runs on Philly's trace, with failures drawn as the Philly study counted them, beside the same without trials.

    python -m tests.bench.trials [--data ../shared/data] [--first 0] [--jobs 16000] [--gpus 512]

Of the failures of jobs of more than four GPUs whose cause is the program, so many happen in a trial. What a trial saves
is the GPU time that those jobs used less than without trials; all jobs together pay for the trials that pass.

A part of a hundred failures is known to some five points only. So these are counted once more over all wide jobs of
the trace and several draws, where nothing else runs and nothing waits.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from libs.cli.simulation import simulation_of
from libs.contracts.admission import TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.gateway import SettingChanged
from libs.contracts.placement import AttemptFailed
from libs.sim.choice import Choice, Failures
from libs.sim.clusters import parse_cluster
from libs.sim.failing import EARLY_S, planned_ends
from libs.sim.options import Options
from libs.sim.simulation import Simulation
from libs.sim.throughputs import NO_THROUGHPUTS
from libs.sim.traces import TraceJob, read_trace
from libs.sim.workloads import Planned, Workload, workload_of
from services.roster import SERVICES
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


def ran_alone(jobs: list[TraceJob], wide: set[str], seed: int, *, above_gpus: int) -> Simulation:
    """The wide ones of the jobs alone, each with servers of its own; they fail as they would among all."""
    played, endings = planned_ends(jobs, Failures.TABLE6, seed)
    setting = SettingChanged(service="admission", name="trial_above_gpus", value=above_gpus, requested_by="bench")
    workload = Workload((Planned(0.0, setting),)) + workload_of([job for job in played if job.job_id in wide])
    cluster = parse_cluster("v100=8192", 8)
    simulation = Simulation(SERVICES, cluster, workload, seed=seed, options=Options(endings=endings, keep_log=True))
    simulation.run()
    return simulation


def counted_alone(jobs: list[TraceJob], draws: int) -> tuple[dict[str, int], dict[str, int]]:
    """As `failures`, over so many draws, without trials and with them.

    A trial that ends its job takes the job's later failures out of the sum that `of_them_in_trials` is a part of. So of
    the failures without trials those are counted, too, of which the jobs fail in their trials where they have them.
    """
    wide, without, tried = wide_of(jobs), Counter[str](), Counter[str]()
    for seed in range(draws):
        plain, others = (said(ran_alone(jobs, wide, seed, above_gpus=above)) for above in (0, ABOVE_GPUS))
        without.update(failures(plain, wide))
        tried.update(failures(others, wide))
        ended = {e.job_id for e in others if isinstance(e, AttemptFailed) and e.trial}
        without["of_them_of_jobs_that_fail_in_trials"] += sum(e.job_id in ended for e in by_program(plain, wide))
    return dict(without), dict(tried)


def said(simulation: Simulation) -> list[Event]:
    return [each.event for each in simulation.log.control]


def wide_of(jobs: Sequence[TraceJob]) -> set[str]:
    return {job.job_id for job in jobs if job.gpus > ABOVE_GPUS}


def measured(simulation: Simulation, wide: set[str]) -> dict[str, Any]:
    """What is compared."""
    events, outcomes = said(simulation), simulation.outcomes
    return {
        **failures(events, wide),
        "trials_skipped": sum(isinstance(e, TrialSkipped) for e in events),
        "median_wait_s": round(median(outcome.queue_s for outcome in outcomes.values()), 1),
        "median_wait_wide_s": round(median(outcomes[job_id].queue_s for job_id in wide), 1),
        "gpu_hours": round(sum(outcome.gpu_s for outcome in outcomes.values()) / 3600),
        "gpu_hours_of_wide_failed": round(
            sum(outcomes[job_id].gpu_s for job_id in wide if outcomes[job_id].status == "FAILED") / 3600
        ),
    }


def by_program(events: list[Event], wide: set[str]) -> list[FailureClassified]:
    """Failures of wide jobs whose cause is the program."""
    return [e for e in events if isinstance(e, FailureClassified) and e.job_id in wide and e.category == "user"]


def failures(events: list[Event], wide: set[str]) -> dict[str, int]:
    """How many failures of wide jobs the program has caused, and how many of them a trial has met or could have.

    A trial meets what fails early. Of the failures that come early, it does not meet those of a later attempt than the
    one that it came before, nor those of jobs of which it was skipped. So the first failures of jobs are counted apart.
    """
    in_trial = {(e.job_id, e.attempt): e.trial for e in events if isinstance(e, AttemptFailed)}
    ran_s = {(e.job_id, e.attempt): e.ran_s for e in events if isinstance(e, JobExited)}
    passed = {e.job_id for e in events if isinstance(e, TrialPassed)}
    classified = [e for e in events if isinstance(e, FailureClassified) and e.job_id in wide]
    own = by_program(events, wide)
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
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"{arguments.data}: no such folder; nothing is measured without the data")
    trace = list(read_trace(arguments.data / "traces" / "philly-early.csv"))
    jobs = trace[arguments.first : arguments.first + arguments.jobs]
    wide = wide_of(jobs)
    report = Report("trials", "Trial runs of wide jobs")
    for name, above, pool in (
        ("without trials", 0, 0),
        ("with trials", ABOVE_GPUS, 0),
        ("with trials, one server set apart for them", ABOVE_GPUS, 1),
    ):
        simulation = ran(jobs, arguments.gpus, above_gpus=above, pool=pool)
        report.row(name, jobs=len(jobs), wide=len(wide), **measured(simulation, wide))
    everywhere = f"all wide jobs of the trace alone, {arguments.draws} draws"
    sizes = {"jobs": len(trace), "wide": len(wide_of(trace))}
    for name, found in zip(("without trials", "with trials"), counted_alone(trace, arguments.draws), strict=True):
        report.row(f"{everywhere}, {name}", **sizes, **found)
    report.write()


if __name__ == "__main__":
    main()
