"""Whether a job hangs, trains on a loss that is no number, or leaves its GPUs idle: judged from samples of its tasks.

Pure, and without a clock: the node measures with its own how long a rank has been quiet while its task ran, and a node
of which nothing comes adds nothing to that. So neither an outage of the log, a lost node nor a clock that is set
makes an alarm, and the time in which a job was suspended does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from libs.contracts.agent import RankSample, TaskSampled
from libs.contracts.introspection import GpuIdle, JobRecovered, JobStalled, LossDiverged
from libs.contracts.reasons import Number, Reason
from libs.kernel.words import counted

STALLED, IDLE, DIVERGED = "stalled", "idle", "diverged"
Alarm = JobStalled | GpuIdle | JobRecovered | LossDiverged


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From when on something is an alarm."""

    stall_times: float = 8.0
    """A stall lasts so many times the p99 of the job's mini-batches,"""
    stall_min_s: float = 60.0
    """and so many seconds at least,"""
    pause_times: float = 1.5
    """and so many times the longest pause after which the job has gone on (an evaluation, a checkpoint);"""
    computing_times: float = 5.0
    """time in which the job computes counts one part in so many: an evaluation without a DataLoader shows no more."""
    rhythm_minibatches: int = 20
    """A rank has a rhythm after so many."""
    nonfinite_losses: int = 5
    """So many in a row are a divergence; mixed precision skips a step with such a loss now and then."""
    idle_s: float = 900.0
    """So long may GPUs be held and not used."""


@dataclass(frozen=True)
class Watched:
    """What is known of a running attempt."""

    attempt: int
    gpus: Mapping[str, int]
    """{node: GPUs of the gang there}."""
    told: Mapping[str, int] = field(default_factory=dict)
    """{alarm: facts about it on the log}; an episode is a pair of them, so an odd number means that it lasts."""
    stalled_at: int = 0
    """`minibatches_total` of the last JobStalled."""


@dataclass
class _Job:
    attempt: int
    samples: dict[str, TaskSampled] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    """As `Watched.told`, with what has not been read back from the log yet."""
    lowest: int = 0
    """During a stall, the fewest mini-batches that its furthest living rank has had: more than that is progress, also
    of processes that have begun anew."""


