"""Judges packs: do two jobs do more together than by turns? (Gandiva, OSDI'18, sections 3.3 and 4.2)

By turns two jobs on one GPU make half of their progress each: the parts of their own rates add up to 1. Packed they
add up to more, or the pack is undone. The judge goes on listening: a pack that ceases to pay fails later.
"""

from __future__ import annotations

from libs.contracts.introspection import JobProfiled, PackFailed, PackSucceeded
from libs.contracts.placement import JobPacked, JobUnpacked
from libs.contracts.reasons import Number, Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.machine import Turn
from services.introspection.core.state import Pack, State
from services.introspection.core.table import machine

BY_TURNS = 1.0
"""What the parts add up to when two jobs take turns."""
WORTH = 0.02
"""A pack that was kept fails when it falls so far below: measurements scatter."""


@machine.evolves(JobPacked)
def packed(state: State, event: JobPacked, now_s: float) -> None:
    state.packs[event.job_id] = Pack(
        jobs=(event.job_id, event.with_job), since_s=now_s, trial_ends_s=event.trial_ends_s
    )


@machine.evolves(JobUnpacked)
def unpacked(state: State, event: JobUnpacked, now_s: float) -> None:
    state.packs.pop(event.job_id, None)


def profiled(state: State, event: JobProfiled) -> None:
    """The rate is one alone, or one beside the other job of its pack."""
    pack = _pack_of(state, event.job_id)
    if pack is None:
        state.alone[event.job_id] = event.rate_per_s
        return
    if len(pack.together) == len(pack.jobs):  # the last profile has completed them, and they were judged
        pack.together = {}
    if event.window_start_s >= pack.since_s:
        pack.together[event.job_id] = event.rate_per_s


def judge(state: State, event: JobProfiled, turn: Turn[State]) -> None:
    """Say whether the pack pays, once both jobs of it were measured in it."""
    pack = _pack_of(state, event.job_id)
    if pack is None or pack.failed or len(pack.together) < len(pack.jobs):
        return
    parts = {job_id: _part(state, pack, job_id) for job_id in pack.jobs}
    total = sum(parts.values())
    numbers: dict[str, Number] = {f"part.{job_id}": round(part, 4) for job_id, part in parts.items()}
    words = " and ".join(f"{job_id} keeps {part:.0%} of its speed" for job_id, part in parts.items())
    host, guest = pack.jobs
    if total <= (BY_TURNS - WORTH if pack.kept else BY_TURNS):
        reason = Reason(code="SlowerThanByTurns", message=f"{words}: less than by turns", numbers=numbers)
        turn.emit(PackFailed(job_id=host, with_job=guest, packed_ratio=round(total, 4), reason=reason))
    elif not pack.kept:
        reason = Reason(code="FasterThanByTurns", message=f"{words}: more than by turns", numbers=numbers)
        turn.emit(PackSucceeded(job_id=host, with_job=guest, packed_ratio=round(total, 4), reason=reason))


@machine.evolves(PackSucceeded)
def succeeded(state: State, event: PackSucceeded, now_s: float) -> None:
    state.packs[event.job_id].kept = True


@machine.evolves(PackFailed)
def failed(state: State, event: PackFailed, now_s: float) -> None:
    state.packs[event.job_id].failed = True


@machine.decides(TimerFired)
def the_trial_is_over(state: State, event: TimerFired, turn: Turn[State]) -> None:
    """Nothing could be measured of at least one of the two."""
    for pack in list(state.packs.values()):
        if _on_trial(pack) and turn.now_s >= pack.trial_ends_s:
            host, guest = pack.jobs
            silent = " and ".join(job_id for job_id in pack.jobs if job_id not in pack.together)
            reason = Reason(code="NoProgress", message=f"nothing was measured of {silent or 'them'} in the trial")
            turn.emit(PackFailed(job_id=host, with_job=guest, packed_ratio=None, reason=reason))


def attempt_over(state: State, job_id: str) -> None:
    """The job holds no GPUs any more, and shares none."""
    state.alone.pop(job_id, None)
    pack = _pack_of(state, job_id)
    if pack is not None:
        del state.packs[pack.jobs[0]]


def next_wakeup(state: State) -> float | None:
    """When the next trial ends."""
    return min((pack.trial_ends_s for pack in state.packs.values() if _on_trial(pack)), default=None)


def _on_trial(pack: Pack) -> bool:
    return not pack.kept and not pack.failed


def _pack_of(state: State, job_id: str) -> Pack | None:
    return next((pack for pack in state.packs.values() if job_id in pack.jobs), None)


def _part(state: State, pack: Pack, job_id: str) -> float:
    """What the job keeps of its speed alone; all of it where that was never measured."""
    alone = state.alone.get(job_id, 0.0)
    return pack.together[job_id] / alone if alone > 0 else 1.0
