"""The problem that is put to an allocation policy, from what placement knows."""

from __future__ import annotations

from hashlib import blake2b

from libs.contracts import features
from libs.policies.allocation.policy import AllocationPolicy
from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.problem import Entity, GpuPool, KindPair, Problem
from libs.policies.problem import Job as ProblemJob
from services.placement.core.cell import Cell
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.suspending.returning import is_pinned
from services.placement.core.mechanisms.rounds.pinning import gives_way, open_rates, open_types
from services.placement.core.sharing.pairs import of_configurations
from services.placement.core.sharing.rates import configuration_of

Offered = dict[str, dict[str, list[int]]]
"""{GPU type: {node: indices of the GPUs that may be given away}}, by type."""
COMPETING = (Phase.ACTIVE, Phase.QUEUED)
"""Phases of the jobs that a round is about."""
AHEAD_ROUNDS, AHEAD_RATIO = 2.0, 0.05
"""How much earlier than its deadline a job is to be done: so many rounds, at most this part of the whole time."""


def competitors(cell: Cell) -> list[Job]:
    """Jobs that wait for GPUs or hold some, in order of arrival; without those that are cancelled, paused or wait for
    quota where they stand."""
    return [
        job
        for job in cell.without_guests()
        if job.phase in COMPETING and not (job.held or job.cancellation or (job.returns_to_quota and job.awaits_quota))
    ]


def offered(cell: Cell) -> Offered:
    """The healthy GPUs that no paused job keeps, and none on its way to them, on usable nodes."""
    keep = {job.job_id: None for job in cell.without_guests() if job.held and job.gang and not gives_way(cell, job)}
    keep |= {job_id: None for job_id in cell.suspended if cell.jobs[job_id].move is not None}
    found: Offered = {}
    for node_id, node in cell.nodes.items():
        if node.usable:
            for gpu_type, indices in node.healthy.items():
                if keep:
                    indices = [i for i in indices if keep.keys().isdisjoint(node.gpus[i].holders)]
                if indices:
                    found.setdefault(gpu_type, {})[node_id] = indices
    return dict(sorted(found.items()))


def totals(gpus: Offered) -> dict[str, int]:
    """{GPU type: GPUs}."""
    return {gpu_type: sum(map(len, nodes.values())) for gpu_type, nodes in gpus.items()}


def shared(cell: Cell, jobs: list[Job], gpus: Offered) -> dict[str, int]:
    """{GPU type: GPUs} that these jobs can have: of those in the pool, as many as there are trials for it."""
    found = totals(gpus)
    if cell.set_apart:
        trials = [job for job in jobs if features.name_of(job.pool)]
        for gpu_type, nodes in gpus.items():
            apart = sum(len(nodes.get(node_id, ())) for node_id in cell.set_apart)
            found[gpu_type] -= max(0, apart - sum(job.spec.gpus.accepts(gpu_type) for job in trials))
    return found


def fingerprint(cell: Cell, jobs: list[Job], gpus: dict[str, int]) -> str:
    """Changes when a reset event has happened: other jobs or pinned nodes, other GPUs, another policy, other rates."""
    options = cell.options
    parts = [cell.policy, str(options.space_sharing), str(options.heterogeneity_aware), str(options.water_filling)]
    parts += [f"{t}={n}" for t, n in gpus.items()]
    parts += [job.job_id for job in jobs]
    parts += [f"{node.node_id}:{','.join(node.features)}" for node in cell.nodes.values() if node.features]
    pinned = [job for job in jobs if not job.spec.restartable and is_pinned(cell, job)]
    parts += [f"{job.job_id}@{','.join(open_types(cell, job, list(gpus)))}" for job in pinned]
    parts += [str(cell.known.version), str(cell.tenant_weights), str(cell.cost_per_hour)]
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def question(cell: Cell, jobs: list[Job], gpus: dict[str, int], now_s: float) -> Problem:
    """The whole problem; `jobs` in order of arrival."""
    types = list(gpus)
    policy = ALLOCATION_POLICIES[cell.policy]
    listed = [_job(cell, policy, job, types, now_s) for job in jobs]
    return Problem(
        policy=cell.policy,
        options=cell.options,
        cluster={t: GpuPool(gpus=n, cost_per_hour=cell.cost_per_hour.get(t, 0.0)) for t, n in gpus.items()},
        jobs=listed,
        kind_pairs=_kind_pairs(cell, jobs, types) if cell.options.space_sharing else [],
        entities=_entities(cell, jobs) if policy.sees_entities else {},
    )


def _job(cell: Cell, policy: AllocationPolicy, job: Job, types: list[str], now_s: float) -> ProblemJob:
    throughputs = open_rates(cell, job, types)
    row = ProblemJob(
        id=job.job_id,
        throughputs=throughputs,
        scale_factor=job.spec.gpus.count,
        weight=job.spec.weight,
        entity=job.spec.tenant if policy.sees_entities else None,
        kind=configuration_of(job) if cell.options.space_sharing and job.spec.restartable else "",
    )
    if not policy.sees_work:
        return row
    left = max(1.0, (job.spec.total_steps or 0.0) - job.account.steps_done)
    elapsed_s = now_s - job.arrived_s
    return ProblemJob(
        id=row.id,
        kind=row.kind,
        throughputs=throughputs,
        scale_factor=row.scale_factor,
        weight=row.weight,
        steps_remaining=left,
        elapsed_s=elapsed_s,
        isolated_elapsed_s=job.account.isolated_s,
        slo_s=None if job.spec.deadline_s is None else _until(job.spec.deadline_s, elapsed_s, cell.settings.round_s),
    )


def _until(deadline_s: float, elapsed_s: float, round_s: float) -> float:
    """Seconds within which the work is asked to be done: less than there are, but for the last few rounds.

    Shares come in whole rounds, and a policy that saves cost leaves no time to spare.
    """
    left_s = deadline_s - elapsed_s
    ahead_s = min(AHEAD_ROUNDS * round_s, AHEAD_RATIO * deadline_s)
    return max(1.0, left_s - ahead_s if left_s > ahead_s + round_s else left_s)


def _kind_pairs(cell: Cell, jobs: list[Job], types: list[str]) -> list[KindPair]:
    """Every pair of the jobs' configurations of which anything is known or guessed."""
    kinds: dict[str, Job] = {}
    for job in jobs:
        if job.spec.model and job.spec.restartable:
            kinds.setdefault(configuration_of(job), job)
    found, listed = [], list(kinds.items())
    for number, first in enumerate(listed):
        for second in listed[number:]:
            if first[1].spec.gpus.count == second[1].spec.gpus.count:
                known = of_configurations(cell, first, second, types)
                if known:
                    found.append(KindPair(kinds=(first[0], second[0]), throughputs=known))
    return found


def _entities(cell: Cell, jobs: list[Job]) -> dict[str, Entity]:
    tenants = dict.fromkeys(job.spec.tenant for job in jobs)
    return {tenant: Entity(weight=cell.tenant_weights.get(tenant, 1.0)) for tenant in tenants}
