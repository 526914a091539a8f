"""Simulations by the dozen: generate workloads, run experiments, reproduce a paper's claims, and see the reports."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from libs.cli.context import FAILED, USAGE, fail
from libs.cli.output import is_terminal, table

if TYPE_CHECKING:
    from libs.studies.experiments.cells import Outcome, Told
    from libs.studies.experiments.runs import Result, RunSpec
    from libs.studies.reproduce.study import Study

REPORT = "report.html"
VARIED = ("cluster", "gpus_per_server", "throughputs", "round_s", "checkpoint_overhead_s", "measure", "tenant_weights")
"""Options of a run that get a column when they differ."""
Processes = Annotated[int | None, typer.Option("-j", "--processes", min=1, help="Runs at a time; default: cores.")]
Again = Annotated[bool, typer.Option("--again", help="Also what has a result, as after a change of the program.")]
RatesFile = Annotated[str | None, typer.Option("--throughputs", help="throughputs/1, JSON; default: computed rates.")]


class Inputs(NamedTuple):
    """Of the studies: their size, and files in the place of what is drawn or computed."""

    full: bool
    reduced: bool
    throughputs: str | None
    physical_trace: str | None
    queue_trace: str | None
    trace: str | None


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (generate, experiment, reproduce):
        app.command()(command)


def generate(
    kind: Annotated[str, typer.Argument(help="continuous-single, continuous-multiple, static or static-single.")],
    jobs: Annotated[int, typer.Option(min=1, help="How many are drawn.")] = 1000,
    jobs_per_hour: Annotated[float, typer.Option("--jobs-per-hour", min=0, help="Mean rate of arrivals.")] = 5.0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same jobs.")] = 0,
    throughputs: RatesFile = None,
    high_priority: Annotated[float, typer.Option(min=0, max=1, help="Part of the jobs that have weight 5.")] = 0.0,
    slo: Annotated[list[float] | None, typer.Option(help="Deadline, times the duration; one of several.")] = None,
    tenant: Annotated[list[str] | None, typer.Option(help="One of several tenants.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only configurations of these models.")] = None,
    out: Annotated[str, typer.Option(help="traces/1, CSV; - for standard output.")] = "-",
    throughputs_out: Annotated[str | None, typer.Option(help="Also write the computed rates, throughputs/1.")] = None,
) -> None:
    """Draw a workload as the Gavel paper does: Poisson arrivals, durations of half an hour to a week."""
    from libs.cli.writing import check_writable, write_text
    from libs.sim.throughputs import read_throughputs
    from libs.sim.traces import write_trace
    from libs.studies.generators.computed_rates import computed_document, computed_throughputs
    from libs.studies.generators.gavel import GavelWorkload

    for path in (out, throughputs_out or "-"):
        check_writable(path)
    workload = GavelWorkload(
        kind=kind,
        jobs=jobs,
        jobs_per_hour=jobs_per_hour,
        high_priority_share=high_priority,
        slo_factors=tuple(slo or ()),
        tenants=tuple(tenant or ("default",)),
        models=tuple(model or ()),
    )
    rates = read_throughputs(throughputs) if throughputs else computed_throughputs()
    text = io.StringIO()
    write_trace(workload.draw(seed, rates), text)
    write_text(text.getvalue(), out)
    if throughputs_out is not None:
        write_text(json.dumps(computed_document(), indent=1) + "\n", throughputs_out)


def experiment(
    grid: Annotated[str, typer.Argument(help="experiment/1, YAML; - for standard input.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the results; default: the experiment's name.")] = None,
    processes: Processes = None,
    again: Again = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run.")] = False,
) -> None:
    """Run every combination of a grid that has no result yet; write results, a table and a report."""
    from libs.studies.experiments.grids import read_grid
    from libs.studies.report.overview import overview
    from libs.studies.report.page import write_report

    found = read_grid(grid)
    folder = out or Path(found.name)
    if dry_run:
        _list(found.runs, folder)
        return
    outcome, results = _run(found.runs, folder, processes, again)
    _show(results)
    if results:
        write_report(overview(found.name, results, f"sanjaya experiment {grid}"), folder / REPORT)
        typer.echo(f"{folder / REPORT}", err=True)
    _end(outcome, folder)


def reproduce(
    paper: Annotated[str, typer.Argument(help="gavel, gandiva, antman, philly or all.")],
    out: Annotated[Path, typer.Option(help="Folder of the results and the report.")] = Path("reproduced"),
    only: Annotated[list[str] | None, typer.Option(help="Claims with an id that begins so; several.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The papers' own size: hours to days of computing.")] = False,
    throughputs: RatesFile = None,
    physical_trace: Annotated[
        str | None, typer.Option("--physical-trace", help="traces/1, CSV: the jobs of Gavel's table 3; default: drawn.")
    ] = None,
    queue_trace: Annotated[
        str | None, typer.Option("--queue-trace", help="traces/1, CSV: the jobs of AntMan's table 4; default: drawn.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="traces/1, CSV: the public trace of the Philly study; default: drawn.")
    ] = None,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="antman: fewer jobs and one seed, for a quick look.")
    ] = False,
    known: Annotated[
        Path | None, typer.Option(help="measured/1 of an earlier study of this size: its runs are not made again.")
    ] = None,
    processes: Processes = None,
    again: Again = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run.")] = False,
    judge: Annotated[
        bool, typer.Option("--judge", help="Run nothing: judge the runs that are there, also while others are made.")
    ] = False,
) -> None:
    """Check papers' claims by simulation; one report says which hold here, and why others do not."""
    from libs.studies.report.page import write_report
    from libs.studies.reproduce.keeping import read_measured, write_measured
    from libs.studies.reproduce.reporting import Part, report_of

    if paper not in (*PAPERS, ALL_PAPERS):
        fail(f"unknown paper {paper!r}; there are {', '.join(PAPERS)} and {ALL_PAPERS}", USAGE)
    inputs = Inputs(full, reduced, throughputs, physical_trace, queue_trace, trace)
    for option, given, takes in (
        ("--throughputs", throughputs, "gavel"),
        ("--physical-trace", physical_trace, "gavel"),
        ("--queue-trace", queue_trace, "antman"),
        ("--trace", trace, "philly"),
        ("--reduced", reduced or None, "antman"),
    ):
        if given is not None and paper != takes and (paper != ALL_PAPERS or option == "--reduced"):
            fail(f"{option}: the study of {paper} has inputs of its own; that of {takes} takes it", USAGE)
    if full and reduced:
        fail("--full and --reduced: expected one of them", USAGE)
    if judge and again:
        fail("--judge and --again: expected one of them", USAGE)
    if known is not None and paper == ALL_PAPERS:
        fail(f"--known: a file has the values of one paper; name it instead of {ALL_PAPERS}", USAGE)
    names = list(PAPERS) if paper == ALL_PAPERS else [paper]
    chosen = [_chosen(*PAPERS[name](inputs), only or []) for name in names]
    if only and not any(study.claims for study, _ in chosen):
        ids = ", ".join(claim.claim_id for name in names for claim in PAPERS[name](inputs)[0].claims)
        fail(f"no claim begins with {' or '.join(only)}; there are {ids}", USAGE)
    earlier = None if known is None else read_measured(known, chosen[0][1])
    for study, size in chosen:
        typer.echo(f"{study.paper}: {size}", err=True)
    runs = list({spec.cell_id: spec for study, _ in chosen for spec in study.runs(earlier)}.values())
    if dry_run:
        _list(runs, out)
        return
    outcome, results = _there(runs, out) if judge else _run(runs, out, processes, again)
    parts = []
    for study, size in chosen:
        needed = {spec.cell_id for spec in study.runs()}
        own = [result for result in results if result.spec.cell_id in needed]
        measured = study.measure(own, earlier)
        write_measured(measured, size, out / f"{study.paper}.measured.json")
        parts.append(Part(study, size, own, measured, study.judge(measured)))
    table(
        [
            [row.claim_id, row.where, row.paper, row.measured, row.accepted, row.verdict.value]
            for part in parts
            for row in part.rows
        ],
        ["CLAIM", "WHERE", "PAPER", "MEASURED", "ACCEPTED", "VERDICT"],
    )
    write_report(
        report_of(parts, f"sanjaya reproduce {paper}{' --full' if full else ' --reduced' if reduced else ''}"),
        out / REPORT,
    )
    typer.echo(f"{out / REPORT}", err=True)
    _end(outcome, out)


