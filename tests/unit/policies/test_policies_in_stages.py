"""Policies that settle one thing after the other: what was settled never stands in the way of what comes next."""

from __future__ import annotations

import random

import pytest

from libs.policies.allocation.solve import solve
from libs.policies.problem import Entity, GpuPool, Job, Pair, PolicyOptions, Problem

TYPES = ("a", "b", "c")


def problem(policy: str, seed: int) -> Problem:
    """Up to 40 jobs that all differ, a dozen of which may share GPUs."""
    luck = random.Random(seed)
    jobs = [_job(f"j{number}", luck) for number in range(luck.randrange(2, 40))]
    entities = {name: Entity() for name in "xyz"}
    return Problem(
        policy=policy,
        cluster={gpu_type: GpuPool(gpus=luck.randrange(1, 20)) for gpu_type in TYPES},
        jobs=jobs,
        pairs=_pairs(jobs[:12], luck),
        options=PolicyOptions(space_sharing=True, heterogeneity_aware=seed % 2 == 0),
        entities=entities if policy == "hierarchical" else {},
    )


def _job(job_id: str, luck: random.Random) -> Job:
    fast = 10 ** luck.uniform(-1, 1)
    return Job(
        id=job_id,
        throughputs={gpu_type: fast * 10 ** luck.uniform(-0.7, 0.7) for gpu_type in TYPES},
        scale_factor=luck.choice([1, 1, 2, 4]),
        entity=luck.choice("xyz"),
        steps_remaining=fast * 10 ** luck.uniform(2, 5),
    )


def _pairs(jobs: list[Job], luck: random.Random) -> list[Pair]:
    return [
        Pair(
            jobs=(one.id, other.id),
            throughputs={
                t: (one.throughputs[t] * luck.uniform(0.3, 1), other.throughputs[t] * luck.uniform(0.3, 1))
                for t in TYPES
            },
        )
        for number, one in enumerate(jobs)
        for other in jobs[number + 1 :]
        if one.scale_factor == other.scale_factor
    ]


@pytest.mark.parametrize("policy", ["shortest_job_first", "hierarchical"])
def test_what_was_reached_can_be_kept(policy: str):
    for seed in range(60):
        assert solve(problem(policy, seed)).allocation
