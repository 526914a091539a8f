"""Per event: what changes, and which verdict follows."""

from __future__ import annotations

from libs.contracts.admission import OWNER, JobAdmitted, JobRejected
from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.gateway import JobArrived, TenantConfigured
from libs.contracts.jobs import JobSpec
from libs.kernel.machine import Machine, Turn
from services.admission.core.fit import NeverFits, judge
from services.admission.core.state import State

machine: Machine[State] = Machine(OWNER)


@machine.evolves(NodeJoined)
def node_joined(state: State, event: NodeJoined, now_s: float) -> None:
    counts: dict[str, int] = {}
    for gpu in event.gpus:
        counts[gpu.gpu_type] = counts.get(gpu.gpu_type, 0) + 1
    state.join(event.node_id, counts)


@machine.evolves(NodeLeft)
def node_left(state: State, event: NodeLeft, now_s: float) -> None:
    state.leave(event.node_id)


@machine.evolves(TenantConfigured)
def tenant_configured(state: State, event: TenantConfigured, now_s: float) -> None:
    state.limits.pop(event.tenant, None)
    if event.gpu_limit is not None:
        state.limits[event.tenant] = event.gpu_limit


@machine.evolves(JobArrived)
def job_arrived(state: State, event: JobArrived, now_s: float) -> None:
    if not state.nodes:
        state.unjudged.setdefault(event.job_id, event.spec)  # the first arrival of an id counts


@machine.decides(JobArrived)
def judge_arrival(state: State, event: JobArrived, turn: Turn[State]) -> None:
    if state.nodes:
        _judge(state, event.job_id, event.spec, turn)


@machine.decides(NodeJoined)
def judge_the_unjudged(state: State, event: NodeJoined, turn: Turn[State]) -> None:
    """The first node has joined: what arrived earlier can be judged now."""
    for job_id, spec in list(state.unjudged.items()):
        _judge(state, job_id, spec, turn)


@machine.evolves(JobAdmitted, JobRejected)
def judged(state: State, event: JobAdmitted | JobRejected, now_s: float) -> None:
    state.unjudged.pop(event.job_id, None)


def _judge(state: State, job_id: str, spec: JobSpec, turn: Turn[State]) -> None:
    verdict = judge(spec, state.sizes, state.limits.get(spec.tenant))
    if isinstance(verdict, NeverFits):
        turn.emit(JobRejected(job_id=job_id, reason=verdict.reason))
    else:
        turn.emit(JobAdmitted(job_id=job_id, reason=verdict))
