"""How long policies take to solve, model building included, against the straightforward per-job formulation.

    python -m tests.bench.solve_times [--data ../shared/data/throughputs.json]

Jobs are drawn from the table's configurations; the cluster grows with them, one GPU per job, types in equal parts.
The baseline writes one variable per job, pair and type in cvxpy, at the sizes where that ends in reasonable time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import cvxpy
import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation import fairness, hierarchical, model
from libs.policies.allocation.grouping import Classes, PairTable, of_counts
from libs.policies.allocation.solve import solve
from libs.policies.problem import Entity, GpuPool, Job, KindPair, PolicyOptions, Problem
from libs.sim.throughputs import Throughputs, read_throughputs
from tests.bench.report import Report

DATA = Path("../shared/data/throughputs.json")
SIZES = (32, 512, 2048, 20_000, 200_000)
PLAIN_SIZES = (32, 128, 256)
PACKED_SIZES = (256, 700)
ENTITIES = 3
RUNS = 5
Ints = NDArray[np.int64]


class Table:
    """The configurations of a throughput table as arrays."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.types = throughputs.gpu_types
        self.configs = [config for config, consolidated in throughputs.isolated if consolidated]
        self.rates = np.array([[throughputs.rate(c, t, True) or 0.0 for t in self.types] for c in self.configs])
        self.width = np.array([float(config[2]) for config in self.configs])
        place = {config: index for index, config in enumerate(self.configs)}
        rows: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        for pair in throughputs.pairs:
            if pair.consolidated and pair.a in place and pair.b in place:
                zeros = [0.0] * len(self.types)
                both = rows.setdefault((place[pair.a], place[pair.b]), (zeros, list(zeros)))
                index = self.types.index(pair.gpu_type)
                both[0][index], both[1][index] = pair.a_steps_per_s, pair.b_steps_per_s
        self.pairs = PairTable(
            np.array([a for a, _ in rows]),
            np.array([b for _, b in rows]),
            np.array([first for first, _ in rows.values()]),
            np.array([second for _, second in rows.values()]),
        )

    def draw(self, jobs: int) -> Ints:
        """The configuration of each job."""
        return np.random.default_rng(0).integers(0, len(self.configs), jobs)

    def cluster(self, jobs: int) -> dict[str, GpuPool]:
        """One GPU per job."""
        return {t: GpuPool(gpus=max(8, jobs // len(self.types))) for t in self.types}


def best_of(runs: int, work: Callable[[], float]) -> tuple[float, float]:
    """(Fewest seconds, value)."""
    times = []
    value = 0.0
    for _ in range(runs):
        began = time.perf_counter()
        value = work()
        times.append(time.perf_counter() - began)
    return min(times), value


def max_min_by_classes(table: Table, kinds: Ints) -> float:
    """Space sharing, from the jobs' configurations to the optimum."""
    count = np.bincount(kinds, minlength=len(table.configs)).astype(float)
    return fairness.max_min(
        of_counts(table.cluster(len(kinds)), table.rates, table.width, count, table.pairs)
    ).objective


def max_min_plain(table: Table, kinds: Ints) -> float:
    """The same in cvxpy, one variable per job or pair and type."""
    jobs, types = len(kinds), len(table.types)
    known = {
        (int(a), int(b)): (table.pairs.rates_a[k], table.pairs.rates_b[k])
        for k, (a, b) in enumerate(zip(table.pairs.a, table.pairs.b, strict=True))
    }
    rows: list[tuple[list[int], list[NDArray[np.float64]]]] = [([j], [table.rates[kinds[j]]]) for j in range(jobs)]
    for i in range(jobs):
        for j in range(i + 1, jobs):
            a, b = int(kinds[i]), int(kinds[j])
            if (a, b) in known:
                rows.append(([i, j], list(known[a, b])))
            elif (b, a) in known:
                rows.append(([j, i], list(known[b, a])))
    share = cvxpy.Variable((len(rows), types), nonneg=True)
    member = np.zeros((jobs, len(rows)))
    rate = [np.zeros((len(rows), types)) for _ in range(jobs)]
    for number, (members, rates) in enumerate(rows):
        for job, row in zip(members, rates, strict=True):
            member[job, number] = 1.0
            rate[job][number] = row
    width = np.array([table.width[kinds[members[0]]] for members, _ in rows])
    gpus = np.array([pool.gpus for pool in table.cluster(jobs).values()], dtype=float)
    level = cvxpy.Variable()
    limits = [member @ cvxpy.sum(share, axis=1) <= 1, width @ share <= gpus]
    for job in range(jobs):
        equal = float(table.rates[kinds[job]] @ gpus / gpus.sum())
        scale = table.width[kinds[job]] / equal
        limits.append(cvxpy.sum(cvxpy.multiply(rate[job] * scale, share)) >= level)
    problem = cvxpy.Problem(cvxpy.Maximize(level), limits)
    problem.solve(solver=cvxpy.HIGHS)
    return float(level.value)


def hierarchical_by_classes(table: Table, kinds: Ints) -> float:
    """Water filling over entities, with space sharing; returns the first level."""
    owner = np.random.default_rng(1).integers(0, ENTITIES, len(kinds))
    configs = len(table.configs)
    count = np.bincount(kinds * ENTITIES + owner, minlength=configs * ENTITIES).astype(float)
    classes = of_counts(
        table.cluster(len(kinds)),
        np.repeat(table.rates, ENTITIES, axis=0),
        np.repeat(table.width, ENTITIES),
        count,
        _between_entities(table.pairs),
    )
    named = [Job(id=str(k), throughputs={}, entity=f"e{k % ENTITIES}") for k in np.flatnonzero(count > 0)]
    entities = {f"e{number}": Entity(weight=1.0 + number) for number in range(ENTITIES)}
    problem = Problem(policy="hierarchical", cluster={}, jobs=[], entities=entities)
    return hierarchical.hierarchical(problem, _with_firsts(classes, named)).objective


def _between_entities(pairs: PairTable) -> PairTable:
    """Every pair of configurations, for every pair of entities."""
    first, second = (index.ravel() for index in np.meshgrid(np.arange(ENTITIES), np.arange(ENTITIES)))
    a, b = (pairs.a[:, None] * ENTITIES + first).ravel(), (pairs.b[:, None] * ENTITIES + second).ravel()
    once = ((pairs.a[:, None] != pairs.b[:, None]) | (first <= second)).ravel()
    repeated = [np.repeat(rates, ENTITIES**2, axis=0)[once] for rates in (pairs.rates_a, pairs.rates_b)]
    return PairTable(a[once], b[once], *repeated)


def _with_firsts(classes: Classes, firsts: list[Job]) -> Classes:
    return Classes(**{**classes.__dict__, "firsts": firsts})


def individual(table: Table, kinds: Ints, policy: str) -> float:
    """Jobs that differ in what is left of them: one class each."""
    luck = np.random.default_rng(2)
    jobs = [
        Job(
            id=str(number),
            throughputs={t: float(table.rates[kind][i]) for i, t in enumerate(table.types)},
            scale_factor=int(table.width[kind]),
            steps_remaining=float(luck.uniform(1e3, 1e5)),
            elapsed_s=float(luck.uniform(0, 1e4)),
            isolated_elapsed_s=float(luck.uniform(0, 1e4)),
        )
        for number, kind in enumerate(kinds)
    ]
    return solve(Problem(policy=policy, cluster=table.cluster(len(kinds)), jobs=jobs)).objective


def packed(table: Table, jobs: int) -> float:
    """Makespan with space sharing of jobs that differ in what is left of them: a variable for each two of them.

    As in Gavel's section 7.1: on a V100 they would take 10^1.5 to 10^4 minutes.
    """
    luck = np.random.default_rng(2)
    kinds = luck.choice(np.flatnonzero(table.width == 1), jobs)
    names = [str(config) for config in table.configs]
    asked = [
        Job(
            id=str(number),
            kind=names[kind],
            throughputs={t: float(table.rates[kind][i]) for i, t in enumerate(table.types)},
            scale_factor=int(table.width[kind]),
            steps_remaining=float(table.rates[kind].max() * 60 * 10 ** luck.uniform(1.5, 4)),
        )
        for number, kind in enumerate(kinds)
    ]
    pairs = table.pairs
    kind_pairs = [
        KindPair(
            kinds=(names[a], names[b]),
            throughputs={t: (float(of_a[i]), float(of_b[i])) for i, t in enumerate(table.types)},
        )
        for a, b, of_a, of_b in zip(pairs.a, pairs.b, pairs.rates_a, pairs.rates_b, strict=True)
    ]
    gpus = {t: GpuPool(gpus=max(8, jobs // 20)) for t in table.types}
    options = PolicyOptions(space_sharing=True)
    return solve(
        Problem(policy="min_makespan", cluster=gpus, jobs=asked, kind_pairs=kind_pairs, options=options)
    ).objective


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    if not options.data.exists():
        raise SystemExit(f"{options.data}: no such file; nothing is measured without the table")
    table = Table(read_throughputs(options.data))
    report = Report("solve_times", "Seconds to solve allocation policies, model building included")
    plain: dict[int, float] = {}
    for jobs in PLAIN_SIZES:
        plain[jobs], optimum = best_of(1, lambda jobs=jobs: max_min_plain(table, table.draw(jobs)))
        report.row("max-min fairness, space sharing, cvxpy per job", jobs=jobs, ms=_ms(plain[jobs]), objective=optimum)
    for jobs in sorted({*SIZES, *PLAIN_SIZES}):
        took, optimum = best_of(RUNS, lambda jobs=jobs: max_min_by_classes(table, table.draw(jobs)))
        ratio = round(plain[jobs] / took) if jobs in plain else ""
        name = "max-min fairness, space sharing, by classes"
        report.row(name, jobs=jobs, ms=_ms(took), objective=optimum, times_faster=ratio, limit_ms=20)
    took, optimum = best_of(RUNS, lambda: hierarchical_by_classes(table, table.draw(2048)))
    name = f"hierarchical, {ENTITIES} entities, water filling, space sharing"
    report.row(name, jobs=2048, ms=_ms(took), objective=optimum, limit_ms=1000)
    for policy in ("finish_time_fairness", "min_makespan"):
        took, optimum = best_of(RUNS, lambda policy=policy: individual(table, table.draw(2048), policy))
        report.row(f"{policy}, individual remaining work", jobs=2048, ms=_ms(took), objective=optimum, limit_ms=1000)
    for jobs in PACKED_SIZES:
        took, optimum = best_of(1, lambda jobs=jobs: packed(table, jobs))
        with patch.object(model, "MANY_PAIRS", sys.maxsize):
            whole, same = best_of(1, lambda jobs=jobs: packed(table, jobs))
        name = "min_makespan, space sharing, individual remaining work"
        report.row(f"{name}, all variables at once", jobs=jobs, ms=_ms(whole), objective=same)
        report.row(name, jobs=jobs, ms=_ms(took), objective=optimum, times_faster=round(whole / took, 1))
    report.write()


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)


if __name__ == "__main__":
    main()
