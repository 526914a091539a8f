"""Which attempts share which GPUs, and since when: what a measurement of a job beside guests has to know."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libs.contracts.agent import JobResumed, JobSuspended
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobSucceeded,
    TimeSliceStarted,
)
from libs.contracts.quota import JobUpgraded

LEAVES = (AttemptFailed, JobPreempted, JobSucceeded, JobCancelled, JobAbandoned)
"""With these an attempt has its GPUs no more."""


class Resident(msgspec.Struct, kw_only=True):
    """A job's attempt on its GPUs."""

    gpus: list[str]
    """`NODE:INDEX` of each."""
    guest: bool
    runs: bool = True
    """It is not suspended."""
    changed_s: float = 0.0
    """Since when it has been on its GPUs with the guests that it has there now."""


class Residents(msgspec.Struct, kw_only=True):
    """All attempts that have GPUs. Initially empty."""

    attempts: dict[str, Resident] = {}
    """{job id: its attempt}, of jobs that have been placed and have not left."""
    on_gpu: dict[str, dict[str, None]] = {}
    """{`NODE:INDEX`: jobs of these that have the GPU}, of GPUs that any has."""

    def take(self, event: Event, now_s: float) -> None:
        """Fold the next event of control; one that places, moves, suspends or ends no attempt changes nothing."""
        if isinstance(event, JobPlaced):
            self._settle(event.job_id, event.gang, event.role == "guest", now_s)
        elif isinstance(event, JobMoved):
            self._settle_again(event.job_id, event.gang, now_s)
        elif isinstance(event, TimeSliceStarted):
            for job_id in event.suspended:
                self._stand_still(job_id, now_s)
            for resumed in event.resumed:
                self._settle_again(resumed.job_id, resumed.gang, now_s)
        elif isinstance(event, JobSuspended):
            self._stand_still(event.job_id, now_s)
        elif isinstance(event, JobResumed):
            self._go_on(event.job_id, now_s)
        elif isinstance(event, JobUpgraded):
            if (resident := self.attempts.get(event.job_id)) is not None:
                resident.guest = False
        elif self._says_that_it_has_left(event) and (left := self._leave(event.subject)) is not None:
            self._disturb(left, now_s)

    @staticmethod
    def _says_that_it_has_left(event: Event) -> bool:
        """A trial that has ended well is told by what its job waits for next."""
        return isinstance(event, LEAVES) or (isinstance(event, JobQueued) and event.tried)

    def measured(self, job_id: str, window_start_s: float) -> Resident | None:
        """The job's attempt, where it was beside the same jobs for the whole of a window of measurement; else None."""
        resident = self.attempts.get(job_id)
        return None if resident is None or window_start_s < resident.changed_s else resident

    def guests_beside(self, owner: Resident) -> list[str]:
        """The running guests that have one of the owner's GPUs, ascending."""
        there = {job_id: self.attempts[job_id] for gpu in owner.gpus for job_id in self.on_gpu[gpu]}
        return sorted(job_id for job_id, resident in there.items() if resident.guest and resident.runs)

    def _settle_again(self, job_id: str, gang: Iterable[TaskPlacement], now_s: float) -> None:
        before = self.attempts.get(job_id)
        self._settle(job_id, gang, before is not None and before.guest, now_s)

    def _settle(self, job_id: str, gang: Iterable[TaskPlacement], guest: bool, now_s: float) -> None:
        gpus = [f"{task.node_id}:{index}" for task in gang for index in task.gpu_indices]
        self._leave(job_id)
        resident = self.attempts[job_id] = Resident(gpus=gpus, guest=guest)
        for gpu in gpus:
            self.on_gpu.setdefault(gpu, {})[job_id] = None
        self._disturb(resident, now_s)

    def _leave(self, job_id: str) -> Resident | None:
        resident = self.attempts.pop(job_id, None)
        for gpu in resident.gpus if resident is not None else ():
            del self.on_gpu[gpu][job_id]
            if not self.on_gpu[gpu]:
                del self.on_gpu[gpu]
        return resident

    def _stand_still(self, job_id: str, now_s: float) -> None:
        resident = self.attempts.get(job_id)
        if resident is not None and resident.runs:
            resident.runs = False
            self._disturb(resident, now_s)

    def _go_on(self, job_id: str, now_s: float) -> None:
        resident = self.attempts.get(job_id)
        if resident is not None:
            resident.runs = True
            self._disturb(resident, now_s)

    def _disturb(self, resident: Resident, now_s: float) -> None:
        """A guest comes or goes: a profile that had begun before is neither one beside it nor one without it."""
        resident.changed_s = now_s
        for gpu in resident.gpus if resident.guest else ():
            for job_id in self.on_gpu.get(gpu, ()):
                self.attempts[job_id].changed_s = now_s
