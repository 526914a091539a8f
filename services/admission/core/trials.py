"""Trial runs: a wide job runs its first mini-batches on one GPU before its gang starts (Philly study, section 6,
guideline 3), so that what fails at its beginning fails cheaply."""

from __future__ import annotations

from libs.contracts.admission import EXCUSED, TrialFailed, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited, JobMovable
from libs.contracts.cluster import width_of
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned
from libs.contracts.gateway import SettingChanged
from libs.contracts.jobs import JobSpec
from libs.contracts.placement import AttemptFailed, JobMoved, JobPlaced, JobQueued
from libs.contracts.quota import OpportunityGranted, QuotaGranted
from libs.contracts.reasons import Number, Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.launchers import PER_GPU
from libs.kernel.machine import Turn
from libs.kernel.settings import take_setting
from libs.kernel.words import counted
from services.admission.core.state import State, Trial
from services.admission.core.table import machine

WIDTH = 1
"""GPUs of a trial."""


def order_trial(state: State, job_id: str, spec: JobSpec, turn: Turn[State]) -> None:
    """Before the job is admitted: say whether it runs a trial, where it is wide enough for one."""
    steps = _steps(state, spec)
    if not steps or spec.gpus.count <= WIDTH:
        return
    if spec.launcher != PER_GPU:
        message = "its command starts the ranks itself: how many there are is not for a trial to say"
        turn.emit(TrialSkipped(job_id=job_id, reason=Reason(code="OwnLauncher", message=message)))
        return
    asked = "its user wants" if spec.trial is not None else "jobs of its width run"
    message = f"{asked} {counted(steps, 'mini-batch', 'mini-batches')} on {counted(WIDTH, 'GPU')} first"
    numbers: dict[str, Number] = {"gpus": spec.gpus.count, "above_gpus": state.trial_above_gpus, "steps": steps}
    reason = Reason(code="TrialFirst", message=message, numbers=numbers)
    turn.emit(TrialOrdered(job_id=job_id, steps=steps, gpus=WIDTH, limit_s=state.trial_limit_s, reason=reason))


def _steps(state: State, spec: JobSpec) -> int:
    """Mini-batches of the job's trial; 0: it has none."""
    if spec.trial is not None:
        return spec.trial
    wide = 0 < state.trial_above_gpus < spec.gpus.count
    return int(state.trial_steps) if wide else 0


@machine.evolves(SettingChanged)
def setting_changed(state: State, event: SettingChanged, now_s: float) -> None:
    take_setting(event, machine.service, state)


@machine.evolves(TrialOrdered)
def trial_ordered(state: State, event: TrialOrdered, now_s: float) -> None:
    state.trials[event.job_id] = Trial(gpus=event.gpus)


@machine.evolves(QuotaGranted, OpportunityGranted)
def trial_may_start(state: State, event: QuotaGranted | OpportunityGranted, now_s: float) -> None:
    trial = state.trials.get(event.job_id)
    if trial is not None and trial.placed_s is None:
        trial.waits_since_s = now_s


@machine.evolves(JobPlaced)
def placed(state: State, event: JobPlaced, now_s: float) -> None:
    """A trial that was about to be skipped may have begun; else the job has its whole gang, and no trial any more."""
    trial = state.trials.get(event.job_id)
    if trial is None:
        return
    if width_of(event.gang) != trial.gpus:
        del state.trials[event.job_id]
        return
    trial.attempt, trial.placed_s, trial.waits_since_s, trial.skipped = event.attempt, now_s, None, False
    trial.steps, trial.hands_on = 0, False


@machine.evolves(JobMovable)
def movable(state: State, event: JobMovable, now_s: float) -> None:
    """A script that can go on on another number of GPUs hands its trial's checkpoint on."""
    trial = state.trials.get(event.job_id)
    if trial is not None and event.attempt == trial.attempt:
        trial.hands_on = event.resizable


@machine.evolves(JobMoved)
def moved(state: State, event: JobMoved, now_s: float) -> None:
    trial = state.trials.get(event.job_id)
    if trial is not None:
        trial.attempt = event.attempt


@machine.evolves(JobExited)
def task_ended(state: State, event: JobExited, now_s: float) -> None:
    trial = state.trials.get(event.job_id)
    if trial is not None and event.attempt == trial.attempt:
        trial.steps = event.minibatches_total


