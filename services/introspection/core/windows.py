"""Telemetry of one job, folded into tumbling windows. Both windows shells, embedded and Faust, run this.

    MinibatchProfiled of every rank ──> fold ──> WindowClosed, when event time has passed the window's end

At least once is enough: every record carries a running number, so one that comes again changes nothing.
"""

from __future__ import annotations

import msgspec

from libs.contracts.agent import MinibatchProfiled
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.introspection import OWNER, WindowClosed
from libs.kernel.ids import derived_id


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How windows are cut."""

    window_s: float = 2.0
    grace_s: float = 1.0
    """A window stays open so long after its end, for records that come late."""


class RankTally(msgspec.Struct, kw_only=True):
    """One rank within one window."""

    progress: int = 0
    """Mini-batches done, by the running number: right even when a record was lost."""
    total: int = 0
    measured: int = 0
    """Mini-batches of the records that arrived, done in `measured_s`."""
    measured_s: float = 0.0
    loss: float | None = None
    loss_nonfinite: str = ""
    memory_peak_bytes: int = 0
    memory_min_bytes: int = 0
    utilisation_s: float = 0.0
    """GPU utilisation, times how long it was measured."""
    utilised_s: float = 0.0


class JobWindows(msgspec.Struct, kw_only=True):
    """The open windows of a job's latest attempt."""

    job_id: str
    attempt: int
    totals: dict[int, int] = {}
    """{rank: running number of its last record}"""
    open: dict[int, dict[int, RankTally]] = {}
    """{number of the window: {rank: tally}}; window n covers n * window_s up to (n + 1) * window_s."""
    closed_below: int = 0
    """Windows with a lower number are closed; a record that comes later still counts in this one."""
    latest_s: float = 0.0
    """The newest event time seen."""


def fold(
    job: JobWindows | None, event: MinibatchProfiled, time_s: float, rules: Rules
) -> tuple[JobWindows, list[WindowClosed]]:
    """Take one record of a job.

    Args:
        job: the job's windows, changed in place; None when nothing is known of it.
        event: of any rank; records of older attempts and repeated records change nothing.
        time_s: the record's event time, the end of the interval it measured.
        rules: how windows are cut.

    Returns:
        The job's windows, and those that closed by this record, in order of time.
    """
    closed: list[WindowClosed] = []
    if job is not None and event.attempt > job.attempt:
        closed = close_all(job, rules)
    if job is None or event.attempt > job.attempt:
        job = JobWindows(job_id=event.job_id, attempt=event.attempt)
    if event.attempt < job.attempt or event.minibatches_total <= job.totals.get(event.rank, -1):
        return job, closed
    number = max(int(time_s // rules.window_s), job.closed_below)
    tally = job.open.setdefault(number, {}).setdefault(event.rank, RankTally())
    _count(tally, event, since=job.totals.get(event.rank, event.minibatches_total - event.minibatches))
    job.totals[event.rank] = event.minibatches_total
    job.latest_s = max(job.latest_s, time_s)
    ended = [n for n in sorted(job.open) if (n + 1) * rules.window_s + rules.grace_s <= job.latest_s]
    return job, closed + [_close(job, number, rules) for number in ended]


def close_all(job: JobWindows, rules: Rules) -> list[WindowClosed]:
    """Close every open window: the attempt is over, or silent; in order of time."""
    return [_close(job, number, rules) for number in sorted(job.open)]


def envelope(window: WindowClosed) -> Envelope:
    """A closed window on its way to the log: its id follows from what it measures, its time is its end."""
    key = f"{window.job_id}/{window.attempt}/{window.window_start_s}"
    return Envelope(
        id=derived_id(f"{OWNER}/windows", key, 0),
        source=OWNER,
        time_s=whole_microseconds(window.window_start_s + window.window_s),
        event=window,
    )


def _count(tally: RankTally, event: MinibatchProfiled, since: int) -> None:
    first = tally.measured_s == 0.0 and tally.measured == 0
    tally.progress += event.minibatches_total - since
    tally.total = event.minibatches_total
    tally.measured += event.minibatches
    tally.measured_s += event.interval_s
    if event.loss is not None or event.loss_nonfinite:
        tally.loss, tally.loss_nonfinite = event.loss, event.loss_nonfinite
    tally.memory_peak_bytes = max(tally.memory_peak_bytes, event.memory_peak_bytes)
    if event.gpu_utilisation_ratio is not None:
        tally.utilisation_s += event.gpu_utilisation_ratio * event.interval_s
        tally.utilised_s += event.interval_s
    low = event.memory_min_bytes
    tally.memory_min_bytes = low if first else min(tally.memory_min_bytes, low)


def _close(job: JobWindows, number: int, rules: Rules) -> WindowClosed:
    ranks = job.open.pop(number)
    job.closed_below = max(job.closed_below, number + 1)
    tallies = [ranks[rank] for rank in sorted(ranks)]
    # The first rank that knows its loss speaks for all, unless one has a loss that is no number: that one has failed.
    known = [tally for tally in tallies if tally.loss is not None or tally.loss_nonfinite]
    spoken = next((tally for tally in known if tally.loss_nonfinite), known[0] if known else RankTally())
    return WindowClosed(
        job_id=job.job_id,
        attempt=job.attempt,
        window_start_s=whole_microseconds(number * rules.window_s),
        window_s=rules.window_s,
        ranks=len(tallies),
        minibatches=min(tally.progress for tally in tallies),
        minibatches_total=min(tally.total for tally in tallies),
        rate_per_s=min(_rate(tally, rules) for tally in tallies),
        loss=spoken.loss,
        loss_nonfinite=spoken.loss_nonfinite,
        memory_peak_bytes=max(tally.memory_peak_bytes for tally in tallies),
        memory_min_bytes=min(tally.memory_min_bytes for tally in tallies),
        gpu_utilisation_ratio=_utilisation(tallies),
    )


def _utilisation(tallies: list[RankTally]) -> float | None:
    """Mean over the ranks of which anything is known."""
    known = [tally.utilisation_s / tally.utilised_s for tally in tallies if tally.utilised_s]
    return round(sum(known) / len(known), 4) if known else None


def _rate(tally: RankTally, rules: Rules) -> float:
    """Mini-batches per second, over the time that was measured: records do not end where windows do."""
    return tally.measured / (tally.measured_s or rules.window_s)
