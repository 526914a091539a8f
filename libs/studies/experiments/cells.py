"""Running the runs of an experiment: one process each, several at a time, each result in a file of its own.

A run that has its file is not run again, so an experiment that was interrupted goes on where it was. A run that
fails, or loses its process, costs the others nothing: it is named in the outcome and is tried again next time.
"""

from __future__ import annotations

import csv
import gc
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from libs.sim.results import FORMAT as RESULT_FORMAT
from libs.studies.experiments.runs import Execute, Result, RunSpec

CELLS = "cells"
"""Folder of the results in the folder of an experiment."""
SUMMARY = "summary.csv"
RUNS = "runs.json"

YOUNG_OBJECTS = 50_000
"""The collector of cycles looks after so many new objects: a run leaves few cycles, and looking costs it a twelfth."""

Told = Callable[["Outcome"], None]


@dataclass
class Outcome:
    """What has become of an experiment so far."""

    total: int
    reused: int = 0
    """Results that were there already."""
    done: int = 0
    """Results that were made now."""
    failed: dict[str, str] = field(default_factory=dict)
    """{cell id: what went wrong}"""
    running: tuple[str, ...] = ()
    """Cell ids."""

    @property
    def finished(self) -> int:
        """Runs that need nothing more."""
        return self.reused + self.done + len(self.failed)


def result_file(folder: Path, spec: RunSpec) -> Path:
    """Where a run's result is kept."""
    return folder / CELLS / f"{spec.cell_id}.json"


def read_result(folder: Path, spec: RunSpec) -> Result | None:
    """A run's result; None when there is no readable one."""
    try:
        document = json.loads(result_file(folder, spec).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("format") != RESULT_FORMAT:
        return None
    return Result(spec, document)


def run_cells(
    runs: Iterable[RunSpec],
    folder: Path,
    execute: Execute,
    *,
    processes: int | None = None,
    again: bool = False,
    told: Told = lambda outcome: None,
) -> Outcome:
    """Run what has no result yet. A result counts whichever version of the program has made it.

    Args:
        runs: in the order in which they are begun.
        folder: of the experiment; made when it is missing.
        execute: plays one run. It is imported anew in each process, so it must be a function of a module.
        processes: how many at a time; None: one per core.
        again: also what has a result, for instance after a change of the program.
        told: called whenever something has begun or ended.
    """
    cells = {spec.cell_id: spec for spec in runs}
    (folder / CELLS).mkdir(parents=True, exist_ok=True)
    waiting = [spec for spec in cells.values() if again or read_result(folder, spec) is None]
    outcome = Outcome(len(cells), reused=len(cells) - len(waiting))
    waiting.reverse()
    at_work: dict[Connection, _Worker] = {}
    try:
        told(outcome)
        while waiting or at_work:
            while waiting and len(at_work) < (processes or os.cpu_count() or 1):
                worker = _Worker(waiting.pop(), folder, execute)
                at_work[worker.answers] = worker
            outcome.running = tuple(worker.spec.cell_id for worker in at_work.values())
            told(outcome)
            for answers in wait(list(at_work)):
                assert isinstance(answers, Connection)
                worker = at_work.pop(answers)
                error = worker.ended()
                if error is None:
                    outcome.done += 1
                else:
                    outcome.failed[worker.spec.cell_id] = error
        outcome.running = ()
        told(outcome)
    finally:
        for worker in at_work.values():
            worker.stop()
    return outcome


class _Worker:
    """The process of one run. It sends one answer: None, or what went wrong."""

    def __init__(self, spec: RunSpec, folder: Path, execute: Execute) -> None:
        context = multiprocessing.get_context("spawn")
        self.spec = spec
        self.answers, theirs = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=_play, args=(spec, result_file(folder, spec), execute, theirs), daemon=True
        )
        self.process.start()
        theirs.close()

    def ended(self) -> str | None:
        """None when the result is written, else what went wrong."""
        try:
            error: str | None = self.answers.recv()
            self.process.join()
        except EOFError:
            self.process.join()
            error = f"the process died, exit code {self.process.exitcode}"
        self.answers.close()
        return error

    def stop(self) -> None:
        """End it at once; nothing half written is left behind under the result's name."""
        self.process.terminate()
        self.process.join()
        self.answers.close()


def _play(spec: RunSpec, file: Path, execute: Execute, answers: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        document = execute(spec)
        partial = file.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(document, separators=(",", ":")) + "\n")
        partial.replace(file)
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")
    else:
        answers.send(None)


def _end_with_parent() -> None:
    """A parent that is killed stops none of its processes: a run would go on for hours, for no study."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def read_results(runs: Iterable[RunSpec], folder: Path) -> list[Result]:
    """The results that are there, in the order of the runs."""
    return [result for spec in runs if (result := read_result(folder, spec)) is not None]


SUMMARY_COLUMNS = (
    "completed",
    "avg_jct_s",
    "p50_jct_s",
    "p99_jct_s",
    "makespan_s",
    "avg_queue_s",
    "gpu_utilisation",
    "cost",
    "wall_s",
    "events",
)


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per run: what was chosen, and what came of it."""
    return [
        {
            "policy": result.spec.label,
            "jobs_per_hour": result.spec.jobs_per_hour,
            "seed": result.spec.seed,
            "round_s": result.spec.round_s,
            **{column: result.summary.get(column) for column in SUMMARY_COLUMNS},
            "cell": result.spec.cell_id,
        }
        for result in results
    ]


def write_overview(runs: Sequence[RunSpec], folder: Path, outcome: Outcome) -> None:
    """Write what was run (`runs.json`) and a table of the results (`summary.csv`)."""
    listed = [{"cell": spec.cell_id, "error": outcome.failed.get(spec.cell_id), **spec.shown()} for spec in runs]
    (folder / RUNS).write_text(json.dumps(listed, indent=1) + "\n")
    rows = table(read_results(runs, folder))
    with (folder / SUMMARY).open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["policy", "jobs_per_hour", "seed", "round_s", *SUMMARY_COLUMNS, "cell"], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)
