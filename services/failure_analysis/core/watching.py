"""What the shell that follows lines knows from control: attempts that run or have just failed, and what was told."""

from __future__ import annotations

import msgspec

from libs.contracts.failure_analysis import OWNER, FailureClassified, FailureObserved, JobAbandoned, RulesLoaded
from libs.contracts.placement import (
    AttemptFailed,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobSucceeded,
)
from libs.failures.verdict import Ended
from libs.kernel.machine import Machine
from libs.kernel.service import Service
from services.failure_analysis.core.classify import BY_LINES


class Attempt(msgspec.Struct, kw_only=True):
    """The latest attempt of a job."""

    number: int
    told: list[str] = []
    """`RULE/RANK` of the lines that are on control already."""
    ended: Ended | None = None
    """It has failed, and its last lines are wanted; None while it runs."""


class Watch(msgspec.Struct, kw_only=True):
    """Initially empty."""

    attempts: dict[str, Attempt] = {}
    """{job id: its attempt}, from placement until it has succeeded, or has been judged."""
    loaded: RulesLoaded | None = None
    """The rules, as said last."""


machine: Machine[Watch] = Machine(f"{OWNER}/lines")
"""Decides nothing. Not named as the service: RulesLoaded and FailureObserved are said by the shell, and read back here
like the facts of other services."""


def key_of(rule: str, rank: int | None) -> str:
    """What a line is told once for."""
    return f"{rule}/{'' if rank is None else rank}"


@machine.evolves(RulesLoaded)
def rules_loaded(state: Watch, event: RulesLoaded, now_s: float) -> None:
    state.loaded = event


@machine.evolves(JobPlaced, JobMoved)
def begun(state: Watch, event: JobPlaced | JobMoved, now_s: float) -> None:
    state.attempts[event.job_id] = Attempt(number=event.attempt)


@machine.evolves(FailureObserved)
def told(state: Watch, event: FailureObserved, now_s: float) -> None:
    attempt = state.attempts.get(event.job_id)
    if attempt is None or attempt.number != event.attempt:
        return
    if event.complete:
        del state.attempts[event.job_id]
    else:
        attempt.told.append(key_of(event.rule, event.rank))


@machine.evolves(AttemptFailed)
def failed(state: Watch, event: AttemptFailed, now_s: float) -> None:
    attempt = state.attempts.get(event.job_id)
    if attempt is None or attempt.number != event.attempt:
        return
    if event.outcome in BY_LINES:
        attempt.ended = Ended(exit_code=event.exit_code, signal=event.signal, memory_signs=event.memory_signs)
    else:
        del state.attempts[event.job_id]


@machine.evolves(JobSucceeded, JobCancelled, JobAbandoned, JobPreempted, FailureClassified)
def over(
    state: Watch,
    event: JobSucceeded | JobCancelled | JobAbandoned | JobPreempted | FailureClassified,
    now_s: float,
) -> None:
    """Nothing more is wanted of its lines."""
    attempt = state.attempts.get(event.job_id)
    if attempt is not None and attempt.number <= event.attempt:
        del state.attempts[event.job_id]


WATCH = Service(
    name=machine.service,
    question="Of which attempts are lines wanted?",
    machine=machine,
    state_type=Watch,
    silent=True,
)