def _chosen(study: Study, size: str, only: list[str]) -> tuple[Study, str]:
    return (study.only(only) if only else study), size


def _gavel(inputs: Inputs) -> tuple[Study, str]:
    from dataclasses import replace

    from libs.studies.reproduce.gavel import FULL, Size, study

    plain = FULL if inputs.full else Size()
    size = replace(plain, throughputs=inputs.throughputs, physical_trace=inputs.physical_trace)
    rates = "computed rates" if inputs.throughputs is None else f"rates from {Path(inputs.throughputs).name}"
    first, end = size.window
    return study(size), f"{size.gpus} GPUs ({size.cluster}), {rates}, measured jobs {first:,} to {end:,}"


def _gandiva(inputs: Inputs) -> tuple[Study, str]:
    from libs.studies.reproduce.gandiva import FULL, Size, study

    size = FULL if inputs.full else Size()
    return study(size), f"{size.mixed_gpus} GPUs for mixed jobs, {size.trace_gpus} for the trace, in servers of four"


def _antman(inputs: Inputs) -> tuple[Study, str]:
    from dataclasses import replace

    from libs.studies.reproduce.antman import FULL, REDUCED, TRACE_GPUS, Size, study

    size = replace(FULL if inputs.full else REDUCED if inputs.reduced else Size(), queue_trace=inputs.queue_trace)
    queue = "drawn ones" if inputs.queue_trace is None else f"those of {Path(inputs.queue_trace).name}"
    jobs = f"{size.trace_jobs} jobs of the trace and {size.week_jobs} of a week on {TRACE_GPUS} GPUs"
    return study(size), f"{jobs}, {queue} on {size.queue_gpus}"


