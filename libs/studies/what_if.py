"""What would have become of the jobs of a recorded log under another policy, simulated from some offset on.

The jobs that had not ended at that offset are played again by the same services on a virtual clock, on the servers that
the log names: once under the policy that was in force, once under the other. Both are simulated, so that differences
are the policies' and not the simulation's. A job's work is the time for which it held its GPUs on the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import NodeJoined
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Event
from libs.contracts.features import pool_of
from libs.contracts.gateway import (
    JobArrived,
    JobPriorityChanged,
    PolicyChanged,
    SettingChanged,
    TenantConfigured,
    ThroughputsProvided,
)
from libs.contracts.jobs import JobSpec, SimulatedWork
from libs.inspect.logs import Log
from libs.kernel.service import Service
from libs.lifecycle import Holding, Lives
from libs.policies.table import DEFAULT_POLICY
from libs.sim.clusters import Cluster, Server
from libs.sim.options import Options
from libs.sim.outcomes import Outcome
from libs.sim.simulation import Simulation
from libs.sim.workloads import Planned, Workload, arrival

ASKED = (TenantConfigured, SettingChanged, JobPriorityChanged, ThroughputsProvided)
"""Requests that are made again, at their times. Changes of the policy are, under the recorded one alone."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One job under both policies. Times in seconds from when it was admitted, or from the offset, if later."""

    job_id: str
    name: str
    tenant: str
    gpus: int
    recorded_wait_s: float | None
    """As on the log; None: it had started before the offset, or has not started."""
    wait_s: float | None
    """Until it ran for the first time, simulated under the recorded policy; None: it has not run."""
    other_wait_s: float | None
    finish_s: float | None
    """Until its end, simulated under the recorded policy."""
    other_finish_s: float | None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison has found."""

    policy: str
    """In force on the log at the offset."""
    other: str
    from_offset: int
    gpus: int
    jobs: list[Comparison]
    """By how much later, or earlier, they end; the largest difference first."""
    preemptions: tuple[int, int]
    """Under the recorded policy, and under the other."""
    makespan_s: tuple[float, float]
    unknown: list[str]
    """Jobs that are left out: they held no GPUs on the log, or in a trial alone, so that it is not known how long they
    run."""
    unfinished: list[str]
    """Jobs that had not ended on the log: they are played as if they had ended with it."""


@dataclass
class Recorded:
    """What a log says of the time from an offset on."""

    from_offset: int
    from_s: float = 0.0
    policy: PolicyChanged = field(default_factory=lambda: PolicyChanged(policy=DEFAULT_POLICY, requested_by=""))
    """In force at the offset."""
    servers: dict[str, NodeJoined] = field(default_factory=dict)
    asked: list[tuple[float, Event]] = field(default_factory=list)
    """(time, request), those of before at the time of the offset."""
    specs: dict[str, tuple[float, JobSpec]] = field(default_factory=dict)
    """{job: (when it was admitted, as submitted)}, of those that had not ended before the offset. A job that waits for
    others, or for its array's limit, is admitted when it need not wait for them any more."""
    held_s: dict[str, float] = field(default_factory=dict)
    started_s: dict[str, float | None] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)


def what_if(
    log: Log,
    services: Sequence[Service[Any]],
    other: PolicyChanged,
    *,
    from_offset: int = 0,
    changes: Iterable[SettingChanged] = (),
    watch: Callable[[int], None] | None = None,
) -> WhatIf:
    """Play the jobs of a log under the recorded policy and under another.

    Args:
        log: from its beginning.
        services: the cores.
        other: the policy to compare with.
        from_offset: jobs that had ended before it are left out; what others had done before it is done.
        changes: settings that hold with the other policy.
        watch: told of how many jobs have ended, of both runs together.

    Raises:
        BadInput: no node has ever joined, or no job has held GPUs from the offset on.
        Stalled: a run would never end.
    """
    found = _read(log, from_offset)
    known = {job_id: each for job_id, each in found.specs.items() if found.held_s.get(job_id, 0.0) > 0}
    if not found.servers:
        raise BadInput("the log", "no node in it", "a log of a cell with servers")
    if not known:
        raise BadInput("the log", f"no job that has held GPUs from offset {from_offset} on", "an earlier --from")
    cluster = Cluster(tuple(server for joined in found.servers.values() for server in _servers(joined)))
    policies = [(found.from_s, found.policy), *((s, e) for s, e in found.asked if isinstance(e, PolicyChanged))]
    asked = [(s, e) for s, e in found.asked if isinstance(e, ASKED)]
    own = _played(found, known, [*policies, *asked], cluster, services, watch, 0)
    changed = [*asked, (found.from_s, other), *((found.from_s, change) for change in changes)]
    others = _played(found, known, changed, cluster, services, watch, len(known))
    jobs = [_comparison(found, job_id, known[job_id], own[job_id], others[job_id]) for job_id in known]
    jobs.sort(key=lambda job: (-abs((job.other_finish_s or 0.0) - (job.finish_s or 0.0)), job.job_id))
    return WhatIf(
        policy=found.policy.policy,
        other=other.policy,
        from_offset=from_offset,
        gpus=cluster.total_gpus,
        jobs=jobs,
        preemptions=(_preemptions(own), _preemptions(others)),
        makespan_s=(_makespan_s(own), _makespan_s(others)),
        unknown=[job_id for job_id in found.specs if job_id not in known],
        unfinished=[job_id for job_id in found.unfinished if job_id in known],
    )


