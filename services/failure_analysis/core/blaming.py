"""Which GPU, or which node, several jobs have failed of."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.failure_analysis import FailureClassified, GpuSuspected, NodeSuspected
from libs.contracts.reasons import Reason
from libs.failures.consequences import blames_hardware
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from services.failure_analysis.core.state import Blame, State
from services.failure_analysis.core.table import machine


def note(state: State, event: FailureClassified, now_s: float) -> None:
    """Remember a failure that speaks against the place where it happened; what was too long ago is forgotten."""
    if not event.node_id or not blames_hardware(event.cause):
        return
    history = state.jobs.get(event.job_id)
    blame = Blame(
        at_s=now_s,
        job_id=event.job_id,
        user=history.user if history is not None else "",
        cause=event.cause,
        gpu_index=event.gpu_index,
    )
    before = state.blames.get(event.node_id, [])
    state.blames[event.node_id] = [*(each for each in before if each.at_s > now_s - state.blame_window_s), blame]


def suspect(state: State, node_id: str, turn: Turn[State]) -> None:
    """Say which GPU of the node has been named by enough jobs; else the node, if enough have failed there."""
    blames = state.blames.get(node_id, [])
    if not blames or state.blame_failures <= 0:
        return
    index = blames[-1].gpu_index
    of_gpu = [each for each in blames if each.gpu_index == index] if index is not None else []
    if index is not None and _enough(state, of_gpu):
        turn.emit(
            GpuSuspected(
                node_id=node_id, index=index, jobs=_jobs(of_gpu), causes=_causes(of_gpu), reason=_why(state, of_gpu)
            )
        )
    elif _enough(state, blames):
        turn.emit(
            NodeSuspected(node_id=node_id, jobs=_jobs(blames), causes=_causes(blames), reason=_why(state, blames))
        )


@machine.evolves(GpuSuspected)
def gpu_suspected(state: State, event: GpuSuspected, now_s: float) -> None:
    left = [each for each in state.blames.pop(event.node_id, []) if each.gpu_index != event.index]
    if left:
        state.blames[event.node_id] = left


@machine.evolves(NodeSuspected)
def node_suspected(state: State, event: NodeSuspected, now_s: float) -> None:
    state.blames.pop(event.node_id, None)


def _enough(state: State, blames: Sequence[Blame]) -> bool:
    return len(_jobs(blames)) >= state.blame_failures


def _jobs(blames: Sequence[Blame]) -> list[str]:
    return list(dict.fromkeys(each.job_id for each in blames))


def _causes(blames: Sequence[Blame]) -> list[str]:
    return sorted({each.cause for each in blames})


def _why(state: State, blames: Sequence[Blame]) -> Reason:
    jobs, users = len(_jobs(blames)), len({each.user for each in blames})
    within_s = blames[-1].at_s - blames[0].at_s
    message = (
        f"{counted(jobs, 'job')} of {counted(users, 'user')} failed there within {within_s:.0f} s, "
        f"of {', '.join(_causes(blames))}"
    )
    numbers = {"jobs": jobs, "users": users, "within_s": within_s, "blame_failures": state.blame_failures}
    return Reason(code="FailuresNameIt", message=message, numbers={**numbers})