def _philly(inputs: Inputs) -> tuple[Study, str]:
    from dataclasses import replace

    from libs.studies.reproduce.philly import FULL, Size, scaling, study

    size = replace(FULL if inputs.full else Size(), trace=inputs.trace)
    source = (
        "drawn, with the sizes and run times of the public trace" if inputs.trace is None else Path(inputs.trace).name
    )
    return study(size), f"{scaling(size)} ({source})"


PAPERS = {"gavel": _gavel, "gandiva": _gandiva, "antman": _antman, "philly": _philly}
"""{paper: its study and a line about its size}."""
ALL_PAPERS = "all"


def _run(runs: Sequence[RunSpec], folder: Path, processes: int | None, again: bool) -> tuple[Outcome, list[Result]]:
    from libs.cli.executing import execute
    from libs.studies.experiments.cells import read_results, run_cells, write_overview

    with _watching() as told:
        outcome = run_cells(runs, folder, execute, processes=processes, again=again, told=told)
    write_overview(runs, folder, outcome)
    return outcome, read_results(runs, folder)


def _there(runs: Sequence[RunSpec], folder: Path) -> tuple[Outcome, list[Result]]:
    from libs.studies.experiments.cells import Outcome, read_results

    results = read_results(runs, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return Outcome(len(runs), reused=len(results)), results


@contextmanager
def _watching() -> Iterator[Told]:
    """A bar with what is running under it, on stderr, while a person watches."""
    if not (is_terminal() and sys.stderr.isatty()):
        yield lambda outcome: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[running]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=None, running="")

        def told(outcome: Outcome) -> None:
            failed = f"{len(outcome.failed)} failed  " if outcome.failed else ""
            running = failed + "  ".join(name.rpartition("-")[0] for name in outcome.running)
            bar.update(task, completed=outcome.finished, total=outcome.total, running=running)

        yield told


def _list(runs: Sequence[RunSpec], folder: Path) -> None:
    from libs.studies.experiments.cells import read_result

    cells = [[spec.cell_id, "there" if read_result(folder, spec) is not None else "to be run"] for spec in runs]
    table(cells, ["RUN", "RESULT"])


def _show(results: Sequence[Result]) -> None:
    """Means over seeds, with whatever else differs between runs."""
    from dataclasses import replace

    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(replace(result.spec, seed=0).cell_id, []).append(result)
    varied = [name for name in VARIED if len({str(getattr(result.spec, name)) for result in results}) > 1]
    cells = []
    for own in groups.values():
        spec = own[0].spec
        load = "–" if spec.jobs_per_hour is None else f"{spec.jobs_per_hour:.3g}"
        times = [_mean(own, field, "h") for field in ("avg_jct_s", "p99_jct_s", "makespan_s")]
        use = [_mean(own, "gpu_utilisation", "%"), _mean(own, "cost", "$")]
        cells.append([spec.label, load, *(str(getattr(spec, name)) for name in varied), str(len(own)), *times, *use])
    named = [name.upper() for name in varied]
    table(cells, ["POLICY", "JOBS/H", *named, "SEEDS", "AVG JCT", "P99 JCT", "MAKESPAN", "IN USE", "COST"])


def _mean(results: Sequence[Result], field: str, unit: str) -> str:
    values = [value for result in results if (value := result.summary.get(field)) is not None]
    if not values:
        return "–"
    value = sum(values) / len(values)
    return {"h": f"{value / 3600:.2f} h", "%": f"{value:.1%}", "$": f"{value:,.0f} $"}[unit]


def _end(outcome: Outcome, folder: Path) -> None:
    """Say on stderr what was done; exit 1 when some run has failed."""
    typer.echo(f"{outcome.done} run, {outcome.reused} were there, {len(outcome.failed)} failed; in {folder}", err=True)
    for cell, error in outcome.failed.items():
        typer.echo(f"error: {cell}: {error}", err=True)
    sys.exit(FAILED if outcome.failed else 0)
