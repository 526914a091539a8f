"""What would help a job that waits, by what the cores say of it at the moment: one change at a time.

A way says of which kind of change is looked for. The search (`search.py`) asks again after each change, because the
cores may then say something else: the next job in line has taken what was freed, or the limit of a user comes next.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec.structs import replace

from libs.contracts.gateway import ANY_TYPE
from libs.contracts.jobs import JobSpec
from libs.contracts.reasons import PendingReason
from libs.forecast import changes
from libs.forecast.changes import Change, Kind
from libs.kernel.present import Present, PresentJob, PresentNode

MOST_AHEAD = 64
"""Behind more jobs than that, the ends of a few others, and some rounds, start jobs that come before it."""
TOO_MANY_SERVERS = 64
"""A job that so many more servers would not help is not helped by servers."""
PASSED = 8
"""Where so many servers in a row went to jobs behind a gang, more of them are no way."""


class Way(StrEnum):
    """What kind of change is looked for where there is a choice."""

    ACCEPT = "accept"
    """The job asks for less: more servers will do, or it waits for no other job."""
    FIRST = "first"
    """Limits are raised and the job goes first; then jobs end."""
    GROW = "grow"
    """The same, and servers join instead."""
    END = "end"
    """Jobs that run end."""
    WAIT = "wait"
    """Time alone. Last, because a round of all jobs may be what it costs."""


BY_CHANGES_ALONE = (
    PendingReason.HEALTHY_GPUS_MISSING,
    PendingReason.FEATURE_MISSING,
    PendingReason.INSUFFICIENT_CPUS,
    PendingReason.INSUFFICIENT_MEMORY,
)
"""Causes that no passing of time takes away."""
NEVER_BY_GPUS = (PendingReason.HEALTHY_GPUS_MISSING, PendingReason.FEATURE_MISSING)


def remedy(way: Way, now: Present, job_id: str, made: list[Change], now_s: float) -> Change | None:
    """The next change on this way, which is not that of waiting; None: there is none.

    Args:
        made: the changes so far, which `now` has seen.
        now_s: the time by then, in seconds since the epoch.
    """
    if way is Way.END and max(now.ahead_for_gpus, now.ahead_for_quota) > MOST_AHEAD:
        return None
    first = _lets_through(way, now, job_id, made)
    if first is not None:
        return first
    job = now.jobs.get(job_id)
    if job is None or not _is_let_through(now, job_id):
        return None
    if job.held:
        return changes.resumed(job_id)
    if (retry_s := now.retries_s.get(job_id)) is not None:
        return changes.later(retry_s, retry_s - now_s) if way is not Way.ACCEPT else None
    if not job.queued and not job.gang:
        return _for_quota(way, now, job, made)
    return _for_gpus(way, now, job, made)


def waits_for_time(now: Present, job_id: str) -> bool:
    """Whether time alone may start the job, by what it was told."""
    job = now.jobs.get(job_id)
    if job_id in now.retries_s:
        return True
    if job is None or job.held or now.limits.get(job_id) or not _is_let_through(now, job_id):
        return False
    if not job.gang and now.ahead_for_gpus > MOST_AHEAD:
        return False
    needed = job.spec.gpus.count
    if job.cause in (PendingReason.INSUFFICIENT_GPUS, PendingReason.BEHIND) and not now.turn_s:
        return _all_free(now, job) >= needed
    return job.cause not in BY_CHANGES_ALONE


def for_it(now: Present, job_id: str) -> Change | None:
    """A job that is being stopped has left, where this one waits for such jobs."""
    job = now.jobs.get(job_id)
    if job is None or job.cause != PendingReason.WAITING_FOR_VICTIMS:
        return None
    leaving = next((each for each in now.jobs.values() if each.leaving), None)
    return changes.ended(leaving) if leaving is not None else None


def _all_free(now: Present, job: PresentJob) -> int:
    usable = (node for node in now.nodes.values() if node.present and not node.draining and job.is_for(node))
    return sum(_free(node, job.spec) for node in usable)


def _is_let_through(now: Present, job_id: str) -> bool:
    return not now.waits_for.get(job_id) and not now.quarantined.get(job_id)


def _lets_through(way: Way, now: Present, job_id: str, made: list[Change]) -> Change | None:
    """Of a job that admission holds back."""
    job, awaited = now.jobs.get(job_id), now.waits_for.get(job_id)
    if awaited and way is Way.ACCEPT and job is not None and not made:
        return changes.resubmitted(job.spec, "without waiting for other jobs")
    if awaited and way is Way.END:
        running = (now.jobs[each] for each in awaited if each in now.jobs and now.jobs[each].may_end)
        return next((changes.ended(each) for each in running), None)
    if quarantined := now.quarantined.get(job_id):
        return changes.released(quarantined) if way is not Way.ACCEPT else None
    return None


def _for_quota(way: Way, now: Present, job: PresentJob, made: list[Change]) -> Change | None:
    """Of a job that waits for its tenant's share."""
    if way is Way.ACCEPT:
        return None
    mine = job.spec.tenant
    if way is Way.END:
        limits = now.limits.get(job.job_id, [])
        ending = _least(each for each in _ending(now, job) if each.spec.tenant == mine) if limits else None
        borrowers = [now.jobs[each] for each in now.borrowers if each in now.jobs and now.jobs[each].may_end]
        found = ending or _least(each for each in borrowers if _serves(each, now, job)) or _to_end(now, job)
        return changes.ended(found) if found is not None else None
    if now.ahead_for_quota and (better := _preferred(now, job, made)) is not None:
        return better
    for limit in now.limits.get(job.job_id, []):
        if limit.tenant in now.tenants:
            return changes.raised(now.tenants[limit.tenant], limit)
    if not any(change.kind is Kind.GUARANTEE for change in made) and (more := _more_guaranteed(now, job)) is not None:
        return more
    return _more_gpus(way, now, job, made)


