"""Users whose jobs fail again and again of one cause, and inputs that the jobs of several users find wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from libs.contracts.failure_analysis import FailureClassified, InputQuarantined, InputReleased, RepeatNoticed
from libs.contracts.gateway import InputReleaseRequested
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from libs.kernel.words import counted, moment, some
from services.failure_analysis.core.state import History, Repeat, State
from services.failure_analysis.core.table import machine

WRONG_INPUT = "incorrect_inputs"
"""The reason of failures that speak against an input."""


def note(state: State, event: FailureClassified, now_s: float) -> None:
    """Remember a failure of a user's job, as long as such failures count. Only where lines are followed."""
    history = state.jobs.get(event.job_id)
    if not state.rules or history is None or event.category != "user" or not event.cause:
        return
    failure = Repeat(at_s=now_s, job_id=event.job_id, user=history.user, cause=event.cause)
    since_s = now_s - state.blame_window_s
    state.repeats, state.inputs = _recent(state.repeats, since_s), _recent(state.inputs, since_s)
    if history.user:
        state.repeats.setdefault(history.user, []).append(failure)
    if event.failure == WRONG_INPUT:
        for name in _at_fault(history.data, event.deciding_line):
            if name not in state.quarantined:
                state.inputs.setdefault(name, []).append(failure)


def warn(state: State, history: History, turn: Turn[State]) -> None:
    """Say what the failure that was just judged has made too many."""
    repeats = state.repeats.get(history.user, [])
    of_cause = [each for each in repeats if each.cause == repeats[-1].cause]
    if state.repeat_jobs > 0 and len(_jobs(of_cause)) >= state.repeat_jobs:
        cause = of_cause[-1].cause
        turn.emit(RepeatNoticed(user=history.user, cause=cause, jobs=_jobs(of_cause), reason=_why_repeated(of_cause)))
    for name in history.data:
        failures = state.inputs.get(name, [])
        users = list(dict.fromkeys(each.user for each in failures))
        if state.input_users > 0 and len(users) >= state.input_users:
            turn.emit(
                InputQuarantined(
                    input=name,
                    jobs=_jobs(failures),
                    users=users,
                    causes=sorted({each.cause for each in failures}),
                    reason=_why_wrong(name, failures, users),
                )
            )


@machine.evolves(RepeatNoticed)
def repeat_noticed(state: State, event: RepeatNoticed, now_s: float) -> None:
    left = [each for each in state.repeats.pop(event.user, []) if each.cause != event.cause]
    if left:
        state.repeats[event.user] = left


@machine.evolves(InputQuarantined)
def input_quarantined(state: State, event: InputQuarantined, now_s: float) -> None:
    state.inputs.pop(event.input, None)
    state.quarantined[event.input] = None


@machine.decides(InputReleaseRequested)
def release(state: State, event: InputReleaseRequested, turn: Turn[State]) -> None:
    if event.input in state.quarantined:
        why = Reason(code="OperatorSaysSo", message=f"{event.requested_by} has released it")
        turn.emit(InputReleased(input=event.input, reason=why))


@machine.evolves(InputReleased)
def input_released(state: State, event: InputReleased, now_s: float) -> None:
    state.quarantined.pop(event.input, None)


def _recent(failures: Mapping[str, list[Repeat]], since_s: float) -> dict[str, list[Repeat]]:
    kept = ((key, [each for each in found if each.at_s > since_s]) for key, found in failures.items())
    return {key: found for key, found in kept if found}


def _at_fault(data: Sequence[str], line: str) -> list[str]:
    """The inputs that the deciding line names; all of the job's where it names none."""
    return [name for name in data if name in line] or list(data)


def _jobs(failures: Iterable[Repeat]) -> list[str]:
    return list(dict.fromkeys(each.job_id for each in failures))


def _why_repeated(failures: Sequence[Repeat]) -> Reason:
    jobs, within_s = len(_jobs(failures)), failures[-1].at_s - failures[0].at_s
    message = f"{counted(jobs, 'job')} failed of {failures[-1].cause} within {within_s:.0f} s"
    return Reason(code="SameCauseAgain", message=message, numbers={"jobs": jobs, "within_s": within_s})


def _why_wrong(name: str, failures: Sequence[Repeat], users: Sequence[str]) -> Reason:
    jobs, causes = len(_jobs(failures)), ", ".join(sorted({each.cause for each in failures}))
    message = (
        f"{counted(jobs, 'job')} of {counted(len(users), 'user')} ({some(users)}) failed of it ({causes}), "
        f"the last at {moment(failures[-1].at_s)}; sanjaya failures release {name}"
    )
    return Reason(code="InputIsWrong", message=message, numbers={"jobs": jobs, "users": len(users)})
