"""The windows of all jobs of some telemetry partitions, and which records they still need."""

from __future__ import annotations

from libs.contracts.agent import MinibatchProfiled
from libs.contracts.introspection import WindowClosed
from libs.kernel.held import Held
from services.introspection.core import windows
from services.introspection.core.windows import JobWindows, Rules

FORGOTTEN_AFTER_S = 600.0
"""A job without open windows is forgotten when it has been silent for so long."""


class Folding:
    """What a windows shell keeps. Nothing of it is stored: after a crash it is read again from `position`."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._jobs: dict[str, JobWindows] = {}
        self._arrived_s: dict[str, float] = {}
        self._partition: dict[str, int] = {}
        self._held = Held()

    def take(
        self, event: MinibatchProfiled, time_s: float, partition: int, offset: int, now_s: float
    ) -> list[WindowClosed]:
        """Take one record from its place in telemetry.

        Args:
            event: one rank's mini-batches.
            time_s: its event time.
            partition: of telemetry.
            offset: of the record.
            now_s: when it was read, by the reader's clock.

        Returns:
            The windows that it closed.
        """
        job_id = event.job_id
        job, closed = windows.fold(self._jobs.get(job_id), event, time_s, self._rules)
        self._jobs[job_id] = job
        self._arrived_s[job_id] = now_s
        self._partition[job_id] = partition
        for number in job.open:
            self._held.hold(_key(job_id, job.attempt, number), partition, offset)
        self._release(closed)
        return closed

    def tick(self, now_s: float) -> list[WindowClosed]:
        """Close the windows of jobs from which nothing comes any more.

        Judged by when records arrived and not by their times: clocks of nodes may differ from the reader's.
        """
        closed: list[WindowClosed] = []
        for job_id, job in list(self._jobs.items()):
            silent_s = now_s - self._arrived_s[job_id]
            if job.open and silent_s >= self._rules.window_s + self._rules.grace_s:
                closed += windows.close_all(job, self._rules)
            elif not job.open and silent_s >= FORGOTTEN_AFTER_S:
                self._forget(job_id)
        self._release(closed)
        return closed

    def position(self, partition: int, next_offset: int) -> int:
        """The first record of the partition that an open window needs; `next_offset` when none is needed."""
        return self._held.position(partition, next_offset)

    def drop(self, partition: int) -> None:
        """Forget a partition: another process reads it from now on."""
        for job_id in [job_id for job_id, where in self._partition.items() if where == partition]:
            for number in self._jobs[job_id].open:
                self._held.release(_key(job_id, self._jobs[job_id].attempt, number))
            self._forget(job_id)

    @property
    def jobs(self) -> int:
        """How many jobs are remembered."""
        return len(self._jobs)

    def _forget(self, job_id: str) -> None:
        del self._jobs[job_id], self._arrived_s[job_id], self._partition[job_id]

    def _release(self, closed: list[WindowClosed]) -> None:
        for window in closed:
            number = round(window.window_start_s / self._rules.window_s)
            self._held.release(_key(window.job_id, window.attempt, number))


def _key(job_id: str, attempt: int, number: int) -> str:
    return f"{job_id}/{attempt}/{number}"
