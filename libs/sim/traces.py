"""Reading and writing traces (`traces/1`): one job per CSV line.

Columns `job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s` and, optional,
`user,class,priority,weight,deadline_s,gpu_type,status,attempts,elastic_min,elastic_max`. An empty cell is
unknown. Work is given as `total_steps`, to be run at the rate that the throughput table has for (`model`,
`batch_size`, `gpus`), or as `duration_s` on dedicated GPUs of the reference type; one of them is needed.
Rows need not be sorted. Columns that are not listed here are ignored with a warning.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from libs.contracts.bad_input import BadInput
from libs.contracts.jobs import ElasticRange, GpuRequest, JobClass, JobSpec, SimulatedWork
from libs.sim.inputs import MOST_WHOLE, Warn, open_input, warn_on_stderr

REQUIRED = ("job_id", "submit_time_s", "tenant", "model", "batch_size", "gpus", "total_steps", "duration_s")
OPTIONAL = (
    "user",
    "class",
    "priority",
    "weight",
    "deadline_s",
    "gpu_type",
    "status",
    "attempts",
    "elastic_min",
    "elastic_max",
)


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """One row. None: unknown."""

    job_id: str
    submit_time_s: float
    gpus: int
    tenant: str = "default"
    model: str = ""
    batch_size: int | None = None
    total_steps: float | None = None
    duration_s: float | None = None
    user: str = ""
    job_class: JobClass = JobClass.GUARANTEED
    priority: int = 0
    weight: float | None = None
    deadline_s: float | None = None
    gpu_types: tuple[str, ...] = ()
    """Acceptable types, `v100|p100` in the file; empty: every type."""
    status: str = ""
    """How the job ended where the trace was recorded. Played with `Failures.TRACE` alone (`failing.py`)."""
    attempts: int | None = None
    """How often it was tried where the trace was recorded. Played likewise."""
    elastic_min: int | None = None
    elastic_max: int | None = None
    max_retries: int = 0
    """Not a column: failed attempts that are repeated."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Not a column."""
    restartable: bool = True
    """Not a column: whether it goes on from a checkpoint when it is started anew."""
    profiled_utilisation: float | None = None
    """Not a column: part of a GPU that it uses, where that is known before it runs."""
    profiled_memory_bytes: int = 0
    """Not a column: the most that it wants on a GPU, likewise."""

    @property
    def config(self) -> tuple[str, int | None, int]:
        """What a throughput table knows the job by."""
        return (self.model, self.batch_size, self.gpus)

    def spec(self) -> JobSpec:
        """What its user would have submitted."""
        elastic = None
        if self.elastic_min is not None or self.elastic_max is not None:
            elastic = ElasticRange(min_gpus=self.elastic_min or self.gpus, max_gpus=self.elastic_max or self.gpus)
        return JobSpec(
            name=self.model or self.job_id,
            command=["simulated"],
            gpus=GpuRequest(count=self.gpus, types=list(self.gpu_types)),
            tenant=self.tenant,
            user=self.user,
            job_class=self.job_class,
            priority=self.priority,
            max_retries=self.max_retries,
            elastic=elastic,
            deadline_s=self.deadline_s,
            labels=dict(self.labels),
            simulated=SimulatedWork(
                model=self.model,
                batch_size=self.batch_size,
                total_steps=self.total_steps,
                duration_s=self.duration_s,
                profiled_utilisation=self.profiled_utilisation,
                profiled_memory_bytes=self.profiled_memory_bytes,
            ),
            model=self.model,
            batch_size=self.batch_size,
            total_steps=self.total_steps,
            weight=1.0 if self.weight is None else self.weight,
            restartable=self.restartable,
        )


def read_trace(source: str | Path, warn: Warn = warn_on_stderr) -> list[TraceJob]:
    """The jobs of a file (or of standard input, `-`), by time of submission, equal times in file order.

    Raises:
        BadInput: with file, line, column, the value seen and what was expected.
    """
    with open_input(source) as (file, name):
        return parse_trace(file, name, warn)


def parse_trace(lines: Iterable[str], name: str, warn: Warn = warn_on_stderr) -> list[TraceJob]:
    """As `read_trace`, from lines; `name` is what messages call the file."""
    reader = csv.DictReader(lines, strict=True)
    jobs: dict[str, TraceJob] = {}
    try:
        _check_columns(reader.fieldnames, name, warn)
        for row in reader:
            job = _job(_Row(row, f"{name}:{reader.line_num}"))
            if job.job_id in jobs:
                raise BadInput(
                    f"{name}:{reader.line_num}, column job_id", f"{job.job_id!r} a second time", "unique ids"
                )
            jobs[job.job_id] = job
    except csv.Error as error:
        raise BadInput(f"{name}:{reader.line_num + 1}", f"no CSV: {error}", "comma-separated values") from None
    return sorted(jobs.values(), key=lambda job: job.submit_time_s)


