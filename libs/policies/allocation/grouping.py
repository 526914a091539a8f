"""Classes of interchangeable jobs.

Jobs that look alike to a policy can be averaged over in any optimum, so an LP over classes is exact. What may be
averaged is an equitable partition of the problem: members of a class have the same data and the same number of
pair rows, with the same rates, into every other class. It is found by colour refinement (Grohe, Kersting, Mladenov
and Selman, "Dimension Reduction via Colour Refinement", ESA 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from libs.policies.agnostic import mean_rate, with_work_in_seconds
from libs.policies.problem import (
    GpuPool,
    Job,
    KindPair,
    Pair,
    Problem,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PairClass(NamedTuple):
    """All pairs of a member of class `a` with a member of class `b`."""

    a: int
    b: int
    rates_a: Floats
    """(T,) steps per second of the member of `a` on each type."""
    rates_b: Floats
    links: tuple[tuple[int, int], ...] = ()
    """The pairs, as indices of jobs; empty: every member of `a` with every (other) member of `b`."""


@dataclass(frozen=True)
class Classes:
    """A problem with one row per class. C classes, T GPU types, P pools of GPUs."""

    types: list[str]
    pool_of: Ints
    """(T,) pool that each type draws from."""
    pool_gpus: Floats
    """(P,) GPUs."""
    mix: Floats
    """(T,) part of the cluster's GPUs; types that draw from another's pool count nothing."""
    cost: Floats
    """(T,) price of one GPU for one hour."""
    count: Floats
    """(C,) members."""
    width: Floats
    """(C,) scale factor."""
    weight: Floats
    """(C,)"""
    rates: Floats
    """(C, T) steps per second; 0: the class cannot run there."""
    pairs: list[PairClass]
    members: list[list[int]] = field(default_factory=list)
    """Jobs of each class, by index; empty when the problem was given as counts."""
    firsts: list[Job] = field(default_factory=list)
    """One job of each class, as the policy sees it."""
    agnostic: bool = False
    """All types look the same, and work is in seconds (`agnostic`)."""

    @property
    def equal_rates(self) -> Floats:
        """(C,) throughput under X_equal: the cluster's own mix of types."""
        equal: Floats = self.rates @ self.mix
        return equal

    @cached_property
    def goodness(self) -> Floats:
        """(C,) what one step per second is worth beside others': its part of the throughput under X_equal."""
        equal = self.equal_rates
        return 1.0 / np.where(equal > 0, equal, np.inf)

    @property
    def runs(self) -> NDArray[np.bool_]:
        """(C,) whether the class can run anywhere."""
        return np.asarray(self.rates.any(axis=1))


Key = Callable[[int, Job], Hashable]
"""What an objective sees of a job beside rates, scale factor and weight."""


def group(problem: Problem, key: Key = lambda index, job: None) -> Classes:
    """The classes of a problem, in order of their first job.

    Args:
        problem: as `check_problem` lets through.
        key: jobs with different keys are never put into one class.
    """
    types = list(problem.cluster)
    cluster = cluster_arrays(problem.cluster)
    jobs, rates = _seen(problem, _usable_rates(problem, types), cluster["mix"].tolist())
    colours = _colours(
        (row, job.scale_factor, job.weight, job.kind, key(index, job))
        for index, (row, job) in enumerate(zip(rates, jobs, strict=True))
    )
    shared = problem.options.space_sharing
    pairs = _known_pairs(problem, rates, types) if shared else []
    colours = _refined(colours, pairs)
    members: list[list[int]] = [[] for _ in range(max(colours, default=-1) + 1)]
    for index, colour in enumerate(colours):
        members[colour].append(index)
    firsts = [jobs[listed[0]] for listed in members]
    class_rates = np.array([rates[listed[0]] for listed in members], dtype=float).reshape(len(members), len(types))
    by_kind = _kind_classes(problem, members, class_rates) if shared else []
    return Classes(
        **cluster,
        count=np.array([len(listed) for listed in members], dtype=float),
        width=np.array([job.scale_factor for job in firsts], dtype=float),
        weight=np.array([job.weight for job in firsts], dtype=float),
        rates=class_rates,
        pairs=_pair_classes(pairs, colours) + by_kind,
        members=members,
        firsts=firsts,
        agnostic=not problem.options.heterogeneity_aware,
    )


@dataclass(frozen=True)
class PairTable:
    """What is known of K pairs of configurations."""

    a: Ints
    """(K,) index of the first."""
    b: Ints
    rates_a: Floats
    """(K, T) steps per second of the first while they share GPUs."""
    rates_b: Floats


