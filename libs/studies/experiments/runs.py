"""One run of an experiment, written down completely: the same spec gives the same result."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from libs.sim.choice import Choice
from libs.sim.clusters import parse_cluster
from libs.sim.inputs import Warn, warn_on_stderr
from libs.sim.throughputs import Throughputs, read_throughputs
from libs.sim.traces import TraceJob, read_trace
from libs.studies.generators.computed_rates import computed_throughputs
from libs.studies.generators.drawn import DrawnWorkload

PAPER_CLUSTER = "v100=36,p100=36,k80=36"


@dataclass(frozen=True, kw_only=True)
class RunSpec(Choice):
    """What is simulated, and under which policy. Exactly one of `workload` and `trace` is given."""

    workload: DrawnWorkload | None = None
    """Drawn with `seed`."""
    trace: str | None = None
    """A `traces/1` file."""
    throughputs: str | None = None
    """A `throughputs/1` file; None: the workload's own table, or the computed one."""
    cluster: str = PAPER_CLUSTER
    ideal: bool = False
    """Every job gets its computed share all the time, instead of rounds on whole GPUs."""
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    """Of tenants (entities) with a weight other than 1."""
    keep_intervals: bool = False
    """Whether the result also says which job held which GPU when, for plots over time."""

    keep_study: bool = False
    """Whether the result also has the numbers of the Philly study of its log, and the reasons of its failures."""

    def __post_init__(self) -> None:
        if (self.workload is None) == (self.trace is None):
            raise ValueError("a run needs a workload or a trace, and not both")

    @property
    def jobs_per_hour(self) -> float | None:
        """The load; None for traces and for jobs that are all there from the start."""
        return self.workload.jobs_per_hour if self.workload is not None and self.workload.arrives else None

    @property
    def label(self) -> str:
        """What curves and tables call the run's policy with its options."""
        return label(
            self.policy,
            heterogeneity_agnostic=self.heterogeneity_agnostic,
            space_sharing=self.space_sharing,
            estimated=self.references is not None,
            water_filling=self.water_filling,
            ideal=self.ideal,
            packing=bool(self.utilisations),
            moving=self.move_delay_s is not None,
        )

    @property
    def cell_id(self) -> str:
        """A readable name for files that two different specs never share."""
        text = msgspec.json.encode(self.shown(), order="sorted")
        load = self.jobs_per_hour
        parts = [self.label, f"s{self.seed}"] if load is None else [self.label, f"{load:.3g}-per-h", f"s{self.seed}"]
        readable = re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower())
        return f"{readable}-{hashlib.sha256(text).hexdigest()[:10]}"

    @property
    def gpus(self) -> dict[str, int]:
        """{GPU type: GPUs} of the cluster."""
        return parse_cluster(self.cluster, self.gpus_per_server).gpus

    def shown(self) -> dict[str, Any]:
        """As plain values, without the fields that have their defaults."""
        return _without_defaults(self)

    def rates(self, warn: Warn = warn_on_stderr) -> Throughputs:
        """The throughput table."""
        if self.throughputs is not None:
            return read_throughputs(self.throughputs, warn)
        return self.workload.rates() if self.workload is not None else computed_throughputs()

    def jobs(self, rates: Throughputs | None = None) -> list[TraceJob]:
        """The jobs, in order of arrival. `rates` spares reading the table again."""
        if self.workload is None:
            assert self.trace is not None
            return read_trace(self.trace)
        return self.workload.draw(self.seed, rates or self.rates())


Execute = Callable[[RunSpec], dict[str, Any]]
"""Plays one run and returns its `simulation-result/1` document, maybe with `intervals` added."""


@dataclass(frozen=True)
class Result:
    """A run that has been played."""

    spec: RunSpec
    document: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        """Averages over the measured jobs."""
        found: dict[str, Any] = self.document["summary"]
        return found

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The rows of the measured jobs."""
        rows: list[dict[str, Any]] = self.document["jobs"]
        first, end = self.spec.measure or (0, len(rows))
        return rows[first:end]


def label(
    policy: str,
    *,
    heterogeneity_agnostic: bool = False,
    space_sharing: bool = False,
    estimated: bool = False,
    water_filling: bool = False,
    ideal: bool = False,
    packing: bool = False,
    moving: bool = False,
) -> str:
    """A policy with those of its options that change what it optimises."""
    options = {
        "agnostic": heterogeneity_agnostic,
        "space sharing": space_sharing,
        "estimated pairs": estimated,
        "water filling": water_filling,
        "ideal": ideal,
        "packing": packing,
        "migration": moving,
    }
    return ", ".join([policy, *(name for name, on in options.items() if on)])


def _without_defaults(value: Any) -> dict[str, Any]:
    shown = {}
    for each in fields(value):
        got = getattr(value, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        if got != default:
            shown[each.name] = _without_defaults(got) if isinstance(got, DrawnWorkload) else _plain(got)
    return shown


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
