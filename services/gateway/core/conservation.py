"""The operator's light: every job has exactly one state and is brought on, every GPU and all quota is accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from libs.contracts.introspection import JobStuck
from libs.contracts.read_models import FINAL_STATES, GpuRow, JobRow, JobState, NodeRow, TaskStatus, TenantRow
from libs.kernel.words import bytes_of, counted, either, plural
from services.gateway.core.hosts import NOTHING, promised

NONE_STANDS = "no job is left standing"
SHOWN = 5
"""So many violations of one law are spelled out."""


@dataclass(frozen=True)
class Law:
    """One thing that must hold, and what contradicts it."""

    name: str
    holds: bool
    checked: int
    violations: list[str]


@dataclass(frozen=True)
class Counts:
    """What the tables add up to."""

    arrived: int
    """JobArrived events."""
    ended: int
    """Terminal events."""
    by_state: Mapping[str, int]
    """Jobs by state."""


def check(
    live: Sequence[JobRow],
    gpus: Sequence[GpuRow],
    tenants: Sequence[TenantRow],
    counts: Counts,
    nodes: Sequence[NodeRow] = (),
    asking: Sequence[JobRow] = (),
) -> list[Law]:
    """Judge the read models as of one position.

    Args:
        live: every job that has not ended.
        gpus: every GPU.
        tenants: every tenant.
        counts: of all jobs and events.
        nodes: every node.
        asking: the jobs that have not ended and ask for CPUs or memory, in full.
    """
    jobs = {job.id: job for job in live}
    return [
        _law("every job is in exactly one state", sum(counts.by_state.values()), _one_state(live, counts)),
        _law("every job ends once", counts.ended, _ends_once(counts)),
        _law("every held GPU is held by a job that has it", len(gpus), _held(jobs, gpus)),
        _law("every job holds the GPUs it was given", len(live), _given(live, gpus)),
        _law("no node promises CPUs or memory that it has not", len(nodes), _enough(asking, gpus, nodes)),
        _law("every tenant is charged what its jobs were granted", len(tenants), _charged(live, tenants)),
        _law(NONE_STANDS, len(live), _left_standing(live)),
    ]


def _law(name: str, checked: int, violations: Iterable[str]) -> Law:
    found = list(violations)
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return Law(name, not found, checked, found[:SHOWN] + more)


def _one_state(live: Sequence[JobRow], counts: Counts) -> Iterable[str]:
    unknown = [state for state in counts.by_state if state not in JobState.__members__]
    if unknown:
        yield f"unknown states: {', '.join(unknown)}"
    total = sum(counts.by_state.values())
    if total != counts.arrived:
        yield f"{counted(counts.arrived, 'job has', 'jobs have')} arrived, {total} {plural(total, 'is', 'are')} known"
    alive = sum(n for state, n in counts.by_state.items() if state not in FINAL_STATES)
    if alive != len(live):
        alive_jobs, found = counted(alive, "job is", "jobs are"), counted(len(live), "is", "are")
        yield f"{alive_jobs} in a state that is not final, {found} found"


def _left_standing(live: Sequence[JobRow]) -> Iterable[str]:
    """As introspection has found it, which knows how long jobs stand."""
    for job in live:
        if (found := job.notices.get(JobStuck.__name__)) is not None:
            yield f"job {job.id} is stuck: {found}"


def _ends_once(counts: Counts) -> Iterable[str]:
    final = sum(n for state, n in counts.by_state.items() if state in FINAL_STATES)
    if final != counts.ended:
        ends = counted(counts.ended, "end is", "ends are")
        yield f"{counted(final, 'job has', 'jobs have')} ended, {ends} on the log"


def _held(jobs: Mapping[str, JobRow], gpus: Sequence[GpuRow]) -> Iterable[str]:
    for gpu in gpus:
        for job_id, attempt, _ in gpu.occupants:
            job = jobs.get(job_id)
            if job is None:
                yield f"GPU {gpu.id} is held by {job_id}, which has ended or never was"
            elif gpu.id not in _placement(job):
                yield f"GPU {gpu.id} is held by {job_id}, which was given {', '.join(_placement(job)) or 'nothing'}"
            elif attempt != job.attempt:
                yield f"GPU {gpu.id} is held by attempt {attempt} of {job_id}, which is at attempt {job.attempt}"


def _given(live: Sequence[JobRow], gpus: Sequence[GpuRow]) -> Iterable[str]:
    held: dict[str, list[str]] = {}
    for gpu in gpus:
        for job_id, _, _ in gpu.occupants:
            held.setdefault(job_id, []).append(gpu.id)
    for job in live:
        has = sorted(held.get(job.id, []))
        running = [status for status in job.tasks.values() if status is not TaskStatus.EXITED]
        due = sorted(_placement(job)) if running else []
        if has != due:
            yield f"job {job.id} should hold {', '.join(due) or 'nothing'} and holds {', '.join(has) or 'nothing'}"
        elif due and len(due) not in job.widths:
            yield f"job {job.id} may have {either(job.widths, 'GPU')} and holds {len(due)}"


def _enough(asking: Sequence[JobRow], gpus: Sequence[GpuRow], nodes: Sequence[NodeRow]) -> Iterable[str]:
    have = promised(asking, gpus)
    for node in nodes:
        given = have.get(node.id, NOTHING)
        if given.cpus > node.cpus:
            yield f"node {node.id} has {counted(node.cpus, 'CPU')}, its jobs are promised {given.cpus}"
        if given.memory_bytes > node.memory_bytes:
            has, is_given = bytes_of(node.memory_bytes), bytes_of(given.memory_bytes)
            yield f"node {node.id} has {has} of memory, its jobs are promised {is_given}"


def _charged(live: Sequence[JobRow], tenants: Sequence[TenantRow]) -> Iterable[str]:
    granted: dict[str, int] = {}
    for job in live:
        granted[job.tenant] = granted.get(job.tenant, 0) + job.granted_gpus
    for tenant in tenants:
        due = granted.get(tenant.name, 0)
        if tenant.granted_gpus != due:
            yield f"tenant {tenant.name} is charged {counted(tenant.granted_gpus, 'GPU')}, its jobs were granted {due}"


def _placement(job: JobRow) -> list[str]:
    return [f"{task['node_id']}:{index}" for task in job.placement for index in task["gpu_indices"]]
