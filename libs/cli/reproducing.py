"""The papers' claims, checked by simulation: `sanjaya reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from libs.cli.context import USAGE, fail
from libs.cli.experiment import REPORT, Again, Processes, RatesFile, end, list_runs, run_all
from libs.cli.output import console, is_terminal, table

if TYPE_CHECKING:
    from libs.studies.experiments.cells import Outcome
    from libs.studies.experiments.runs import Result, RunSpec
    from libs.studies.report.verdicts import Row
    from libs.studies.reproduce.reporting import Part
    from libs.studies.reproduce.study import Measured, Study


class Inputs(NamedTuple):
    """What the studies take: their size, and files in the place of what is drawn or computed."""

    full: bool
    reduced: bool
    throughputs: str | None
    physical_trace: str | None
    queue_trace: str | None
    trace: str | None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reproduce)


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
    from libs.studies.reproduce.keeping import read_measured
    from libs.studies.reproduce.reporting import report_of

    inputs = Inputs(full, reduced, throughputs, physical_trace, queue_trace, trace)
    _check_inputs(paper, inputs)
    if judge and again:
        fail("--judge and --again: expected one of them", USAGE)
    if known is not None and paper == ALL_PAPERS:
        fail(f"--known: a file has the values of one paper; name it instead of {ALL_PAPERS}", USAGE)
    whole = [of(inputs) for name, of in PAPERS.items() if paper in (name, ALL_PAPERS)]
    earlier = None
    if known is not None:
        [(study, size)] = whole
        earlier = study.shared(read_measured(known, size))
    chosen = _chosen(whole, only) if only else whole
    for study, size in chosen:
        typer.echo(f"{study.paper}: {size}", err=True)
    runs = list({spec.cell_id: spec for study, _ in chosen for spec in study.runs(earlier)}.values())
    if dry_run:
        list_runs(runs, out)
        return
    outcome, results = _there(runs, out) if judge else run_all(runs, out, processes, again)
    parts = [_judged(study, size, results, earlier, out) for study, size in chosen]
    tell([row for part in parts for row in part.rows])
    write_report(
        report_of(parts, f"sanjaya reproduce {paper}{' --full' if full else ' --reduced' if reduced else ''}"),
        out / REPORT,
    )
    typer.echo(f"{out / REPORT}", err=True)
    end(outcome, out)


def tell(rows: Sequence[Row]) -> None:
    """A row per claim; its note is a column for programs, and a paragraph below the table for people."""
    heads = ["CLAIM", "WHERE", "PAPER", "MEASURED", "ACCEPTED", "VERDICT"]
    cells = [[row.claim_id, row.where, row.paper, row.measured, row.accepted, row.verdict.value] for row in rows]
    if not is_terminal():
        table([[*line, row.note] for line, row in zip(cells, rows, strict=True)], [*heads, "WHY"])
        return
    table(cells, heads)
    for row in rows:
        if row.note:
            console().print(f"\n{row.claim_id} ({row.verdict.value}): {row.note}", markup=False, highlight=False)


def _check_inputs(paper: str, inputs: Inputs) -> None:
    """That the paper is one of those there are, and takes what is given for it."""
    if paper not in (*PAPERS, ALL_PAPERS):
        fail(f"unknown paper {paper!r}; there are {', '.join(PAPERS)} and {ALL_PAPERS}", USAGE)
    for option, given, takes in (
        ("--throughputs", inputs.throughputs, "gavel"),
        ("--physical-trace", inputs.physical_trace, "gavel"),
        ("--queue-trace", inputs.queue_trace, "antman"),
        ("--trace", inputs.trace, "philly"),
        ("--reduced", inputs.reduced or None, "antman"),
    ):
        if given is not None and paper != takes and (paper != ALL_PAPERS or option == "--reduced"):
            fail(f"{option}: the study of {paper} has inputs of its own; that of {takes} takes it", USAGE)
    if inputs.full and inputs.reduced:
        fail("--full and --reduced: expected one of them", USAGE)


def _chosen(whole: Sequence[tuple[Study, str]], only: list[str]) -> list[tuple[Study, str]]:
    """What the studies have of the claims that begin so, each with its size in words."""
    chosen = [(study.only(only), size) for study, size in whole]
    if not any(study.claims for study, _ in chosen):
        ids = ", ".join(claim.claim_id for study, _ in whole for claim in study.claims)
        fail(f"no claim begins with {' or '.join(only)}; there are {ids}", USAGE)
    return chosen


def _judged(study: Study, size: str, results: Sequence[Result], earlier: Measured | None, out: Path) -> Part:
    """What its own runs give; what was measured is written beside them."""
    from libs.studies.reproduce.keeping import write_measured
    from libs.studies.reproduce.reporting import Part

    needed = {spec.cell_id for spec in study.runs()}
    known = len(needed) - len(study.runs(earlier))
    own = [result for result in results if result.spec.cell_id in needed]
    measured = study.measure(own, earlier)
    write_measured(measured, size, out / f"{study.paper}.measured.json")
    return Part(study, size, own, measured, study.judge(measured), known)


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
    few = "; so few that no long queue builds up, and rows about a crowded cluster differ" if inputs.reduced else ""
    return study(size), f"{jobs}, {queue} on {size.queue_gpus}{few}"


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


def _there(runs: Sequence[RunSpec], folder: Path) -> tuple[Outcome, list[Result]]:
    from libs.studies.experiments.cells import Outcome, read_results

    results = read_results(runs, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return Outcome(len(runs), reused=len(results)), results
