"""Judges guests: does the owner of their GPUs do its mini-batches as fast as alone? (AntMan, OSDI'20, section 5.3)

The owner's mini-batches without guests are the measure, the latest ones, so that it follows an owner that changes. Two
rules count a slowdown: the paper's, more than 10 ms, and a relative one, more than 3 % beyond the scatter. The first
is lenient where mini-batches are short, the second where they scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from libs.contracts.agent import JobResumed, JobSuspended
from libs.contracts.cluster import TaskPlacement
from libs.contracts.introspection import InterferenceDetected, JobProfiled
from libs.contracts.placement import JobMoved, JobPlaced, TimeSliceStarted
from libs.contracts.quota import JobUpgraded
from libs.contracts.reasons import Number, Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted
from services.introspection.core.state import Resident, State
from services.introspection.core.table import machine

ABSOLUTE_S = 0.010
"""The paper's rule (section 5.3, table 5)."""
RELATIVE_RATIO = 0.03
KEPT_PROFILES = 31
"""Of an owner without guests."""
FEWEST_PROFILES = 3
"""Before which there is nothing to compare with."""
SCATTERS = 2.0
"""Standard deviations within which a single profile may lie without having been slowed down."""
SCATTER_OF_MAD = 1.4826
"""The standard deviation of normally distributed values, in units of their median absolute deviation."""


def settled(state: State, job_id: str, gang: Iterable[TaskPlacement], role: str | None, now_s: float) -> None:
    """The job's attempt is on these GPUs from now on.

    Args:
        role: `owner` or `guest`; None: as it was.
    """
    before = state.residents.get(job_id)
    guest = before is not None and before.guest if role is None else role == "guest"
    gpus = [f"{task.node_id}:{index}" for task in gang for index in task.gpu_indices]
    state.leave(job_id)
    resident = state.settle(job_id, Resident(gpus=gpus, guest=guest))
    _disturb(state, resident, now_s)


def placed(state: State, event: JobPlaced | JobMoved, now_s: float) -> None:
    """A new attempt begins, or goes on elsewhere."""
    settled(state, event.job_id, event.gang, event.role if isinstance(event, JobPlaced) else None, now_s)


def slice_started(state: State, event: TimeSliceStarted, now_s: float) -> None:
    """Suspended jobs are beside no other; resumed ones may be on other GPUs than before."""
    for job_id in event.suspended:
        _stand_still(state, job_id, now_s)
    for resumed in event.resumed:
        settled(state, resumed.job_id, resumed.gang, None, now_s)


@machine.evolves(JobSuspended)
def suspended(state: State, event: JobSuspended, now_s: float) -> None:
    _stand_still(state, event.job_id, now_s)


@machine.evolves(JobResumed)
def resumed(state: State, event: JobResumed, now_s: float) -> None:
    resident = state.residents.get(event.job_id)
    if resident is not None:
        resident.runs = True
        _disturb(state, resident, now_s)


@machine.evolves(JobUpgraded)
def upgraded(state: State, event: JobUpgraded, now_s: float) -> None:
    resident = state.residents.get(event.job_id)
    if resident is not None:
        resident.guest = False


def left(state: State, job_id: str, now_s: float) -> None:
    """The job's attempt is over."""
    resident = state.leave(job_id)
    if resident is not None:
        _disturb(state, resident, now_s)


def profiled(state: State, event: JobProfiled, now_s: float) -> None:
    """What an owner does without guests is remembered, what it does beside them is counted."""
    resident = state.residents.get(event.job_id)
    if resident is None or resident.guest or event.rate_per_s <= 0 or event.window_start_s < resident.changed_s:
        return
    if guests_beside(state, resident):
        resident.in_a_row = resident.in_a_row + 1 if _hurt(resident, 1.0 / event.rate_per_s) else 0
    else:
        resident.in_a_row = 0
        resident.alone_s.append(1.0 / event.rate_per_s)
        del resident.alone_s[:-KEPT_PROFILES]


def judge(state: State, event: JobProfiled, turn: Turn[State]) -> None:
    """Say so where the profile is of an owner that its guests slow down."""
    resident = state.residents.get(event.job_id)
    if resident is None or resident.guest or not resident.in_a_row or event.window_start_s < resident.changed_s:
        return
    minibatch_s, alone_s = 1.0 / event.rate_per_s, median(resident.alone_s)
    beside = guests_beside(state, resident)
    turn.emit(
        InterferenceDetected(
            job_id=event.job_id,
            attempt=event.attempt,
            beside=beside,
            minibatch_s=round(minibatch_s, 6),
            alone_s=round(alone_s, 6),
            in_a_row=resident.in_a_row,
            reason=_why(resident, beside, minibatch_s),
        )
    )


def guests_beside(state: State, owner: Resident) -> list[str]:
    """The running guests that have one of the owner's GPUs, ascending."""
    there = {job_id: state.residents[job_id] for gpu in owner.gpus for job_id in state.on_gpu[gpu]}
    return sorted(job_id for job_id, resident in there.items() if resident.guest and resident.runs)


def _stand_still(state: State, job_id: str, now_s: float) -> None:
    resident = state.residents.get(job_id)
    if resident is not None and resident.runs:
        resident.runs = False
        _disturb(state, resident, now_s)


def _disturb(state: State, resident: Resident, now_s: float) -> None:
    """A guest comes or goes: a profile that had begun before is neither one beside it nor one without it."""
    resident.changed_s = now_s
    for gpu in resident.gpus if resident.guest else ():
        for job_id in state.on_gpu.get(gpu, ()):
            state.residents[job_id].changed_s = now_s


def _hurt(owner: Resident, minibatch_s: float) -> bool:
    return len(owner.alone_s) >= FEWEST_PROFILES and any(slowed(owner.alone_s, minibatch_s))


def slowed(alone_s: Sequence[float], minibatch_s: float) -> tuple[bool, bool]:
    """Whether an owner's mini-batches count as slowed down by the paper's rule, and by the relative one.

    Args:
        alone_s: mean times of a mini-batch without guests, one per profile.
        minibatch_s: that of a profile beside them.
    """
    usual_s = median(alone_s)
    scatter_s = SCATTER_OF_MAD * median(abs(each - usual_s) for each in alone_s)
    excess_s = minibatch_s - usual_s
    return excess_s > ABSOLUTE_S, excess_s > RELATIVE_RATIO * usual_s + SCATTERS * scatter_s


def _why(owner: Resident, beside: list[str], minibatch_s: float) -> Reason:
    alone_s = median(owner.alone_s)
    excess_s = minibatch_s - alone_s
    absolute, relative = slowed(owner.alone_s, minibatch_s)
    numbers: dict[str, Number] = {
        "minibatch_s": round(minibatch_s, 6),
        "alone_s": round(alone_s, 6),
        "absolute_rule": absolute,
        "relative_rule": relative,
        "profiles_alone": len(owner.alone_s),
    }
    return Reason(
        code="SlowerThanAlone",
        message=(
            f"its mini-batches take {minibatch_s * 1000:.1f} ms beside {counted(len(beside), 'guest')} and "
            f"{alone_s * 1000:.1f} ms alone ({excess_s / alone_s:+.1%})"
        ),
        numbers=numbers,
    )