def _more_guaranteed(now: Present, job: PresentJob) -> Change | None:
    tenant = now.tenants.get(job.spec.tenant)
    if tenant is None or not any(each.guarantees for each in now.tenants.values()):
        return None
    key = next(iter(tenant.guarantees), ANY_TYPE)
    return changes.guaranteed(tenant, key, tenant.guarantees.get(key, 0) + job.spec.gpus.count)


def _for_gpus(way: Way, now: Present, job: PresentJob, made: list[Change]) -> Change | None:
    """Of a job that has its share, or is suspended, and waits for GPUs."""
    if (left := for_it(now, job.job_id)) is not None:
        return left
    if way is Way.ACCEPT:
        return _accepted(now, job, made)
    if job.cause in NEVER_BY_GPUS:
        return _usable_again(now, job) or _one_more_server(now, job, made)
    if way is not Way.END and now.ahead_for_gpus and (better := _preferred(now, job, made)) is not None:
        return better
    return _more_gpus(way, now, job, made)


def _more_gpus(way: Way, now: Present, job: PresentJob, made: list[Change]) -> Change | None:
    if way is Way.GROW:
        return None if _is_passed(now, job, made) else _one_more_server(now, job, made)
    found = _to_end(now, job)
    return changes.ended(found) if found is not None else None


def _preferred(now: Present, job: PresentJob, made: list[Change]) -> Change | None:
    """Once, and only where others may be in front of it."""
    if any(change.kind is Kind.PRIORITY for change in made):
        return None
    return changes.preferred(job.job_id, max(now.top_priority, job.priority) + 1)


def _accepted(now: Present, job: PresentJob, made: list[Change]) -> Change | None:
    """More servers will do: for gangs that wait for fewer, and for one that is limited to fewer."""
    if now.settings.get("wait_for_locality_s") and job.cause == PendingReason.LOCALITY_RELAXING:
        return changes.unweighed()  # on the branch it is 0 from then on
    made = [change for change in made if change.message != changes.unweighed().message]
    most = job.spec.gpus.max_nodes
    limited = job.cause == PendingReason.GANG_FRAGMENTED and most is not None and most < job.spec.gpus.count
    if not made and (limited or job.cause == PendingReason.LOCALITY_RELAXING):
        return changes.relaxed()
    if len(made) == 1 and limited:
        gpus = replace(job.spec.gpus, max_nodes=None)
        return changes.resubmitted(replace(job.spec, gpus=gpus), "and accepts any number of servers")
    return None