def of_counts(
    cluster: dict[str, GpuPool], rates: Floats, width: Floats, count: Floats, pairs: PairTable | None = None
) -> Classes:
    """A problem that is given as configurations and how many jobs have each: no job is looked at.

    Args:
        cluster: T GPU types.
        rates: (C, T) steps per second of each configuration alone.
        width: (C,) scale factors.
        count: (C,) jobs; configurations without jobs are left out, with their pairs.
        pairs: those that cannot help are left out; None: no space sharing.
    """
    present = np.flatnonzero(count > 0)
    place = np.full(len(count), -1)
    place[present] = np.arange(len(present))
    return Classes(
        **cluster_arrays(cluster),
        count=count[present],
        width=width[present],
        weight=np.ones(len(present)),
        rates=rates[present],
        pairs=_useful(pairs, rates, count, place) if pairs is not None else [],
    )


def _useful(pairs: PairTable, rates: Floats, count: Floats, place: Ints) -> list[PairClass]:
    helps = can_help_where(pairs.rates_a, pairs.rates_b, rates[pairs.a], rates[pairs.b])
    there = (place[pairs.a] >= 0) & (place[pairs.b] >= 0) & ((pairs.a != pairs.b) | (count[pairs.a] > 1))
    rates_a, rates_b = np.where(helps, pairs.rates_a, 0.0), np.where(helps, pairs.rates_b, 0.0)
    return [
        PairClass(int(place[pairs.a[k]]), int(place[pairs.b[k]]), rates_a[k], rates_b[k])
        for k in np.flatnonzero(there & helps.any(axis=1))
    ]


class ClusterArrays(TypedDict):
    """The part of `Classes` that describes the cluster."""

    types: list[str]
    pool_of: Ints
    pool_gpus: Floats
    mix: Floats
    cost: Floats


def cluster_arrays(cluster: dict[str, GpuPool]) -> ClusterArrays:
    """The part of `Classes` that describes the cluster."""
    types = list(cluster)
    own = [t for t in types if cluster[t].shares_gpus_with is None]
    total = sum(cluster[t].gpus for t in own)
    pools = [own.index(cluster[t].shares_gpus_with or t) for t in types]
    mix = [cluster[t].gpus / total if t in own and total else 0.0 for t in types]
    return {
        "types": types,
        "pool_of": np.array(pools, dtype=np.int64),
        "pool_gpus": np.array([cluster[t].gpus for t in own], dtype=float),
        "mix": np.array(mix, dtype=float),
        "cost": np.array([cluster[t].cost_per_hour for t in types], dtype=float),
    }


def _usable_rates(problem: Problem, types: Sequence[str]) -> list[tuple[float, ...]]:
    """(J, T) steps per second; 0 where the job cannot run or its gang does not fit."""
    cluster = problem.cluster
    sizes = [(t, cluster[cluster[t].shares_gpus_with or t].gpus) for t in types]
    return [
        tuple([job.throughputs.get(t, 0.0) if job.scale_factor <= gpus else 0.0 for t, gpus in sizes])
        for job in problem.jobs
    ]


def _seen(
    problem: Problem, rates: list[tuple[float, ...]], mix: Sequence[float]
) -> tuple[list[Job], list[tuple[float, ...]]]:
    """The jobs and their rates, (J, T), as the policy sees them: one rate for all types when it is agnostic."""
    if problem.options.heterogeneity_aware:
        return problem.jobs, rates
    jobs = [with_work_in_seconds(job, mean_rate(row, mix)) for job, row in zip(problem.jobs, rates, strict=True)]
    return jobs, [tuple([1.0 if rate > 0 else 0.0 for rate in row]) for row in rates]


@dataclass(frozen=True)
class _Link:
    """A pair row between two jobs."""

    a: int
    b: int
    rates_a: tuple[float, ...]
    rates_b: tuple[float, ...]


def _known_pairs(problem: Problem, rates: Sequence[tuple[float, ...]], types: Sequence[str]) -> list[_Link]:
    place = {job.id: index for index, job in enumerate(problem.jobs)}
    links = (_link(pair, place, rates, types, problem) for pair in problem.pairs)
    return [link for link in links if any(link.rates_a)]


def _link(
    pair: Pair,
    place: dict[str, int],
    rates: Sequence[tuple[float, ...]],
    types: Sequence[str],
    problem: Problem,
) -> _Link:
    """With zeros on the types where the pair cannot help."""
    a, b = place[pair.jobs[0]], place[pair.jobs[1]]
    aware = problem.options.heterogeneity_aware
    rates_a, rates_b = [0.0] * len(types), [0.0] * len(types)
    for index, gpu_type in enumerate(types):
        together = pair.throughputs.get(gpu_type, (0.0, 0.0))
        if not aware:
            together = _relative(together, problem.jobs[a], problem.jobs[b], gpu_type)
        if can_help(together, rates[a][index], rates[b][index]):
            rates_a[index], rates_b[index] = together
    return _Link(a, b, tuple(rates_a), tuple(rates_b))


def _relative(together: tuple[float, float], a: Job, b: Job, gpu_type: str) -> tuple[float, float]:
    """To an agnostic policy a pair's rates are parts of the jobs' own."""
    alone = a.throughputs.get(gpu_type, 0.0), b.throughputs.get(gpu_type, 0.0)
    return (
        together[0] / alone[0] if alone[0] > 0 else 0.0,
        together[1] / alone[1] if alone[1] > 0 else 0.0,
    )