def _read(log: Log, from_offset: int) -> Recorded:
    found, lives, begun = Recorded(from_offset=from_offset), Lives(), False
    time_s = 0.0
    for record in log.control():
        event, time_s = record.envelope.event, record.envelope.time_s
        if not begun and record.offset >= from_offset:
            begun, found.from_s = True, time_s
            found.asked = [(time_s, asked) for _, asked in found.asked]
            found.specs = {job_id: each for job_id, each in found.specs.items() if not lives.jobs[job_id].has_ended}
        for closed in lives.take(event, time_s):
            _count(found, closed, lives, begun)
        _note(found, event, time_s, begun=begun)
    for holding in lives.open():
        if isinstance(holding, Holding):
            holding.end_s = time_s
            _count(found, holding, lives, begun)
    for job_id in found.specs:
        life = lives.jobs[job_id]
        found.started_s[job_id] = life.books.first_task_s
        if not life.has_ended:
            found.unfinished.append(job_id)
    return found


def _count(found: Recorded, closed: object, lives: Lives, begun: bool) -> None:
    """The time of a stretch with GPUs, as far as it lies behind the offset.

    A trial is no work of its job: it is run again where the settings ask for one.
    """
    if not begun or not isinstance(closed, Holding) or lives.jobs[closed.job_id].books.in_trial:
        return
    if closed.end_s is not None:
        held_s = max(0.0, closed.end_s - max(closed.begin_s, found.from_s))
        found.held_s[closed.job_id] = found.held_s.get(closed.job_id, 0.0) + held_s


def _note(found: Recorded, event: Event, time_s: float, *, begun: bool) -> None:
    if isinstance(event, JobArrived):
        found.specs.setdefault(event.job_id, (time_s, event.spec))
    elif isinstance(event, JobAdmitted) and event.job_id in found.specs:
        found.specs[event.job_id] = (time_s, found.specs[event.job_id][1])
    elif isinstance(event, NodeJoined):
        found.servers[event.node_id] = event
    elif isinstance(event, PolicyChanged) and not begun:
        found.policy = event
    elif isinstance(event, (PolicyChanged, *ASKED)):
        found.asked.append((time_s, event))


def _servers(joined: NodeJoined) -> list[Server]:
    """A simulated server has GPUs of one type; a node with several becomes as many servers."""
    types = list(dict.fromkeys(gpu.gpu_type for gpu in joined.gpus))
    names = {of: joined.node_id if len(types) == 1 else f"{joined.node_id}-{of}" for of in types}
    return [
        Server(
            node_id=names[of],
            gpu_type=of,
            gpus=sum(gpu.gpu_type == of for gpu in joined.gpus),
            rack=joined.rack or "r0",
            pool=pool_of(joined.features),
        )
        for of in types
    ]


def _played(
    found: Recorded,
    jobs: dict[str, tuple[float, JobSpec]],
    asked: Iterable[tuple[float, Event]],
    cluster: Cluster,
    services: Sequence[Service[Any]],
    watch: Callable[[int], None] | None,
    before: int,
) -> dict[str, Outcome]:
    def at(time_s: float) -> float:
        return max(0.0, time_s - found.from_s)

    known = [
        (time_s, event) for time_s, event in asked if not isinstance(event, JobPriorityChanged) or event.job_id in jobs
    ]
    arrivals = [
        arrival(at(time_s), job_id, _simulated(spec, found.held_s[job_id]))
        for job_id, (time_s, spec) in sorted(jobs.items(), key=lambda item: item[1][0])
    ]
    # Policies and settings first: arrivals at the same time are to find them in force. Priorities come behind the jobs.
    first = [Planned(at(time_s), event) for time_s, event in known if not isinstance(event, JobPriorityChanged)]
    last = [Planned(at(time_s), event) for time_s, event in known if isinstance(event, JobPriorityChanged)]
    workload = Workload((*first, *arrivals, *last))
    simulation = Simulation(services, cluster, workload, options=Options(keep_log=False))

    def told(now: Simulation) -> None:
        if watch is not None:
            watch(before + sum(life.has_ended for life in now.lives.jobs.values()))

    simulation.run(told)
    return simulation.outcomes


def _simulated(spec: JobSpec, duration_s: float) -> JobSpec:
    """The job with its work as a duration: one step a second on every GPU type, on as many GPUs as it asks for."""
    return msgspec.structs.replace(
        spec,
        command=["simulated"],
        code_id=None,
        env={},
        elastic=None,
        max_retries=0,
        time_limit_s=None,
        throughputs={},
        total_steps=duration_s,
        simulated=SimulatedWork(model=spec.model, batch_size=spec.batch_size, duration_s=duration_s),
    )


def _comparison(
    found: Recorded, job_id: str, submitted: tuple[float, JobSpec], own: Outcome, other: Outcome
) -> Comparison:
    time_s, spec = submitted
    started_s = found.started_s[job_id]
    waited_s = None if started_s is None or started_s < found.from_s else started_s - max(time_s, found.from_s)
    return Comparison(
        job_id=job_id,
        name=spec.name,
        tenant=spec.tenant,
        gpus=spec.gpus.count,
        recorded_wait_s=waited_s,
        wait_s=_since(own.submit_s, own.first_start_s),
        other_wait_s=_since(other.submit_s, other.first_start_s),
        finish_s=_since(own.submit_s, own.finish_s),
        other_finish_s=_since(other.submit_s, other.finish_s),
    )


def _since(begin_s: float, end_s: float | None) -> float | None:
    return None if end_s is None else end_s - begin_s


def _preemptions(outcomes: dict[str, Outcome]) -> int:
    return sum(outcome.preemptions for outcome in outcomes.values())


def _makespan_s(outcomes: dict[str, Outcome]) -> float:
    return max((outcome.finish_s or 0.0 for outcome in outcomes.values()), default=0.0)
