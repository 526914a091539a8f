"""One change of the present: what it is in words, and what stands on the log when it has happened."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from libs.contracts.agent import JobExited, NodeJoined
from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo, PortRange
from libs.contracts.gateway import (
    ANY_TYPE,
    OWNER,
    InputReleaseRequested,
    JobArrived,
    JobPriorityChanged,
    JobResumeRequested,
    NodeUndrainRequested,
    SettingChanged,
    TenantConfigured,
)
from libs.contracts.jobs import JobSpec
from libs.contracts.reasons import Number
from libs.kernel.present import PresentJob, PresentLimit, PresentNode
from libs.kernel.words import counted

ASKED_BY = "why"
NEW_SERVER, NEW_JOB = "new-server", "new-job"
"""Ids of what a change adds; no real ones look like them."""


class Kind(StrEnum):
    """What is changed."""

    END = "end"
    """A job ends and gives its GPUs back."""
    PRIORITY = "priority"
    LIMIT = "limit"
    GUARANTEE = "guarantee"
    SERVERS = "servers"
    """It accepts more servers."""
    SERVER = "server"
    """One more server joins."""
    UNDRAIN = "undrain"
    RELEASE = "release"
    """A hold, or the quarantine of an input, ends."""
    RESUBMIT = "resubmit"
    """It is submitted anew, otherwise than it was."""
    TIME = "time"
    """Nothing but time passes."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    kind: Kind
    message: str
    """What happens, in words: `job-1 ends`."""
    numbers: dict[str, Number] = {}
    said_by: str = OWNER
    """Source of the events."""
    events: tuple[Event, ...] = ()
    until_s: float | None = None
    """Time passes until then."""
    starts: str = ""
    """The job that starts instead of the one that waits; empty: that one."""


def ended(job: PresentJob) -> Change:
    """The job ends well; or it leaves, where that is decided already."""
    leaving, nodes = bool(job.leaving), job.leaving or job.may_end
    exits = tuple(
        JobExited(
            job_id=job.job_id,
            attempt=job.attempt,
            node_id=node_id,
            exit_code=None if leaving else 0,
            signal=15 if leaving else None,
            outcome="stopped" if leaving else "exited",
        )
        for node_id in nodes
    )
    gpus = sum(len(task.gpu_indices) for task in job.gang)
    where = ", ".join(f"{task.node_id}:{_span(task.gpu_indices)}" for task in job.gang)
    does = "has left" if leaving else "ends"
    return Change(
        kind=Kind.END,
        message=f"{job.job_id} {does}, and frees {counted(gpus, 'GPU')} ({where})",
        numbers={"job": job.job_id, "gpus": gpus},
        said_by="agent",
        events=exits,
    )


def _span(indices: list[int]) -> str:
    """`0-3`, or `0,2`."""
    whole = len(indices) > 1 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}-{indices[-1]}" if whole else ",".join(map(str, indices))


def preferred(job_id: str, priority: int) -> Change:
    """The job goes before others."""
    event = JobPriorityChanged(job_id=job_id, priority=priority, requested_by=ASKED_BY)
    message = f"its priority is {priority}"
    return Change(kind=Kind.PRIORITY, message=message, numbers={"priority": priority}, events=(event,))


def raised(tenant: TenantConfigured, limit: PresentLimit) -> Change:
    """A limit leaves room for the job."""
    gpus, of = limit.needed_gpus, "" if limit.of == ANY_TYPE else f"{limit.of} "
    if limit.user:
        named = f"the limit of each user of tenant {tenant.tenant}"
        event = replace(tenant, per_user=tenant.per_user | {limit.of: gpus}, requested_by=ASKED_BY)
    elif limit.of == ANY_TYPE:
        named = f"the limit of tenant {tenant.tenant}"
        event = replace(tenant, gpu_limit=gpus, requested_by=ASKED_BY)
    else:
        named = f"the limit of tenant {tenant.tenant}"
        event = replace(tenant, limits=tenant.limits | {limit.of: gpus}, requested_by=ASKED_BY)
    numbers: dict[str, Number] = {"tenant": tenant.tenant, "gpus": gpus}
    return Change(kind=Kind.LIMIT, message=f"{named} is {gpus} {of}GPUs", numbers=numbers, events=(event,))