class Alarms:
    """Takes samples, and says what follows. What was said is read back from the log: a restart says nothing twice."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._jobs: dict[str, _Job] = {}

    def take(self, sample: TaskSampled, watched: Watched | None) -> list[tuple[str, Alarm]]:
        """Take the newest sample of one task.

        Args:
            watched: the job's attempt as the log has it; None when it does not run (any more).

        Returns:
            The facts that are new, each with its key: the same for the same fact after a restart.
        """
        if watched is None or sample.attempt != watched.attempt:
            if watched is None:
                self._jobs.pop(sample.job_id, None)
            return []
        job = self._jobs.get(sample.job_id)
        if job is None or job.attempt != watched.attempt:
            job = self._jobs[sample.job_id] = _Job(watched.attempt)
        job.samples[sample.node_id] = sample
        for alarm, facts in watched.told.items():
            if facts > job.told.get(alarm, 0):
                job.told[alarm] = facts
                if alarm == STALLED:
                    job.lowest = watched.stalled_at
        samples = [job.samples[node_id] for node_id in watched.gpus if node_id in job.samples]
        if not samples or len(samples) < len(watched.gpus) or not all(each.running for each in samples):
            return []
        found = [self._stalls(job, samples), self._idles(job, samples, watched), self._diverges(job, samples)]
        return [(self._key(job, fact), fact) for fact in found if fact is not None]

    def forget_all_but(self, running: Mapping[str, object]) -> None:
        """Forget jobs that do not run any more."""
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id in running}

    def _key(self, job: _Job, fact: Alarm) -> str:
        alarm = alarm_of(fact)
        job.told[alarm] = job.told.get(alarm, 0) + 1
        return f"{fact.job_id}/{fact.attempt}/{alarm}/{job.told[alarm]}"

    def _stalls(self, job: _Job, samples: Sequence[TaskSampled]) -> JobStalled | JobRecovered | None:
        ranks = [rank for sample in samples for rank in sample.ranks]
        done = max((rank.minibatches_total for rank in ranks), default=0)
        first = samples[0]
        if _lasts(job, STALLED):
            if ranks and done > job.lowest:
                return _recovered(first, STALLED, done, "mini-batches come again")
            job.lowest = min(job.lowest, done) if ranks else job.lowest
            return None
        # A job goes on as long as one of its ranks does: others may have done their part, or wait for it.
        steady = [rank for rank in ranks if rank.minibatches_total >= self._limits.rhythm_minibatches]
        if not steady:
            return None
        last = min(steady, key=self._waited_s)
        quiet_s, computing = last.quiet_s, last.busy_s > last.quiet_s / 2
        limit_s = max(self._patience_s(rank) for rank in steady)
        if self._waited_s(last) < limit_s:
            return None
        job.lowest = done
        p99_s = max(rank.p99_s for rank in steady)
        busy = "its processes or GPUs are busy, which may be an endless loop or a collective" if computing else ""
        message = (
            f"no mini-batch for {_span(quiet_s)}, after {done} of which 99 in 100 took at most {_span(p99_s)}"
            f"{f'; {busy}' if busy else ''}"
        )
        numbers = {"quiet_s": round(quiet_s, 3), "limit_s": round(limit_s, 3), "p99_s": round(p99_s, 6)}
        return JobStalled(
            job_id=first.job_id,
            attempt=first.attempt,
            quiet_s=round(quiet_s, 3),
            limit_s=round(limit_s, 3),
            p99_s=round(p99_s, 6),
            minibatches_total=done,
            reason=Reason(code="JobStalled", message=message, numbers={**numbers, "computing": computing}),
        )

    def _waited_s(self, rank: RankSample) -> float:
        """How long it has been quiet, busy time counted less."""
        return rank.quiet_s - rank.busy_s + rank.busy_s / self._limits.computing_times

    def _patience_s(self, rank: RankSample) -> float:
        limits = self._limits
        return max(limits.stall_min_s, limits.stall_times * rank.p99_s, limits.pause_times * rank.longest_quiet_s)

    def _idles(self, job: _Job, samples: Sequence[TaskSampled], watched: Watched) -> GpuIdle | JobRecovered | None:
        idle_s, first = min(sample.idle_s for sample in samples), samples[0]
        if _lasts(job, IDLE):
            done = max((rank.minibatches_total for sample in samples for rank in sample.ranks), default=0)
            uses = any(sample.idle_s == 0.0 and sample.computing for sample in samples)
            return _recovered(first, IDLE, done, "its GPUs are used again") if uses else None
        if idle_s < self._limits.idle_s:
            return None
        gpus = sum(watched.gpus.values())
        message = f"{counted(gpus, 'GPU')} held for {_span(idle_s)} without being used, and no mini-batch done"
        numbers: dict[str, Number] = {"idle_s": round(idle_s, 3), "limit_s": self._limits.idle_s, "gpus": gpus}
        return GpuIdle(
            job_id=first.job_id,
            attempt=first.attempt,
            idle_s=round(idle_s, 3),
            limit_s=self._limits.idle_s,
            gpus=gpus,
            reason=Reason(code="GpuIdle", message=message, numbers=numbers),
        )

    def _diverges(self, job: _Job, samples: Sequence[TaskSampled]) -> LossDiverged | None:
        if job.told.get(DIVERGED):
            return None
        for sample in samples:
            for rank in sample.ranks:
                if rank.nonfinite >= self._limits.nonfinite_losses:
                    return _diverged(sample, rank)
        return None


def alarm_of(fact: Alarm) -> str:
    """Which alarm the fact begins or ends."""
    if isinstance(fact, JobRecovered):
        return fact.alarm
    return STALLED if isinstance(fact, JobStalled) else IDLE if isinstance(fact, GpuIdle) else DIVERGED


def _lasts(job: _Job, alarm: str) -> bool:
    return job.told.get(alarm, 0) % 2 == 1


def _recovered(sample: TaskSampled, alarm: str, done: int, message: str) -> JobRecovered:
    return JobRecovered(
        job_id=sample.job_id,
        attempt=sample.attempt,
        alarm=alarm,
        minibatches_total=done,
        reason=Reason(code="Recovered", message=message),
    )


def _diverged(sample: TaskSampled, rank: RankSample) -> LossDiverged:
    message = (
        f"the loss of rank {rank.rank} is {rank.loss_nonfinite}, {rank.nonfinite} times in a row, "
        f"after {counted(rank.minibatches_total, 'mini-batch', 'mini-batches')}"
    )
    return LossDiverged(
        job_id=sample.job_id,
        attempt=sample.attempt,
        rank=rank.rank,
        loss_nonfinite=rank.loss_nonfinite,
        in_a_row=rank.nonfinite,
        minibatches_total=rank.minibatches_total,
        reason=Reason(code="LossDiverged", message=message, numbers={"in_a_row": rank.nonfinite}),
    )


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.0f} min"
