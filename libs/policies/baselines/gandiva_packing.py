"""Gandiva's ad-hoc packing as the Gavel paper compares with it: time slices for all, pairs by trial under overload.

Gandiva packs jobs at random and keeps what has helped. Here the order of the trials comes from the job ids, so that it
can be replayed, and a trial is a look at the pair's known rates. GPU types are all the same to it, but on a type where
two jobs cannot be packed (out of memory, say) they take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from zlib import crc32

from libs.contracts.placement import Share
from libs.policies.problem import Job, Problem, Solution

Together = dict[str, tuple[float, float]]
"""{GPU type: steps per second of the first and of the second of a pair}"""
Pairs = dict[tuple[str, str], Together]
"""By the ids of the two jobs."""


def gandiva_packing(problem: Problem) -> Solution:
    """Equal time for every row, alone or packed; the objective is that part of the time."""
    own = {t: pool.gpus for t, pool in problem.cluster.items() if pool.shares_gpus_with is None and pool.gpus > 0}
    total = sum(own.values())
    jobs = {job.id: job for job in problem.jobs if any(_runs(job, t, own) for t in own)}
    excess = sum(job.scale_factor for job in jobs.values()) - total
    packs = _packs(problem, jobs, own, excess) if excess > 0 else {}
    packed = {job_id for pair in packs for job_id in pair}
    single = [job for job in jobs.values() if job.id not in packed]
    width = sum(jobs[first].scale_factor for first, _ in packs) + sum(job.scale_factor for job in single)
    part = min(1.0, total / width) if width else 0.0
    slices = {t: part * gpus / total for t, gpus in own.items()}
    shares = [share for pair in packs.items() for share in _shares_of(*pair, jobs, own, slices)]
    shares += [Share(jobs=(job.id,), time={t: x for t, x in slices.items() if _runs(job, t, own)}) for job in single]
    return Solution(objective=part, allocation=shares)


def _packs(problem: Problem, jobs: dict[str, Job], own: dict[str, int], excess: int) -> Pairs:
    """Pairs that have helped, tried in an order like chance, until no job is in excess."""
    taken: dict[str, None] = {}
    packs: Pairs = {}
    # By the checksum, then by the ids: no two pairs have the same, so that rates are never compared.
    for _, pair, together in sorted((_lot(*pair), pair, together) for pair, together in _pairs(problem)):
        if excess <= 0:
            break
        a, b = pair
        if a in jobs and b in jobs and a not in taken and b not in taken and _helps(pair, together, jobs, own):
            packs[pair] = together
            taken.update({a: None, b: None})
            excess -= jobs[a].scale_factor
    return packs


def _pairs(problem: Problem) -> Iterator[tuple[tuple[str, str], Together]]:
    """All pairs of jobs with their rates; where these are given by kinds, two jobs look their kinds up."""
    for pair in problem.pairs:
        yield pair.jobs, pair.throughputs
    if not problem.kind_pairs:
        return
    known = {row.kinds: row.throughputs for row in problem.kind_pairs}
    jobs = [(job.id, job.kind, job.scale_factor) for job in problem.jobs if job.kind]
    for (a, kind_a, width_a), (b, kind_b, width_b) in combinations(jobs, 2):
        if width_a != width_b:
            continue
        if (together := known.get((kind_a, kind_b))) is not None:
            yield (a, b), together
        elif (together := known.get((kind_b, kind_a))) is not None:
            yield (b, a), together


def _lot(a: str, b: str) -> int:
    """A pair's place in the order of the trials, whichever of the two is named first."""
    return crc32(f"{a}+{b}".encode() if a < b else f"{b}+{a}".encode())


def _helps(pair: tuple[str, str], together: Together, jobs: dict[str, Job], own: dict[str, int]) -> bool:
    """Whether the two together keep more than one job's speed, over those GPUs where they can be packed."""
    a, b = (jobs[job_id] for job_id in pair)
    gained = 0.0
    for gpu_type in _packable(a, b, together, own):
        rate_a, rate_b = together[gpu_type]
        kept = rate_a / a.throughputs[gpu_type] + rate_b / b.throughputs[gpu_type]
        gained += own[gpu_type] * (kept - 1.0)
    return gained > 0


def _shares_of(
    pair: tuple[str, str], together: Together, jobs: dict[str, Job], own: dict[str, int], slices: dict[str, float]
) -> list[Share]:
    """The pair's slices: both at once where they can be packed, else each alone for half of the time."""
    a, b = (jobs[job_id] for job_id in pair)
    packable = _packable(a, b, together, own)
    shares = [Share(jobs=pair, time={t: slices[t] for t in packable})]
    for job in (a, b):
        alone = {t: x / 2 for t, x in slices.items() if t not in packable and _runs(job, t, own)}
        if alone:
            shares.append(Share(jobs=(job.id,), time=alone))
    return shares


def _packable(a: Job, b: Job, together: Together, own: dict[str, int]) -> list[str]:
    """Types on which both run, alone and together."""
    return [t for t in own if _runs(a, t, own) and _runs(b, t, own) and min(together.get(t, (0.0, 0.0))) > 0]


def _runs(job: Job, gpu_type: str, own: dict[str, int]) -> bool:
    return job.throughputs.get(gpu_type, 0.0) > 0 and job.scale_factor <= own[gpu_type]
