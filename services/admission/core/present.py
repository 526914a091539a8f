"""What admission knows of the present, for readers that ask what would start a job (`libs/forecast/`)."""

from __future__ import annotations

from libs.kernel.present import Present
from services.admission.core.pending import Pending
from services.admission.core.state import State


def present(state: State, job_id: str, now_s: float) -> Present:
    """What a job that was not let through waits for."""
    pending = state.pending.get(job_id)
    if pending is None:
        return Present()
    quarantined = [name for name in pending.spec.data if name in state.quarantined]
    return Present(waits_for={job_id: _awaited(state, pending)}, quarantined={job_id: quarantined})


def _awaited(state: State, pending: Pending) -> list[str]:
    """The jobs of what it runs after; else, where its array is at its limit, those that were let through."""
    awaited = [job for on in pending.missing for job in _jobs(state, on)]
    group = state.group_of(pending)
    return awaited or (list(group.through) if group is not None and group.is_full else [])


def _jobs(state: State, on: str) -> list[str]:
    return [on] if on not in state.groups else [job for job, group in state.jobs.items() if group == on]
