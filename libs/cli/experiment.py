"""Simulations by the dozen: generate workloads, run experiments, and see the reports."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libs.cli.context import FAILED
from libs.cli.output import is_terminal, table

if TYPE_CHECKING:
    from libs.studies.experiments.cells import Outcome, Told
    from libs.studies.experiments.runs import Result, RunSpec

REPORT = "report.html"
VARIED = ("cluster", "gpus_per_server", "throughputs", "round_s", "checkpoint_overhead_s", "measure", "tenant_weights")
"""Options of a run that get a column when they differ."""
Processes = Annotated[int | None, typer.Option("-j", "--processes", min=1, help="Runs at a time; default: cores.")]
Again = Annotated[bool, typer.Option("--again", help="Also what has a result, as after a change of the program.")]
RatesFile = Annotated[str | None, typer.Option("--throughputs", help="throughputs/1, JSON; default: computed rates.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (generate, experiment):
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
        list_runs(found.runs, folder)
        return
    outcome, results = run_all(found.runs, folder, processes, again)
    _show(results)
    if results:
        write_report(overview(found.name, results, f"sanjaya experiment {grid}"), folder / REPORT)
        typer.echo(f"{folder / REPORT}", err=True)
    end(outcome, folder)


def run_all(runs: Sequence[RunSpec], folder: Path, processes: int | None, again: bool) -> tuple[Outcome, list[Result]]:
    """Make the runs that have no result in the folder, several at a time, and read all results."""
    from libs.cli.executing import execute
    from libs.studies.experiments.cells import read_results, run_cells, write_overview

    with _watching() as told:
        outcome = run_cells(runs, folder, execute, processes=processes, again=again, told=told)
    write_overview(runs, folder, outcome)
    return outcome, read_results(runs, folder)


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


def list_runs(runs: Sequence[RunSpec], folder: Path) -> None:
    """Say of each run whether it has a result."""
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


def end(outcome: Outcome, folder: Path) -> None:
    """Say on stderr what was done; exit 1 when some run has failed."""
    typer.echo(f"{outcome.done} run, {outcome.reused} were there, {len(outcome.failed)} failed; in {folder}", err=True)
    for cell, error in outcome.failed.items():
        typer.echo(f"error: {cell}: {error}", err=True)
    sys.exit(FAILED if outcome.failed else 0)
