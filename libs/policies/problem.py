"""What an allocation policy is asked, and what it answers, in the words of the Gavel paper (OSDI'20, section 4)."""

from __future__ import annotations

import msgspec

from libs.contracts.placement import Share


class InvalidProblem(Exception):
    """A problem contradicts itself. `path` is the place in the document, JSON-path style (`$.jobs[3].weight`)."""

    def __init__(self, path: str, seen: str, expected: str) -> None:
        super().__init__(f"{path}: {seen}; expected {expected}")
        self.path, self.seen, self.expected = path, seen, expected


class SolverFailed(Exception):
    """The solver gave no optimum where there must be one; the message carries its status."""


class GpuPool(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of one type (W_j)."""

    gpus: int
    cost_per_hour: float = 0.0
    shares_gpus_with: str | None = None
    """Another type that these GPUs are of as well: consolidated and spread GPUs of one kind are two types with
    one capacity (paper, section 3.1). The pool named here must not share itself."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job. What an objective does not use may stay at its default."""

    id: str
    throughputs: dict[str, float]
    """{GPU type: steps per second of the whole job}; a type that is missing or 0: it cannot run there."""
    scale_factor: int = 1
    """GPUs that it uses at a time."""
    weight: float = 1.0
    entity: str | None = None
    steps_remaining: float | None = None
    elapsed_s: float = 0.0
    isolated_elapsed_s: float = 0.0
    """How long it would have taken so far on its 1/n of the cluster, each step at the n of its time."""
    slo_s: float | None = None
    """Seconds from now within which the remaining steps must be done."""
    kind: str = ""
    """Its configuration, where pairs are given by kinds."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two jobs of equal scale factor that share their GPUs."""

    jobs: tuple[str, str]
    throughputs: dict[str, tuple[float, float]]
    """{GPU type: steps per second of the first and of the second}; missing or (0, 0): never packed there."""


class KindPair(msgspec.Struct, frozen=True, kw_only=True):
    """Any job of one kind with any (other) job of another or the same kind."""

    kinds: tuple[str, str]
    throughputs: dict[str, tuple[float, float]]
    """As for a pair of jobs; of one kind, both rates count as their mean."""


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """An organisation or team of the hierarchical policy (paper, section 4.3)."""

    weight: float = 1.0
    policy: str = "fairness"
    """Inside: `fairness` (by the jobs' weights) or `fifo`."""


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Variants of a policy."""

    space_sharing: bool = False
    heterogeneity_aware: bool = True
    """False: the policy decides as if every type were equal: throughput 1 wherever the job can run at all, and
    work in the seconds that its steps take on the cluster's own mix of types."""
    water_filling: bool = False
    """For `max_min_fairness`: go on until every job is bottlenecked. `hierarchical` always does."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One question. Jobs are listed in order of arrival."""

    policy: str
    cluster: dict[str, GpuPool]
    jobs: list[Job]
    options: PolicyOptions = PolicyOptions()
    pairs: list[Pair] = []
    kind_pairs: list[KindPair] = []
    """Instead of `pairs`, where all jobs of a kind pack alike: then nothing grows with the square of the jobs."""
    entities: dict[str, Entity] = {}


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `objective` is the value of the policy's own objective, as FORMATS defines it."""

    objective: float
    allocation: list[Share]
    infeasible: list[str] = []
    """Jobs with an SLO that cannot be met whatever the others get, or together with the SLOs of those before them."""
    iterations: int = 0
    """Simplex iterations of all LPs together: the deterministic measure of the work done."""
