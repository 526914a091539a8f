"""What a failure leads to: another attempt, when, where and with what changed, or none."""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.placement import AttemptFailed, Overlap
from libs.contracts.reasons import Reason
from libs.failures.consequences import OUTCOMES, Consequence, consequence_of, without_change
from libs.kernel.machine import Turn
from libs.kernel.words import bytes_of, counted
from services.failure_analysis.core.classify import STOPPED_FOR, Failure
from services.failure_analysis.core.state import History, Host, State
from services.failure_analysis.core.table import machine

FREE_LOSSES = 3
"""Attempts that may vanish, or never begin, without using up a retry."""
FREE_DOUBTS = 5
"""Failures beside an attempt that may be over that use up no retry: their delays last as long as a node is waited for
and longer, and a node that has burnt down must not excuse a job for ever."""
USER = "user"
"""The category of failures that are the program's own."""
NO_FAULT = ("lost", "node_failed", "start_timed_out")
"""Outcomes that are not the job's doing, as far as can be seen."""
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
"""Of PyTorch's allocator of GPU memory: `docs.pytorch.org/docs/stable/notes/cuda.html`."""
NO_FRAGMENTS = "expandable_segments:True"
MEMORY_FACTOR = 1.5
"""So many times the memory is asked for after it was not enough."""
PEER_LEVELS = range(70, 80)
"""Ranks of rules that tell of a peer or the network: the node that is to blame is another one."""


@dataclass(frozen=True)
class Next:
    """How the next attempt differs from the one that failed."""

    consequence: Consequence
    avoided: list[str] = field(default_factory=list)
    memory_bytes: int | None = None
    env: dict[str, str] = field(default_factory=dict)

    @property
    def at_once(self) -> bool:
        """Whether there is no use in waiting."""
        return self.consequence is not Consequence.LATER

    @property
    def words(self) -> str:
        """How, in words that begin with a comma; empty where nothing is different."""
        if self.avoided:
            return f", not on {' or '.join(self.avoided)} while others can take it"
        if self.memory_bytes is not None:
            return f", with {bytes_of(self.memory_bytes)} of the host's memory for each GPU"
        if self.env:
            return f", with {' '.join(f'{name}={value}' for name, value in self.env.items())}"
        return ", from its last checkpoint" if self.consequence is Consequence.RESUME else ""


@machine.evolves(RetryScheduled)
def retry_scheduled(state: State, event: RetryScheduled, now_s: float) -> None:
    history = state.jobs.get(event.job_id)
    if history is None:
        return
    history.avoided, history.excused = event.avoided_nodes, None
    if event.memory_bytes is not None:
        history.changes.memory_bytes = event.memory_bytes
    history.changes.allocator = event.env.get(ALLOCATOR, history.changes.allocator)


def excused_by(event: AttemptFailed, history: History) -> Overlap | None:
    """The older attempt that the failure is put down to, given those before it; None: it is the attempt's own."""
    overlap = event.overlap
    if overlap is None or event.outcome == "interrupted":  # which uses up no retry anyway
        return None
    return overlap if overlap.seen or history.overlaps < FREE_DOUBTS else None


def can_help(state: State, event: AttemptFailed, history: History, failure: Failure) -> bool:
    """Whether another attempt may succeed, as it is or with what may be changed of it."""
    if not state.rules and history.excused_by is None:
        return failure.retry_can_help and not _would_fail_again(event, failure)
    return _next(state, event, history, failure).consequence is not Consequence.NEVER


def decide(state: State, event: AttemptFailed, history: History, failure: Failure, turn: Turn[State]) -> None:
    """Say what follows."""
    following = _next(state, event, history, failure)
    if following.consequence is not Consequence.NEVER and _may_retry(event, history):
        turn.emit(_retry(state, event, history, failure, following, turn.now_s))
    else:
        turn.emit(_abandon(state, event, history, failure, following))


def used(history: History) -> int:
    """Retries of the job that its failures so far have used up."""
    return history.failures + max(0, history.losses - FREE_LOSSES)


def _next(state: State, event: AttemptFailed, history: History, failure: Failure) -> Next:
    if history.excused_by is not None:
        return Next(Consequence.LATER)
    if _would_fail_again(event, failure):
        return Next(Consequence.NEVER)
    plain = without_change(failure.retry_can_help)
    if not state.rules:  # nothing but yes or no was known before there was a table
        return Next(plain)
    name = event.outcome if event.outcome in OUTCOMES else failure.cause
    consequence = consequence_of(name, failure.retry_can_help, state.consequences)
    match consequence:
        case Consequence.ELSEWHERE:
            avoided = {*history.avoided, *_to_blame(event, history, failure)}
            return Next(consequence, avoided=sorted(avoided))
        case Consequence.MORE_MEMORY if (memory_bytes := _more_memory(state, history)) is not None:
            return Next(consequence, memory_bytes=memory_bytes)
        case Consequence.ALLOCATOR if history.changes.allowed and not history.changes.allocator:
            return Next(consequence, env={ALLOCATOR: NO_FRAGMENTS})
        case Consequence.RESUME if history.restartable:
            return Next(consequence)
        case Consequence.NEVER | Consequence.LATER:
            return Next(consequence)
    return Next(plain)


