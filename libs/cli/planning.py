"""Before anything runs: solve an allocation, simulate a trace."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from libs.cli.context import FAILED, USAGE, fail
from libs.cli.policy_options import Guests, HeterogeneityAgnostic, SpaceSharing, WaterFilling
from libs.cli.progress import progress
from libs.cli.writing import check_writable, write_text
from libs.sim.choice import Choice, Failures
from libs.sim.sharing.beside import Beside

LONGEST_S = 1e9
"""Longer rounds and overheads are taken for mistakes."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (solve, simulate):
        app.command()(command)


def solve(
    file: Annotated[str, typer.Argument(help="policy-problem/1, JSON; - for standard input.")],
    out: Annotated[str, typer.Option(help="policy-solution/1, JSON; - for standard output.")] = "-",
) -> None:
    """Compute the shares of time that a policy gives to jobs: what the placement service would do."""
    from libs.cli.problems import read_problem, solution_document
    from libs.policies.allocation.solve import solve as solution_of
    from libs.policies.problem import SolverFailed

    problem = read_problem(file)
    check_writable(out)
    began = time.perf_counter()
    try:
        solution = solution_of(problem)
    except SolverFailed as error:
        fail(f"{file}: no optimum was found: {error}", FAILED)
    took_s = time.perf_counter() - began
    write_text(json.dumps(solution_document(solution, took_s), indent=1) + "\n", out)


def simulate(
    trace: Annotated[str, typer.Option(help="The jobs: traces/1, CSV; - for standard input.")],
    cluster: Annotated[str, typer.Option(help="GPUs of each type: v100=36,p100=36.")],
    throughputs: Annotated[
        str | None, typer.Option(help="Steps per second by configuration and GPU type: throughputs/1, JSON.")
    ] = None,
    gpus_per_server: Annotated[int, typer.Option(min=1, help="GPUs of each server.")] = 4,
    policy: Annotated[str, typer.Option(help="As `sanjaya policy set` takes it.")] = "backfill",
    guests: Guests = None,
    models: Annotated[
        str | None, typer.Option(help="What jobs ask of GPUs that they share, by model: job-models/1, JSON.")
    ] = None,
    beside: Annotated[
        Beside, typer.Option(help="With --models, how jobs on a GPU are kept from each other: antman, or less.")
    ] = Beside.ANTMAN,
    space_sharing: SpaceSharing = False,
    heterogeneity_agnostic: HeterogeneityAgnostic = False,
    references: Annotated[
        int | None,
        typer.Option(
            min=0, help="So many configurations per number of GPUs were measured in pairs; others are estimated."
        ),
    ] = None,
    profiled: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="With --references: part of their pairs with others that was measured too.",
        ),
    ] = 0.0,
    water_filling: WaterFilling = False,
    round_s: Annotated[float, typer.Option("--round-s", min=1, help="Length of a round.")] = 360.0,
    slice_s: Annotated[float, typer.Option("--slice-s", min=1, help="Length of a time slice (gandiva).")] = 60.0,
    start_delay_s: Annotated[
        float, typer.Option("--start-delay-s", min=0, help="From the order to the start of a task.")
    ] = 0.0,
    suspend_delay_s: Annotated[
        float, typer.Option("--suspend-delay-s", min=0, help="From the order to free GPUs.")
    ] = 0.0,
    resume_delay_s: Annotated[
        float, typer.Option("--resume-delay-s", min=0, help="From free GPUs to training on.")
    ] = 0.0,
    move_delay_s: Annotated[
        float | None, typer.Option("--move-delay-s", min=0, help="Jobs move live, and stand still so long (gandiva).")
    ] = None,
    profile_every_s: Annotated[
        float | None,
        typer.Option(
            "--profile-every-s",
            min=1,
            help="Measure running jobs so often: policies and `sanjaya interference` use it.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn: the same seed gives the same log.")] = 0,
    checkpoint_overhead_s: Annotated[
        float, typer.Option("--checkpoint-overhead-s", min=0, help="Added to each start from a checkpoint.")
    ] = 0.0,
    not_restartable: Annotated[
        bool, typer.Option("--not-restartable", help="Jobs keep no checkpoints: they are suspended where they are.")
    ] = False,
    failures: Annotated[
        Failures,
        typer.Option(
            help="trace: as its columns status and attempts say; table6: drawn as the Philly study counted; none."
        ),
    ] = Failures.NONE,
    tenants: Annotated[
        str | None, typer.Option(help="Guarantees: CSV with tenant and servers, or tenant, guarantee, limit, parent.")
    ] = None,
    trial_above_gpus: Annotated[
        int, typer.Option("--trial-above-gpus", min=0, help="Wider jobs run a trial on one GPU first. 0: none does.")
    ] = 0,
    trial_pool: Annotated[
        int, typer.Option("--trial-pool", min=0, help="So many servers, the last ones, are set apart for trials.")
    ] = 0,
    measure: Annotated[
        str | None, typer.Option(help="FIRST:END: results of these jobs alone, in order of arrival.")
    ] = None,
    out: Annotated[str, typer.Option(help="simulation-result/1, JSON; - for standard output.")] = "-",
    log: Annotated[Path | None, typer.Option(help="Also write the log of the run, as export does.")] = None,
) -> None:
    """Run a trace through the services on a virtual clock."""
    from libs.cli.simulation import run

    bounds = None if measure is None else _bounds(measure)
    if profiled and (references is None or not space_sharing):
        fail(f"--profiled {profiled:g}: expected with --space-sharing and --references", USAGE)
    choice = Choice(
        policy=policy,
        cluster=cluster,
        gpus_per_server=gpus_per_server,
        seed=seed,
        guests=guests,
        profile_every_s=profile_every_s,
        models=models,
        beside=beside,
        space_sharing=space_sharing,
        heterogeneity_agnostic=heterogeneity_agnostic,
        water_filling=water_filling,
        round_s=round_s,
        slice_s=slice_s,
        start_delay_s=start_delay_s,
        suspend_delay_s=suspend_delay_s,
        resume_delay_s=resume_delay_s,
        move_delay_s=move_delay_s,
        checkpoint_overhead_s=checkpoint_overhead_s,
        restartable=not not_restartable,
        references=references,
        profiled=profiled,
        failures=failures,
        trial_above_gpus=trial_above_gpus,
        trial_pool=trial_pool,
        measure=bounds,
    )
    _check_lengths(choice)
    with progress("simulating") as watch:
        run(choice, trace=trace, throughputs=throughputs, tenants=tenants, out=out, log=log, watch=watch)


def _bounds(measure: str) -> tuple[int, int]:
    first, colon, end = measure.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        fail(f"--measure {measure!r}: expected FIRST:END with FIRST below END, such as 4000:5000", USAGE)
    return int(first), int(end)


def _check_lengths(choice: Choice) -> None:
    lengths = {
        "--round-s": choice.round_s,
        "--slice-s": choice.slice_s,
        "--start-delay-s": choice.start_delay_s,
        "--suspend-delay-s": choice.suspend_delay_s,
        "--resume-delay-s": choice.resume_delay_s,
        "--move-delay-s": choice.move_delay_s or 0.0,
        "--profile-every-s": choice.profile_every_s or 0.0,
        "--checkpoint-overhead-s": choice.checkpoint_overhead_s,
    }
    for option, seconds in lengths.items():
        if not seconds <= LONGEST_S:  # true of NaN, too
            fail(f"{option} {seconds}: expected at most {LONGEST_S:g} seconds", USAGE)
