"""What a problem must be like to have an answer: asked where problems come in from outside."""

from __future__ import annotations

from math import inf

from libs.policies.problem import GpuPool, InvalidProblem, Job, Pair, Problem


def check_problem(problem: Problem) -> None:
    """Raises InvalidProblem where the problem contradicts itself."""
    _check_cluster(problem.cluster)
    known: dict[str, int] = {}
    for index, job in enumerate(problem.jobs):
        if known.setdefault(job.id, index) != index:
            expected = f"an id that $.jobs[{known[job.id]}] does not have"
            raise InvalidProblem(f"$.jobs[{index}].id", repr(job.id), expected)
        _check_job(job, index, problem)
    for index, pair in enumerate(problem.pairs):
        _check_pair(pair, f"$.pairs[{index}]", known, problem)
    if problem.pairs and problem.kind_pairs:
        raise InvalidProblem("$.kind_pairs", f"{len(problem.pairs)} pairs beside it", "pairs of jobs or of kinds")
    for name, entity in problem.entities.items():
        if not 0 < entity.weight < inf:
            raise _not_positive(entity.weight, f"$.entities.{name}.weight")
        if entity.policy not in ("fairness", "fifo"):
            raise InvalidProblem(f"$.entities.{name}.policy", repr(entity.policy), "fairness or fifo")


def _check_cluster(cluster: dict[str, GpuPool]) -> None:
    for name, pool in cluster.items():
        if pool.gpus < 0:
            raise InvalidProblem(f"$.cluster.{name}.gpus", repr(pool.gpus), "0 or more")
        other = pool.shares_gpus_with
        if other is not None and (other not in cluster or cluster[other].shares_gpus_with is not None):
            raise InvalidProblem(f"$.cluster.{name}.shares_gpus_with", repr(other), "a type with GPUs of its own")


def _check_job(job: Job, index: int, problem: Problem) -> None:
    if not 0 < job.weight < inf:
        raise _not_positive(job.weight, f"$.jobs[{index}].weight")
    if job.scale_factor < 1:
        raise InvalidProblem(f"$.jobs[{index}].scale_factor", repr(job.scale_factor), "1 or more")
    if job.entity is not None and problem.entities and job.entity not in problem.entities:
        raise InvalidProblem(f"$.jobs[{index}].entity", repr(job.entity), f"one of {', '.join(problem.entities)}")
    cluster = problem.cluster
    for gpu_type, rate in job.throughputs.items():
        if gpu_type not in cluster:
            raise _unknown_type(gpu_type, f"$.jobs[{index}]", cluster)
        if not 0 <= rate < inf:
            raise _negative(rate, f"$.jobs[{index}].throughputs.{gpu_type}")
    if not 0 <= job.elapsed_s < inf:
        raise _negative(job.elapsed_s, f"$.jobs[{index}].elapsed_s")
    if not 0 <= job.isolated_elapsed_s < inf:
        raise _negative(job.isolated_elapsed_s, f"$.jobs[{index}].isolated_elapsed_s")
    if job.steps_remaining is not None and not 0 <= job.steps_remaining < inf:
        raise _negative(job.steps_remaining, f"$.jobs[{index}].steps_remaining")
    if job.slo_s is not None and not 0 < job.slo_s < inf:
        raise _not_positive(job.slo_s, f"$.jobs[{index}].slo_s")


def _check_pair(pair: Pair, path: str, known: dict[str, int], problem: Problem) -> None:
    for index, job_id in enumerate(pair.jobs):
        if job_id not in known:
            raise InvalidProblem(f"{path}.jobs[{index}]", repr(job_id), "the id of a job in $.jobs")
    if pair.jobs[0] == pair.jobs[1]:
        raise InvalidProblem(f"{path}.jobs", repr(pair.jobs[0]), "two different jobs")
    a, b = (problem.jobs[known[job_id]] for job_id in pair.jobs)
    if a.scale_factor != b.scale_factor:
        seen = f"scale factors {a.scale_factor} and {b.scale_factor}"
        raise InvalidProblem(f"{path}.jobs", seen, "jobs of equal scale factor")
    for gpu_type, together in pair.throughputs.items():
        if gpu_type not in problem.cluster:
            raise _unknown_type(gpu_type, path, problem.cluster)
        for index, rate in enumerate(together):
            if not 0 <= rate < inf:
                raise _negative(rate, f"{path}.throughputs.{gpu_type}[{index}]")


def _unknown_type(gpu_type: str, path: str, cluster: dict[str, GpuPool]) -> InvalidProblem:
    return InvalidProblem(f"{path}.throughputs.{gpu_type}", "an unknown GPU type", f"one of {', '.join(cluster)}")


def _negative(value: float, path: str) -> InvalidProblem:
    return InvalidProblem(path, repr(value), "a number, 0 or more")


def _not_positive(value: float, path: str) -> InvalidProblem:
    return InvalidProblem(path, repr(value), "a number greater than 0")