def guaranteed(tenant: TenantConfigured, key: str, gpus: int) -> Change:
    """The tenant has a larger guarantee, and may have as much."""
    limits = {each: max(most, gpus) if each == key else most for each, most in tenant.limits.items()}
    event = replace(tenant, guarantees=tenant.guarantees | {key: gpus}, limits=limits, requested_by=ASKED_BY)
    message = f"the guarantee of tenant {tenant.tenant} is {gpus} {'' if key == ANY_TYPE else key + ' '}GPUs"
    numbers: dict[str, Number] = {"tenant": tenant.tenant, "gpus": gpus}
    return Change(kind=Kind.GUARANTEE, message=message, numbers=numbers, events=(event,))


def relaxed() -> Change:
    """Gangs wait no longer for fewer servers."""
    event = SettingChanged(service="placement", name="locality_relax_s", value=0.0, requested_by=ASKED_BY)
    message = "gangs accept more servers at once (locality_relax_s = 0)"
    return Change(kind=Kind.SERVERS, message=message, events=(event,))


def new_server(number: int) -> str:
    """Id of the server that joins as the first, second, ... one."""
    return f"{NEW_SERVER}-{number}"


def unweighed() -> Change:
    """Gangs that could start take what they fit, whatever they would gain by waiting."""
    event = SettingChanged(service="placement", name="wait_for_locality_s", value=0.0, requested_by=ASKED_BY)
    message = "gangs wait for no gain by fewer servers (wait_for_locality_s = 0)"
    return Change(kind=Kind.SERVERS, message=message, events=(event,))


def joined(like: PresentNode, number: int, needs: Iterable[str], cpus: int, memory_bytes: int) -> Change:
    """One more server as there is one already."""
    node_id = new_server(number)
    gpus = [
        GpuInfo(index=index, gpu_type=gpu_type, memory_bytes=like.gpu_memory_bytes)
        for index, gpu_type in enumerate(like.gpu_types)
    ]
    event = NodeJoined(
        node_id=node_id,
        incarnation=1,
        address=node_id,
        rack=like.rack,
        gpus=gpus,
        tasks=[],
        rendezvous_ports=PortRange(first=29500, last=29999),
        virtual=True,
        remaps=True,
        cpus=max(like.cpus, cpus),
        memory_bytes=max(like.memory_bytes, memory_bytes),
        features=list(dict.fromkeys([*like.features, *needs])),
    )
    message = f"one more server like {like.node_id} joins ({counted(len(gpus), 'GPU')})"
    numbers: dict[str, Number] = {"like": like.node_id, "gpus": len(gpus)}
    return Change(kind=Kind.SERVER, message=message, numbers=numbers, said_by=f"agent/{node_id}", events=(event,))


def undrained(node_id: str) -> Change:
    """A node takes jobs again."""
    event = NodeUndrainRequested(node_id=node_id, requested_by=ASKED_BY)
    return Change(kind=Kind.UNDRAIN, message=f"node {node_id} is undrained", numbers={"node": node_id}, events=(event,))


def resumed(job_id: str) -> Change:
    """Its user lets it go on."""
    event = JobResumeRequested(job_id=job_id, requested_by=ASKED_BY)
    return Change(kind=Kind.RELEASE, message=f"{job_id} is resumed", events=(event,))


def released(inputs: Iterable[str]) -> Change:
    """Inputs are in quarantine no longer."""
    names = list(inputs)
    events = tuple(InputReleaseRequested(input=name, requested_by=ASKED_BY) for name in names)
    return Change(kind=Kind.RELEASE, message=f"{', '.join(names)} is released from quarantine", events=events)


def resubmitted(spec: JobSpec, message: str) -> Change:
    """A job of this kind arrives, which waits for no other."""
    event = JobArrived(job_id=NEW_JOB, spec=spec, submitted_by=ASKED_BY)
    said = f"it is submitted anew {message}"
    return Change(kind=Kind.RESUBMIT, message=said, events=(event,), starts=NEW_JOB)


def later(until_s: float, after_s: float) -> Change:
    """Nothing but time passes."""
    message = f"nothing changes for {after_s:.0f} s"
    return Change(kind=Kind.TIME, message=message, numbers={"after_s": round(after_s, 3)}, until_s=until_s)