def _usable_again(now: Present, job: PresentJob) -> Change | None:
    """A node that is there and drains is used again."""
    fitting = (node for node in now.nodes.values() if node.present and node.draining and _accepts(job, node))
    return next((changes.undrained(node.node_id) for node in fitting), None)


def _one_more_server(now: Present, job: PresentJob, made: list[Change]) -> Change | None:
    """As the largest that the job may use; with what it needs beside GPUs where none has it."""
    number = sum(change.kind is Kind.SERVER for change in made)
    fitting = [node for node in now.nodes.values() if _accepts(job, node)]
    if not fitting or number >= TOO_MANY_SERVERS:
        return None
    like = max(fitting, key=lambda node: (node.present, len(node.gpu_types)))
    width = len(like.gpu_types)
    cpus, memory_bytes = (job.spec.cpus or 0) * width, (job.spec.memory_bytes or 0) * width
    return changes.joined(like, number + 1, job.spec.needs, cpus, memory_bytes)


def _is_passed(now: Present, job: PresentJob, made: list[Change]) -> bool:
    """Whether all GPUs of the servers that joined last went to jobs behind it: servers join one by one, and a gang that
    needs several gets none of them while many jobs wait that need one."""
    number = sum(change.kind is Kind.SERVER for change in made)
    last = [now.nodes.get(changes.new_server(each)) for each in range(number - PASSED + 1, number + 1)]
    return not now.ahead_for_gpus and all(
        node is not None and job.spec.gpus.count > len(node.gpu_types) and not _free(node, job.spec) for node in last
    )


def _accepts(job: PresentJob, node: PresentNode) -> bool:
    return job.is_for(node) and any(job.spec.gpus.accepts(gpu_type) for gpu_type in node.gpu_types)


def _ending(now: Present, job: PresentJob) -> Iterator[PresentJob]:
    return (each for each in now.jobs.values() if each.may_end and each.job_id != job.job_id)


def _serves(other: PresentJob, now: Present, job: PresentJob) -> bool:
    """Whether it has GPUs that the job may use."""
    return any(task.node_id in now.nodes and _accepts(job, now.nodes[task.node_id]) for task in other.gang)


def _least(jobs: Iterator[PresentJob]) -> PresentJob | None:
    """The one on the fewest GPUs, of these the one that has run longest."""
    return min(jobs, key=lambda job: (_width(job), job.since_s, job.job_id), default=None)


def _width(job: PresentJob) -> int:
    return sum(len(task.gpu_indices) for task in job.gang)


def _to_end(now: Present, job: PresentJob) -> PresentJob | None:
    """The job that is to end next: on the server where the fewest GPUs have to become free for the one that waits.

    A suspended job goes on where it was.
    """
    at = {task.node_id for task in job.gang}
    running: dict[str, list[PresentJob]] = {}
    for other in _ending(now, job):
        for task in other.gang:
            running.setdefault(task.node_id, []).append(other)
    usable = [
        node
        for node in now.nodes.values()
        if node.node_id in running and node.present and not node.draining and _accepts(job, node)
    ]
    wanted = _width(job) or job.spec.gpus.count
    best = min(
        (node for node in usable if not at or node.node_id in at),
        key=lambda node: (_missing(node, job.spec, wanted), node.node_id),
        default=None,
    )
    if best is None:
        return None
    short = max(1, min(wanted, len(best.gpu_types)) - _free(best, job.spec))
    here = running[best.node_id]
    enough = [each for each in here if _width(each) >= short]
    return _least(iter(enough)) if enough else max(here, key=lambda each: (_width(each), each.job_id))


def _free(node: PresentNode, spec: JobSpec) -> int:
    return sum(free for gpu_type, free in node.free.items() if spec.gpus.accepts(gpu_type))


def _missing(node: PresentNode, spec: JobSpec, wanted: int) -> tuple[int, int]:
    """What a server lacks even if it is empty, and what has to become free there."""
    have = sum(spec.gpus.accepts(gpu_type) for gpu_type in node.gpu_types)
    return max(0, wanted - have), max(0, min(wanted, have) - _free(node, spec))