def can_help(together: tuple[float, float], alone_a: float, alone_b: float) -> bool:
    """Whether a pair row may be in an optimum that mixing the two alone rows does not reach.

    Let p and q be the parts of their own speed that the two keep. If p + q <= 1, run them one after the other on the
    same GPUs instead, for the parts p and 1 - p >= q of the time: the same GPU time, the same throughput of the
    first, no less of the second, and less of either job's own time. So the pair is never needed.
    """
    if together[0] <= 0 or together[1] <= 0 or alone_a <= 0 or alone_b <= 0:
        return False
    return together[0] / alone_a + together[1] / alone_b > 1 + 1e-12


def can_help_where(rates_a: Floats, rates_b: Floats, alone_a: Floats, alone_b: Floats) -> NDArray[np.bool_]:
    """`can_help` for arrays."""
    possible = (rates_a > 0) & (rates_b > 0) & (alone_a > 0) & (alone_b > 0)
    kept = np.divide(rates_a, alone_a, out=np.zeros_like(rates_a), where=possible)
    kept += np.divide(rates_b, alone_b, out=np.zeros_like(rates_b), where=possible)
    helps: NDArray[np.bool_] = possible & (kept > 1 + 1e-12)
    return helps


def _colours(keys: Iterable[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _refined(colours: list[int], pairs: list[_Link]) -> list[int]:
    """Split classes until all members of one have alike pairs into every other."""
    while pairs:
        seen: list[list[tuple[int, tuple[float, ...], tuple[float, ...]]]] = [[] for _ in colours]
        for link in pairs:
            seen[link.a].append((colours[link.b], link.rates_a, link.rates_b))
            seen[link.b].append((colours[link.a], link.rates_b, link.rates_a))
        finer = _colours((colour, tuple(sorted(around))) for colour, around in zip(colours, seen, strict=True))
        if max(finer) == max(colours):
            break
        colours = finer
    return colours


def _pair_classes(pairs: list[_Link], colours: list[int]) -> list[PairClass]:
    found: dict[tuple[int, int, tuple[float, ...], tuple[float, ...]], list[tuple[int, int]]] = {}
    for link in pairs:
        a, b, rates_a, rates_b = link.a, link.b, link.rates_a, link.rates_b
        if (colours[a], rates_a) > (colours[b], rates_b):
            a, b, rates_a, rates_b = b, a, rates_b, rates_a
        found.setdefault((colours[a], colours[b], rates_a, rates_b), []).append((a, b))
    return [
        PairClass(a, b, np.array(rates_a), np.array(rates_b), tuple(links))
        for (a, b, rates_a, rates_b), links in found.items()
    ]


def _kind_classes(problem: Problem, members: list[list[int]], rates: Floats) -> list[PairClass]:
    """Pairs that are given by kinds: every member of a class packs alike with every member of another."""
    known = _kinds_of_classes(problem, members)
    if not known:
        return []
    a, b = np.array([(a, b) for a, b, _ in known]).T
    types = list(problem.cluster)
    together = np.array([[row.throughputs.get(t, (0.0, 0.0)) for t in types] for _, _, row in known])
    alike = np.array([row.kinds[0] == row.kinds[1] for _, _, row in known])
    together[alike] = together[alike].sum(axis=2, keepdims=True) / 2
    if not problem.options.heterogeneity_aware:
        firsts = [problem.jobs[listed[0]].throughputs for listed in members]
        alone = np.array([[own.get(t, 0.0) for t in types] for own in firsts])
        alone = np.stack([alone[a], alone[b]], axis=2)
        together = np.divide(together, alone, out=np.zeros_like(together), where=alone > 0)
    helps = can_help_where(together[..., 0], together[..., 1], rates[a], rates[b])
    useful = helps.any(axis=1)
    rates_a, rates_b = np.where(helps, together[..., 0], 0.0)[useful], np.where(helps, together[..., 1], 0.0)[useful]
    return list(map(PairClass, a[useful].tolist(), b[useful].tolist(), rates_a, rates_b))


def _kinds_of_classes(problem: Problem, members: list[list[int]]) -> list[tuple[int, int, KindPair]]:
    """Pairs of classes of equal scale factor, each with the row that its kinds have."""
    firsts = [problem.jobs[listed[0]] for listed in members]
    of_kind: dict[str, list[int]] = {}
    for number, job in enumerate(firsts):
        of_kind.setdefault(job.kind, []).append(number)
    found = []
    for row in problem.kind_pairs:
        first, second = row.kinds
        for a in of_kind.get(first, ()):
            for b in of_kind.get(second, ()):
                both_there = (first != second or a <= b) and (a != b or len(members[a]) > 1)
                if both_there and firsts[a].scale_factor == firsts[b].scale_factor:
                    found.append((a, b, row))
    return found
