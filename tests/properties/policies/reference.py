"""Every policy again, as plainly as its definition reads: one variable per row, job and type, no classes.

Solved by an interior-point method, so that not even the algorithm is the same as in the library.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.optimize import linprog

from libs.policies.problem import Entity, Job, Problem, Solution

Floats = NDArray[np.float64]
PRECISE = {
    "presolve": False,  # it calls programs infeasible that keep a level to the eighth digit
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
    "ipm_optimality_tolerance": 1e-11,
}


@dataclass
class Row:
    """A job alone or a pair, with each job's rate per type."""

    jobs: list[int]
    rates: list[dict[str, float]]


class Reference:
    """The feasible allocations of a problem; variables are (row, type)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.types = list(problem.cluster)
        self.jobs = [self._with_work_as_seen(job) for job in problem.jobs]
        self.rates = [self._seen(job) for job in self.jobs]
        self.rows = [Row([i], [self.rates[i]]) for i in range(len(self.jobs))]
        if problem.options.space_sharing:
            self.rows += self._pairs()
        self.size = len(self.rows) * len(self.types)
        self.limits, self.bounds = self._limits()

    def _usable(self, job: Job) -> dict[str, float]:
        return {t: r for t, r in job.throughputs.items() if job.scale_factor <= self.problem.cluster[t].gpus and r > 0}

    def _with_work_as_seen(self, job: Job) -> Job:
        """A policy that takes all types for equal counts seconds on the types that the job can use, by their GPUs."""
        usable = self._usable(job)
        if self.problem.options.heterogeneity_aware or not job.steps_remaining or not usable:
            return job
        gpus = {t: self.problem.cluster[t].gpus for t in usable}
        done_per_s = sum(rate * gpus[t] for t, rate in usable.items()) / sum(gpus.values())
        return replace(job, steps_remaining=job.steps_remaining / done_per_s)

    def _seen(self, job: Job) -> dict[str, float]:
        fits = self._usable(job)
        return fits if self.problem.options.heterogeneity_aware else dict.fromkeys(fits, 1.0)

    def _pairs(self) -> list[Row]:
        index = {job.id: i for i, job in enumerate(self.jobs)}
        found = []
        for pair in self.problem.pairs:
            a, b = index[pair.jobs[0]], index[pair.jobs[1]]
            rates: list[dict[str, float]] = [{}, {}]
            for t, together in pair.throughputs.items():
                if t in self.rates[a] and t in self.rates[b] and min(together) > 0:
                    for side, job in ((0, a), (1, b)):
                        own = 1.0 if self.problem.options.heterogeneity_aware else self.jobs[job].throughputs[t]
                        rates[side][t] = together[side] / own
            found.append(Row([a, b], rates))
        return found

    def column(self, row: int, gpu_type: str) -> int:
        return row * len(self.types) + self.types.index(gpu_type)

    def _limits(self) -> tuple[Floats, Floats]:
        limits = np.zeros((len(self.jobs) + len(self.types), self.size))
        for number, row in enumerate(self.rows):
            for t in self.types:
                for job in row.jobs:
                    limits[job, self.column(number, t)] = 1.0
                width = self.jobs[row.jobs[0]].scale_factor
                limits[len(self.jobs) + self.types.index(t), self.column(number, t)] = width
        return limits, np.array([1.0] * len(self.jobs) + [float(self.problem.cluster[t].gpus) for t in self.types])

    def throughput(self, job: int) -> Floats:
        """Coefficients of thr(m, X)."""
        found = np.zeros(self.size)
        for number, row in enumerate(self.rows):
            for member, rates in zip(row.jobs, row.rates, strict=True):
                if member == job:
                    for t, rate in rates.items():
                        found[self.column(number, t)] += rate
        return found

    def equal(self, job: int) -> float:
        """thr(m, X_equal)."""
        total = sum(pool.gpus for pool in self.problem.cluster.values())
        return sum(rate * self.problem.cluster[t].gpus / total for t, rate in self.rates[job].items())

    def isolated(self, job: int) -> float:
        """thr(m, X_iso)."""
        total = sum(pool.gpus for pool in self.problem.cluster.values())
        return self.equal(job) * min(1.0, total / (len(self.jobs) * self.jobs[job].scale_factor))

    def normalised(self, job: int) -> Floats:
        """Coefficients of thr(m, X) * sf / thr(m, X_equal)."""
        return self.throughput(job) * self.jobs[job].scale_factor / self.equal(job)

    @property
    def runnable(self) -> list[int]:
        return [job for job in range(len(self.jobs)) if self.rates[job]]

    def maximise(self, cost: Floats, at_least: list[tuple[Floats, float]] = ()) -> tuple[float, Floats] | None:
        """The largest `cost @ x` over valid x with `row @ x >= bound` for all of `at_least`; None: there is none."""
        if not self.size:
            return (0.0, np.zeros(0)) if all(bound <= 0 for _, bound in at_least) else None
        upper = np.vstack([self.limits, *(-row for row, _ in at_least)])
        bounds = np.concatenate([self.bounds, [-bound for _, bound in at_least]])
        done = linprog(-cost, A_ub=upper, b_ub=bounds, method="highs-ipm", options=PRECISE)
        return (-done.fun, done.x) if done.status == 0 else None

    def raise_together(self, rows: list[Floats], slopes: list[float], levels: list[float]) -> float:
        """The largest z with `row @ x >= level + slope * z` for all."""
        wide = np.hstack([self.limits, np.zeros((len(self.limits), 1))])
        lower = np.array([np.append(-row, slope) for row, slope in zip(rows, slopes, strict=True)])
        upper = np.concatenate([self.bounds, -np.array(levels)])
        cost = np.zeros(self.size + 1)
        cost[-1] = -1.0
        done = linprog(cost, A_ub=np.vstack([wide, lower]), b_ub=upper, method="highs-ipm", options=PRECISE)
        assert done.status == 0, done.message
        return float(-done.fun)


def max_min(reference: Reference) -> float:
    jobs = reference.runnable
    weights = [reference.jobs[job].weight for job in jobs]
    rows = [reference.normalised(job) for job in jobs]
    return reference.raise_together(rows, weights, [0.0] * len(jobs)) if jobs else 0.0


def makespan(reference: Reference) -> float:
    jobs = [job for job in reference.runnable if reference.jobs[job].steps_remaining]
    steps = [float(reference.jobs[job].steps_remaining or 0.0) for job in jobs]
    if not jobs:
        return 0.0
    unit = max(steps)
    rows = [reference.throughput(job) for job in jobs]
    return unit / reference.raise_together(rows, [s / unit for s in steps], [0.0] * len(jobs))


def finish_time_fairness(reference: Reference) -> float:
    """By bisection over rho."""
    jobs = [job for job in reference.runnable if reference.jobs[job].steps_remaining]
    if not jobs:
        return 0.0
    steps = np.array([float(reference.jobs[job].steps_remaining or 0.0) for job in jobs])
    elapsed = np.array([reference.jobs[job].elapsed_s for job in jobs])
    ideal = np.array([reference.jobs[j].isolated_elapsed_s for j in jobs])
    ideal += steps / np.array([reference.isolated(j) for j in jobs])
    rows = [reference.throughput(job) for job in jobs]
    low, high = float((elapsed / ideal).max()), 1.0
    while not _within(reference, rows, steps, elapsed, ideal, high):
        high *= 2
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if _within(reference, rows, steps, elapsed, ideal, middle) else (middle, high)
    return high


def _within(
    reference: Reference, rows: list[Floats], steps: Floats, elapsed: Floats, ideal: Floats, rho: float
) -> bool:
    room = rho * ideal - elapsed
    if (room <= 0).any():
        return False
    need = steps / room
    return reference.raise_together(rows, need.tolist(), [0.0] * len(rows)) >= 1 - 1e-9


def weighted_sum(reference: Reference, worth: dict[int, float]) -> float:
    cost = sum((worth[job] * reference.throughput(job) for job in reference.runnable), np.zeros(reference.size))
    found = reference.maximise(cost)
    assert found is not None
    return found[0]


def fifo(reference: Reference) -> float:
    jobs = len(reference.jobs)
    return weighted_sum(reference, {j: (jobs - j) / max(reference.rates[j].values()) for j in reference.runnable})


def cost(reference: Reference) -> Floats:
    """Coefficients of steps per dollar."""
    found = sum((reference.throughput(job) for job in reference.runnable), np.zeros(reference.size))
    price = np.array([max(reference.problem.cluster[t].cost_per_hour, 1e-9) for t in reference.types])
    return found / np.tile(price, len(reference.rows))


def with_deadlines(reference: Reference, objective: Floats) -> tuple[float, list[str]]:
    """The objective, and the jobs with a deadline that does not hold: one LP per job, in order of arrival."""
    held: list[tuple[Floats, float]] = []
    infeasible = []
    for number, job in enumerate(reference.jobs):
        if not (job.slo_s and job.steps_remaining):
            continue
        wanted = (reference.throughput(number), job.steps_remaining / job.slo_s)
        if reference.maximise(np.zeros(reference.size), [*held, wanted]) is None:
            infeasible.append(job.id)
        else:
            held.append(wanted)
    found = reference.maximise(objective, held)
    assert found is not None
    return found[0], infeasible


def shortest_first(reference: Reference) -> float:
    ends = [
        float(reference.jobs[job].steps_remaining or 0.0) / max(reference.rates[job].values())
        for job in reference.runnable
    ]
    return min(ends, default=0.0)


def water_filling(reference: Reference) -> dict[int, float]:
    """{job: normalised throughput}, every job an entity of its own."""
    weights = {job: reference.jobs[job].weight for job in reference.runnable}
    return _fill(reference, lambda rising: {job: weights[job] for job in rising})


def hierarchical(reference: Reference) -> dict[int, float]:
    def slopes(rising: list[int]) -> dict[int, float]:
        found: dict[int, float] = {}
        owners = {job: reference.jobs[job].entity or f"alone {job}" for job in rising}
        for name in dict.fromkeys(owners.values()):
            entity = reference.problem.entities.get(name, Entity())
            members = [job for job in rising if owners[job] == name]
            if entity.policy == "fifo":
                members = members[:1]
            total = sum(reference.jobs[job].weight for job in members)
            found |= {job: entity.weight * reference.jobs[job].weight / total for job in members}
        return found

    return _fill(reference, slopes)


def _fill(reference: Reference, slopes_of: object) -> dict[int, float]:
    """Raise all levels; a job that could not rise alone, the others keeping theirs, is done."""
    levels = dict.fromkeys(reference.runnable, 0.0)
    rows = {job: reference.normalised(job) for job in levels}
    rising = list(levels)
    while rising:
        slopes = slopes_of(rising)  # type: ignore[operator]
        jobs = list(levels)
        height = reference.raise_together(
            [rows[job] for job in jobs],
            [slopes.get(job, 0.0) for job in jobs],
            [levels[j] * (1 - 1e-8) - 1e-8 for j in jobs],
        )
        for job, slope in slopes.items():
            levels[job] += slope * height
        room = {job: _room(reference, job, rows, levels) for job in slopes}
        stuck = [job for job in room if room[job] <= max(ROOM, min(room.values()))]
        rising = [job for job in rising if job not in stuck]
    return levels


ROOM = 1e-4
"""What the solver's slack may let a level rise by, as a part of it."""


def _room(reference: Reference, job: int, rows: dict[int, Floats], levels: dict[int, float]) -> float:
    """How far the job could rise while no other falls, as a part of its level."""
    others = [(row, levels[other] * (1 - 1e-6) - 1e-8) for other, row in rows.items()]
    found = reference.maximise(rows[job], others)
    assert found is not None
    return (found[0] - levels[job]) / max(levels[job], 1e-2)


def values(reference: Reference, solution: Solution) -> Floats:
    """The solution as a vector of the reference's variables."""
    place = {tuple(reference.jobs[job].id for job in row.jobs): i for i, row in enumerate(reference.rows)}
    found = np.zeros(reference.size)
    for share in solution.allocation:
        row = place.get(share.jobs)
        if row is None:
            row = place[share.jobs[1], share.jobs[0]]
        for t, time in share.time.items():
            found[reference.column(row, t)] += time
    return found
