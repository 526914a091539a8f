"""Closed windows, condensed: at most one JobProfiled per job and profiling interval, the first at once."""

from __future__ import annotations

from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.introspection import OWNER, JobProfiled, WindowClosed
from libs.kernel.ids import derived_id
from services.introspection.core.watching import Running


class Profiles:
    """What was gathered since each job's last JobProfiled.

    Whether a window was reported already is read from control (`Running.profiled_until_s`), so that a restart
    reports nothing twice; `_until_s` covers the moment until a report is read back.
    """

    def __init__(self, interval_s: float) -> None:
        """`interval_s`: least measured time from one report of a job to the next."""
        self._interval_s = interval_s
        self._gathered: dict[str, list[WindowClosed]] = {}
        self._until_s: dict[str, tuple[int, float]] = {}

    def take(self, window: WindowClosed, running: Running | None) -> JobProfiled | None:
        """Take one window.

        Args:
            window: of any job, possibly seen before.
            running: the job's attempt as control has it; None when it does not run (any more).

        Returns:
            The job's profile when one is due.
        """
        job_id = window.job_id
        if running is None or window.attempt != running.attempt:
            self.forget(job_id)
            return None
        until_s = self._reported_until(job_id, running)
        gathered = self._gathered.setdefault(job_id, [])
        gathered[:] = [w for w in gathered if w.attempt == window.attempt]
        after_s = gathered[-1].window_start_s if gathered else -1.0
        if window.window_start_s <= after_s or (until_s is not None and _end_s(window) <= until_s):
            return None
        gathered.append(window)
        if until_s is not None and _end_s(window) - until_s < self._interval_s:
            return None
        profile = _condense(gathered)
        self._until_s[job_id] = (window.attempt, _end_s(window))
        gathered.clear()
        return profile

    def gathers(self, job_id: str) -> bool:
        """Whether windows of the job wait for their report."""
        return bool(self._gathered.get(job_id))

    def forget(self, job_id: str) -> None:
        """The job does not run any more."""
        self._gathered.pop(job_id, None)
        self._until_s.pop(job_id, None)

    def forget_all_but(self, running: dict[str, Running]) -> list[str]:
        """Forget jobs that do not run any more; returns their ids."""
        gone = [job_id for job_id in {**self._gathered, **self._until_s} if job_id not in running]
        for job_id in gone:
            self.forget(job_id)
        return gone

    def _reported_until(self, job_id: str, running: Running) -> float | None:
        attempt, until_s = self._until_s.get(job_id, (0, 0.0))
        if attempt == running.attempt:
            return max(until_s, running.profiled_until_s or 0.0)
        return running.profiled_until_s


def envelope(profile: JobProfiled, cause: Envelope) -> Envelope:
    """A profile on its way to the log: its id follows from what it measures, its time is the end of that."""
    key = f"{profile.job_id}/{profile.attempt}/{profile.window_start_s}"
    return Envelope(
        id=derived_id(OWNER, key, 0),
        source=OWNER,
        time_s=cause.time_s,
        event=profile,
        causation_id=cause.id,
    )


def _condense(windows: list[WindowClosed]) -> JobProfiled:
    first, last = windows[0], windows[-1]
    measured_s = sum(window.window_s for window in windows)
    known = [window for window in windows if window.loss is not None or window.loss_nonfinite]
    return JobProfiled(
        job_id=last.job_id,
        attempt=last.attempt,
        window_start_s=first.window_start_s,
        window_s=whole_microseconds(_end_s(last) - first.window_start_s),
        minibatches_total=last.minibatches_total,
        rate_per_s=sum(window.rate_per_s * window.window_s for window in windows) / measured_s,
        loss=known[-1].loss if known else None,
        loss_nonfinite=known[-1].loss_nonfinite if known else "",
        memory_peak_bytes=max(window.memory_peak_bytes for window in windows),
        memory_min_bytes=min(window.memory_min_bytes for window in windows),
        gpu_utilisation_ratio=_utilisation(windows),
    )


def _utilisation(windows: list[WindowClosed]) -> float | None:
    known = [window.gpu_utilisation_ratio for window in windows if window.gpu_utilisation_ratio is not None]
    return round(sum(known) / len(known), 4) if known else None


def _end_s(window: WindowClosed) -> float:
    return whole_microseconds(window.window_start_s + window.window_s)