def _would_fail_again(event: AttemptFailed, failure: Failure) -> bool:
    """What a program does wrong in its trial it would do wrong again, whatever the signature of the failure."""
    return event.trial and failure.category == USER


def next_attempt(event: AttemptFailed) -> int:
    """The number of the attempt after it."""
    return max(event.attempt, event.last_attempt) + 1


def _to_blame(event: AttemptFailed, history: History, failure: Failure) -> list[str]:
    """Nodes that the next attempt had better avoid; none where that cannot be told."""
    line = failure.observed
    if line is None:
        return [event.node_id]
    if line.level not in PEER_LEVELS:
        return [line.node_id or event.node_id]
    told = [rank for rank in (line.rank, *line.others) if rank is not None]
    silent = [
        task.node_id
        for task in history.gang
        if not any(0 <= rank - task.first_rank < len(task.gpu_indices) for rank in told)
    ]
    return silent if len(silent) < len(history.gang) else []


def _more_memory(state: State, history: History) -> int | None:
    """For each GPU, at most as much as a node could promise; None where nothing can be changed."""
    has = history.changes.memory_bytes
    if not history.changes.allowed or has is None:
        return None
    most = max((_most_per_gpu(host, history.gpus) for host in state.hosts.values() if host.gpus), default=0)
    wanted = int(has * MEMORY_FACTOR)
    more = min(wanted, most) if most else wanted
    return more if more > has else None


def _most_per_gpu(host: Host, gpus: int) -> int:
    """What a node has for each of the GPUs that a gang of so many would have there at most."""
    return host.memory_bytes // min(host.gpus, gpus)


def _may_retry(event: AttemptFailed, history: History) -> bool:
    """A loss is not the job's fault and uses up no retry, until it looks as if it were; an interruption never does."""
    if event.outcome == "interrupted" or history.excused_by is not None:
        return True
    if event.outcome in NO_FAULT:
        return history.losses <= FREE_LOSSES or used(history) <= history.max_retries
    return history.failures <= history.max_retries


def _retry(
    state: State, event: AttemptFailed, history: History, failure: Failure, following: Next, now_s: float
) -> RetryScheduled:
    doublings = max(0, min(history.failures + history.losses + history.overlaps - 1, 30))
    delay_s = 0.0 if following.at_once else min(state.retry_cap_s, state.retry_base_s * 2**doublings)
    why = (
        f"{failure.evidence}; failure {history.failures}, {counted(history.max_retries, 'retry', 'retries')} allowed; "
        f"lost {counted(history.losses, 'time')}"
    )
    code = "RetryCanHelp"
    if event.outcome == "interrupted" or history.excused_by is not None:
        code = "Interrupted" if history.excused_by is None else "Overlapped"
        why = f"{failure.deciding_line}: that uses up no retry"
    when = "at once" if following.at_once else f"in {delay_s:g} s"
    reason = Reason(
        code=code,
        message=f"{why}; next try {when}{following.words}",
        numbers={
            "failures": history.failures,
            "losses": history.losses,
            "max_retries": history.max_retries,
            "delay_s": delay_s,
        },
    )
    return RetryScheduled(
        job_id=event.job_id,
        attempt=next_attempt(event),
        not_before_s=now_s + delay_s,
        reason=reason,
        consequence=following.consequence if state.rules else "",
        avoided_nodes=following.avoided,
        memory_bytes=following.memory_bytes,
        env=following.env,
        retries_used=used(history),
    )


def _abandon(state: State, event: AttemptFailed, history: History, failure: Failure, following: Next) -> JobAbandoned:
    if following.consequence is not Consequence.NEVER:
        allowed = counted(history.max_retries, "retry", "retries")
        lost = f" and lost {counted(history.losses, 'time')}" if history.losses else ""
        why = f"{failure.evidence}; failed {counted(history.failures, 'time')}{lost}, {allowed} allowed"
        code = "RetriesUsedUp"
    elif event.outcome in STOPPED_FOR:
        code, why = event.reason.code, f"{failure.deciding_line}; tenant's policy: such a job is stopped"
    else:
        why = f"{failure.evidence}; not retried: {failure.failure} would happen again"
        code = "RetryCannotHelp"
    return JobAbandoned(
        job_id=event.job_id,
        attempt=event.attempt,
        exit_code=event.exit_code,
        signal=event.signal,
        reason=Reason(
            code=code, message=why, numbers={"failures": history.failures, "max_retries": history.max_retries}
        ),
        consequence=following.consequence if state.rules else "",
    )