def write_trace(jobs: Iterable[TraceJob], out: IO[str]) -> None:
    """Write jobs as `traces/1`; optional columns only where some job has a value."""
    rows = [_cells(job) for job in jobs]
    optional = [column for column in OPTIONAL if any(row[column] for row in rows)]
    writer = csv.DictWriter(out, [*REQUIRED, *optional], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _cells(job: TraceJob) -> dict[str, str]:
    def cell(value: float | int | None) -> str:
        return "" if value is None else repr(value)

    return {
        "job_id": job.job_id,
        "submit_time_s": cell(job.submit_time_s),
        "tenant": job.tenant,
        "model": job.model,
        "batch_size": cell(job.batch_size),
        "gpus": cell(job.gpus),
        "total_steps": cell(job.total_steps),
        "duration_s": cell(job.duration_s),
        "user": job.user,
        "class": "" if job.job_class is JobClass.GUARANTEED else job.job_class.value,
        "priority": cell(job.priority or None),
        "weight": cell(job.weight),
        "deadline_s": cell(job.deadline_s),
        "gpu_type": "|".join(job.gpu_types),
        "status": job.status,
        "attempts": cell(job.attempts),
        "elastic_min": cell(job.elastic_min),
        "elastic_max": cell(job.elastic_max),
    }


def _check_columns(columns: Iterable[str] | None, name: str, warn: Warn) -> None:
    if columns is None:
        raise BadInput(name, "an empty file", f"a header line {','.join(REQUIRED)}")
    present = list(columns)
    missing = [column for column in REQUIRED if column not in present]
    if missing:
        raise BadInput(f"{name}:1", f"no column {', '.join(missing)}", f"a header line with {','.join(REQUIRED)}")
    for column in present:
        if present.count(column) > 1:
            raise BadInput(f"{name}:1", f"column {column} {present.count(column)} times", "each column once")
        if column not in REQUIRED and column not in OPTIONAL:
            warn(f"{name}:1: column {column!r} is not part of traces/1 and is ignored")


class _Row:
    """One line's cells, read with errors that name line and column."""

    def __init__(self, cells: dict[str | Any, Any], where: str) -> None:
        self.where = where
        if cells.get(None):
            raise BadInput(where, f"{len(cells[None])} cells too many", "as many cells as the header has columns")
        if None in cells.values():
            raise BadInput(where, "too few cells", "as many cells as the header has columns")
        self._cells = cells

    def text(self, column: str) -> str:
        return str(self._cells.get(column, "")).strip()

    def wrong(self, column: str, expected: str) -> BadInput:
        return BadInput(f"{self.where}, column {column}", repr(self.text(column)), expected)

    def number(self, column: str, expected: str, fits: Callable[[float], bool]) -> float | None:
        """The cell as a number; None when it is empty."""
        if not self.text(column):
            return None
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.wrong(column, expected) from None
        if not math.isfinite(value) or abs(value) > MOST_WHOLE or not fits(value):
            raise self.wrong(column, expected)
        return value

    def whole(self, column: str, expected: str, least: int | None = None) -> int | None:
        """The cell as a whole number of at least `least`; None when it is empty."""

        def fits(value: float) -> bool:
            return value.is_integer() and (least is None or value >= least)

        value = self.number(column, expected, fits)
        return None if value is None else int(value)


def _job(row: _Row) -> TraceJob:
    if not row.text("job_id"):
        raise row.wrong("job_id", "an id")
    submit_time_s = row.number("submit_time_s", "seconds, 0 or more", lambda x: x >= 0)
    if submit_time_s is None:
        raise row.wrong("submit_time_s", "seconds, 0 or more")
    gpus = row.whole("gpus", "a whole number from 1 on", least=1)
    if gpus is None:
        raise row.wrong("gpus", "a whole number from 1 on")
    total_steps = row.number("total_steps", "steps above 0, or nothing", lambda x: x > 0)
    duration_s = row.number("duration_s", "seconds above 0, or nothing", lambda x: x > 0)
    if total_steps is None and duration_s is None:
        raise BadInput(f"{row.where}, columns total_steps and duration_s", "both empty", "one of them")
    elastic_min = row.whole("elastic_min", "a whole number from 1 on, or nothing", least=1)
    elastic_max = row.whole("elastic_max", "a whole number from 1 on, or nothing", least=1)
    if not (elastic_min or gpus) <= gpus <= (elastic_max or gpus):
        seen = f"{row.text('elastic_min')}:{row.text('elastic_max')}"
        raise BadInput(f"{row.where}, columns elastic_min and elastic_max", seen, f"bounds around the {gpus} GPUs")
    return TraceJob(
        job_id=row.text("job_id"),
        submit_time_s=submit_time_s,
        tenant=row.text("tenant") or "default",
        model=row.text("model"),
        batch_size=row.whole("batch_size", "a whole number from 1 on, or nothing", least=1),
        gpus=gpus,
        total_steps=total_steps,
        duration_s=duration_s,
        user=row.text("user"),
        job_class=_class(row),
        priority=row.whole("priority", "a whole number, or nothing") or 0,
        weight=row.number("weight", "a number above 0, or nothing", lambda x: x > 0),
        deadline_s=row.number("deadline_s", "seconds above 0, or nothing", lambda x: x > 0),
        gpu_types=tuple(name.strip() for name in row.text("gpu_type").lower().split("|") if name.strip()),
        status=row.text("status"),
        attempts=row.whole("attempts", "a whole number from 1 on, or nothing", least=1),
        elastic_min=elastic_min,
        elastic_max=elastic_max,
    )


def _class(row: _Row) -> JobClass:
    try:
        return JobClass(row.text("class") or JobClass.GUARANTEED)
    except ValueError:
        raise row.wrong("class", "guaranteed, opportunistic or automatic") from None