@machine.evolves(JobQueued)
def left_its_gpu(state: State, event: JobQueued, now_s: float) -> None:
    """A trial that was preempted begins anew."""
    trial = state.trials.get(event.job_id)
    if trial is None or event.attempt <= trial.attempt or trial.placed_s is None:
        return
    _account(trial, now_s)
    trial.waits_since_s = None if event.tried else now_s


@machine.decides(JobQueued)
def pass_it(state: State, event: JobQueued, turn: Turn[State]) -> None:
    trial = state.trials.get(event.job_id)
    if trial is None or not event.tried:
        return
    did = counted(trial.steps, "mini-batch", "mini-batches")
    reason = Reason(code="TrialPassed", message=f"its trial ended well after {did} in {trial.gpu_s:.0f} GPU seconds")
    turn.emit(_passed(event.job_id, trial, reason, checkpoint=trial.hands_on and trial.steps > 0))


@machine.evolves(AttemptFailed)
def attempt_failed(state: State, event: AttemptFailed, now_s: float) -> None:
    trial = state.trials.get(event.job_id)
    if trial is not None:
        _account(trial, now_s)


@machine.evolves(FailureClassified)
def classified(state: State, event: FailureClassified, now_s: float) -> None:
    trial = state.trials.get(event.job_id)
    if trial is not None and trial.attempt == event.attempt:
        trial.failure = event.failure


@machine.decides(FailureClassified)
def excuse(state: State, event: FailureClassified, turn: Turn[State]) -> None:
    """What a trial on one GPU cannot tell is no failure of the job."""
    trial = state.trials.get(event.job_id)
    if trial is None or trial.attempt != event.attempt or event.failure not in EXCUSED:
        return
    message = f"{event.failure} on {counted(trial.gpus, 'GPU')} says nothing of the whole gang: {event.deciding_line}"
    turn.emit(_passed(event.job_id, trial, Reason(code="TrialExcused", message=message)))


@machine.evolves(TrialPassed, TrialFailed)
def trial_over(state: State, event: TrialPassed | TrialFailed, now_s: float) -> None:
    state.trials.pop(event.job_id, None)


@machine.evolves(TrialSkipped)
def trial_skipped(state: State, event: TrialSkipped, now_s: float) -> None:
    """It is known until its gang, or in spite of all its trial, has begun."""
    trial = state.trials.get(event.job_id)
    if trial is not None:
        trial.skipped, trial.waits_since_s = True, None


@machine.evolves(TimerFired)
def time_has_passed(state: State, event: TimerFired, now_s: float) -> list[str]:
    """The jobs with a trial that has waited for as long as it may."""
    return [job_id for job_id, due_s in _due(state).items() if due_s <= now_s]


@machine.decides(TimerFired)
def skip(state: State, event: TimerFired, turn: Turn[State]) -> None:
    for job_id in turn.changed:
        message = f"its trial has waited for a GPU for {state.trial_patience_s:g} s"
        numbers: dict[str, Number] = {"trial_patience_s": state.trial_patience_s}
        reason = Reason(code="TrialWaitedTooLong", message=message, numbers=numbers)
        turn.emit(TrialSkipped(job_id=job_id, reason=reason))


def next_wakeup(state: State) -> float | None:
    """When the next trial has waited for as long as it may."""
    return min(_due(state).values(), default=None)


def say_it_failed(state: State, event: JobAbandoned, turn: Turn[State]) -> None:
    """The job has failed in its trial, if that was not over."""
    trial = state.trials.get(event.job_id)
    if trial is not None:
        failed = TrialFailed(
            job_id=event.job_id,
            attempt=trial.attempt,
            steps=trial.steps,
            gpu_s=trial.gpu_s,
            failure=trial.failure,
            reason=event.reason,
        )
        turn.emit(failed)


def _due(state: State) -> dict[str, float]:
    if not state.trial_patience_s:
        return {}
    waiting = ((job_id, trial.waits_since_s) for job_id, trial in state.trials.items())
    return {job_id: since_s + state.trial_patience_s for job_id, since_s in waiting if since_s is not None}


def _account(trial: Trial, now_s: float) -> None:
    """The attempt has left its GPUs."""
    if trial.placed_s is not None:
        trial.gpu_s += trial.gpus * max(0.0, now_s - trial.placed_s)
        trial.placed_s = None


def _passed(job_id: str, trial: Trial, reason: Reason, *, checkpoint: bool = False) -> TrialPassed:
    return TrialPassed(
        job_id=job_id, attempt=trial.attempt, steps=trial.steps, gpu_s=trial.gpu_s, checkpoint=checkpoint, reason=reason
    )
