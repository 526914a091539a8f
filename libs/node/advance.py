"""What follows from a look at a task: what the world is to be told, and what is reported."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from libs.contracts.agent import (
    JobExited,
    JobMovable,
    JobRanksApart,
    JobReady,
    JobRestored,
    JobResumed,
    JobSettingUp,
    JobStarted,
    JobSuspended,
)
from libs.contracts.base import Event
from libs.contracts.reasons import Reason
from libs.kernel.words import counted
from libs.node.reports import passed_on
from libs.node.seen import Ended, OnDevice, Seen
from libs.node.task import Status, Task, Want

BOUNDARY_PATIENCE_S = 30.0
"""How long processes may take to their next mini-batch boundary before they are stopped where they are."""

BEGINNING_S = 10.0
"""Longest time from the start of a paused task to its first import; later its processes count as such that do not
listen. A task that makes room for a turn is not waited for: the turn would be over."""

LITTLE_S = 120.0
"""How old a task may be that has done no mini-batch, for its work so far to count as nothing: there are programs whose
mini-batches are not seen."""

WARMING_PATIENCE_S = 600.0
"""How long a task that is to take over may take until it waits for the state."""
TAKING_OVER = (Status.WARMING, Status.READY)
ON_DEVICE = (OnDevice.YES, OnDevice.PARTLY)
OFF_DEVICE = (OnDevice.NO, OnDevice.PARTLY)


class Action(StrEnum):
    """What the world is to be told; all are harmless when repeated."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    """SIGTERM to the task's process groups, which go on with their memory if they were about to stand still."""
    END_STILL = "end where it stands"
    """SIGTERM to the task's process groups, and SIGCONT, so that they hear it; their memory stays off the GPUs."""
    KILL = "kill"
    ASK = "ask to stand still"
    """At the next mini-batch boundary."""
    FREEZE = "freeze"
    """SIGSTOP to the process groups."""
    THAW = "thaw"
    """Let the processes go on, with their memory."""
    TAKE_OFF = "take off"
    """Have the driver bring the processes' device memory to the host, unless that is being done."""
    BRING_BACK = "bring back"
    """Have the driver bring it back, unless that is being done."""
    FETCH = "fetch"
    """Get the state that the task is to take over, unless that is being done or has failed."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a look at a task."""

    actions: list[Action] = []
    facts: list[Event] = []


def advance(task: Task, seen: Seen, now_s: float) -> Step:
    """Bring a task closer to what is wanted; changes its status along with the facts that are returned."""
    if task.status is Status.EXITED:
        return Step()
    if seen.ended is not None:
        return _end(task, _blameless(task, seen.ended), seen, now_s)
    reports = passed_on(task, seen.report, now_s)
    step = _come_closer(task, seen, now_s)
    return Step(actions=step.actions, facts=[*reports, *step.facts]) if reports else step


def _blameless(task: Task, ended: Ended) -> Ended:
    """How a task has ended that the node has expelled: unless its work was done, nothing of that is its own doing."""
    if not task.expelled or (ended.outcome == "exited" and ended.exit_code == 0):
        return ended
    done = ended.minibatches_total
    return Ended(exit_code=None, signal=None, outcome="interrupted", stderr_tail=task.expelled, minibatches_total=done)


def _come_closer(task: Task, seen: Seen, now_s: float) -> Step:
    if task.status is Status.ACCEPTED:
        return _begin(task, seen, now_s)
    if task.want is Want.STOP:
        return _stop(task, now_s)
    if task.status in TAKING_OVER:
        return _take_over(task, seen, now_s)
    if task.status is Status.RUNNING:
        elsewhere = task.want is Want.SUSPEND or task.wanted_gpus != task.gpu_indices
        step = _suspend(task, seen, now_s) if elsewhere else _change_of_mind(task, seen)
        return _with_apart(task, seen, _with_movable(task, seen, step))
    return _resume(task, seen, now_s) if _is_called_back(task) else Step()


def _take_over(task: Task, seen: Seen, now_s: float) -> Step:
    """Wait until the script waits, get the state, wait until it is loaded; ended where that is not possible."""
    order, takeover = task.order, seen.takeover
    if takeover.failed or (task.status is Status.WARMING and now_s >= task.started_s + WARMING_PATIENCE_S):
        return Step(actions=[Action.KILL])
    if task.status is Status.WARMING:
        if not takeover.ready:
            return Step()
        task.status = Status.READY
        return Step(facts=[JobReady(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id)])
    if task.restore is None:
        return Step()
    if not takeover.restored:
        return Step(actions=[Action.FETCH])
    task.status, task.movable = Status.SUSPENDED, True
    fact = JobRestored(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        state_bytes=takeover.state_bytes,
        fetch_s=round(takeover.fetch_s, 6),
        load_s=round(takeover.load_s, 6),
    )
    return Step(facts=[fact])


def _with_movable(task: Task, seen: Seen, step: Step) -> Step:
    """Say once that the task can hand over its state."""
    if task.movable or not seen.movable:
        return step
    task.movable = True
    order = task.order
    fact = JobMovable(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, resizable=seen.resizable)
    return Step(actions=step.actions, facts=[*step.facts, fact])


def _with_apart(task: Task, seen: Seen, step: Step) -> Step:
    """Say once that the task's processes have not met."""
    if task.apart or not seen.apart:
        return step
    task.apart = True
    order, many = task.order, counted(seen.apart, "process", "processes")
    message = (
        f"{many} train side by side without a process group: each trains the whole job; call "
        "torch.distributed.init_process_group in the script, or submit it with --gpus 1 or --launch per-node"
    )
    fact = JobRanksApart(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        processes=seen.apart,
        reason=Reason(code="NoProcessGroup", message=message, numbers={"processes": seen.apart}),
    )
    return Step(actions=step.actions, facts=[*step.facts, fact])


def next_look_s(task: Task) -> float | None:
    """When the passing of time alone calls for a look: the end of the patience with what its processes are to do."""
    if task.status is Status.EXITED:
        return None
    if task.stopping_since_s is not None:
        return task.stopping_since_s + task.grace_s
    if task.asked_since_s is not None:
        return task.asked_since_s + BOUNDARY_PATIENCE_S
    return task.started_s + WARMING_PATIENCE_S if task.status is Status.WARMING else None


def _suspend(task: Task, seen: Seen, now_s: float) -> Step:
    """At a mini-batch boundary if there is one in time, else wherever the processes are."""
    if task.asked_since_s is None:
        task.asked_since_s = now_s
        return Step(actions=[Action.ASK])
    if _awaited(task.asked_since_s, seen, now_s) or _just_began(task, seen, now_s):
        return Step()
    if not seen.acknowledged and (step := _by_driver(seen, ON_DEVICE, Action.TAKE_OFF)) is not None:
        return step
    fact = _suspended(task, seen, task.asked_since_s, now_s)
    task.status, task.asked_since_s = Status.SUSPENDED, None
    return Step(actions=[Action.FREEZE], facts=[fact])


def _change_of_mind(task: Task, seen: Seen) -> Step:
    if task.asked_since_s is None:
        return Step()
    if (step := _by_driver(seen, OFF_DEVICE, Action.BRING_BACK)) is not None:
        return step
    task.asked_since_s = None
    return Step(actions=[Action.THAW])


def _is_called_back(task: Task) -> bool:
    """Whether a suspended task is to go on; one that is suspended again on its way back comes back first."""
    return task.want is Want.RUN or task.asked_since_s is not None


def _resume(task: Task, seen: Seen, now_s: float) -> Step:
    if task.asked_since_s is None:
        if seen.wait is not None:
            return Step()
        task.asked_since_s, task.gpu_indices = now_s, task.wanted_gpus
        return Step(actions=[Action.THAW])
    if (step := _by_driver(seen, OFF_DEVICE, Action.BRING_BACK)) is not None:
        return step
    if _awaited(task.asked_since_s, seen, now_s):
        return Step()
    took_s, task.status, task.asked_since_s = now_s - task.asked_since_s, Status.RUNNING, None
    return Step(facts=[_resumed(task, seen, took_s)])


def _by_driver(seen: Seen, until: tuple[OnDevice, ...], action: Action) -> Step | None:
    """What is to be done while the memory is where the driver is to take it from; None: nothing (any more)."""
    if seen.by_driver is None:
        return None
    if seen.by_driver.memory is OnDevice.MOVING:
        return Step()
    return Step(actions=[action]) if seen.by_driver.memory in until else None


def _awaited(asked_since_s: float, seen: Seen, now_s: float) -> bool:
    """Whether processes that listen at their boundaries have not done yet what was asked, and still may."""
    return seen.harnessed and not seen.acknowledged and now_s < asked_since_s + BOUNDARY_PATIENCE_S


def _just_began(task: Task, seen: Seen, now_s: float) -> bool:
    """Whether nothing can be told yet of what paused processes are; an agent looks all the time while it asks."""
    return task.paused and not (seen.harnessed or seen.untrained) and now_s < task.started_s + BEGINNING_S


def _begin(task: Task, seen: Seen, now_s: float) -> Step:
    task.launched = seen.launched
    if not seen.launched:
        if task.want is Want.STOP:
            last = seen.wait.message if seen.wait is not None else seen.preparing
            return _end(task, Ended(exit_code=None, signal=None, outcome="stopped", stderr_tail=last), seen, now_s)
        task.launched = seen.wait is None
        return Step(actions=[Action.LAUNCH]) if task.launched else Step()
    if seen.pid is None:
        return Step(facts=_setting_up(task, seen))
    before = _setting_up(task, seen)
    task.status, task.started_s = (Status.WARMING if task.order.restores else Status.RUNNING), now_s
    return Step(facts=[*before, _started(task, seen.pid)])


def _setting_up(task: Task, seen: Seen) -> list[Event]:
    """Say once that the task's environment is prepared."""
    if seen.setup is None or task.setting_up:
        return []
    task.setting_up = True
    order, setup = task.order, seen.setup
    reason = Reason(code="SettingUp", message=f"setting up: {setup.command}", numbers={"limit_s": setup.limit_s})
    return [
        JobSettingUp(
            job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, limit_s=setup.limit_s, reason=reason
        )
    ]


def _stop(task: Task, now_s: float) -> Step:
    if task.stopping_since_s is None:
        task.stopping_since_s = now_s
        return Step(actions=[_first_signal(task)])
    if now_s >= task.stopping_since_s + task.grace_s:
        return Step(actions=[Action.KILL])
    return Step()


def _first_signal(task: Task) -> Action:
    if task.grace_s <= 0:
        # It must not take another step: a task that stands still would, on its way to a polite end.
        return Action.KILL
    if task.status is Status.SUSPENDED and not _is_called_back(task):
        # Its GPUs may be another job's by now: its memory must not come back to them.
        return Action.END_STILL
    return Action.TERMINATE


def _end(task: Task, ended: Ended, seen: Seen, now_s: float) -> Step:
    """Report the end, and before it what has not been seen: its start, its return, what the script said last."""
    facts = _setting_up(task, seen) if task.status is Status.ACCEPTED else []
    never_started = task.status is Status.ACCEPTED and seen.pid is None
    if task.status is Status.ACCEPTED and seen.pid is not None:
        task.started_s = now_s
        facts.append(_started(task, seen.pid))
    if task.status is Status.SUSPENDED and _is_called_back(task) and ended.outcome == "exited":
        task.gpu_indices = task.wanted_gpus
        called_s = now_s if task.asked_since_s is None else task.asked_since_s
        facts.append(_resumed(task, seen, now_s - called_s))
    facts += passed_on(task, seen.report, now_s)
    clean = ended.outcome == "exited" and ended.exit_code == 0
    outcome, tail = ended.outcome, ended.stderr_tail
    if task.want is Want.STOP and not clean and outcome in ("exited", "signalled"):
        outcome = "stopped"
    elif task.status in TAKING_OVER and outcome in ("exited", "signalled"):
        tail = seen.takeover.failed or tail or "the script ended before it had taken over a state"
        outcome = "restore_failed"
    facts.append(
        JobExited(
            job_id=task.order.job_id,
            attempt=task.order.attempt,
            node_id=task.order.node_id,
            exit_code=ended.exit_code,
            signal=ended.signal,
            outcome=outcome,
            rank=ended.rank,
            stderr_tail=tail,
            ran_s=0.0 if never_started else round(now_s - task.started_s, 6),
            minibatches_total=ended.minibatches_total,
            memory_signs=ended.memory_signs,
        )
    )
    task.status = Status.EXITED
    return Step(facts=facts)


def _started(task: Task, pid: int) -> JobStarted:
    order = task.order
    return JobStarted(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, pid=pid)


def _suspended(task: Task, seen: Seen, asked_s: float, now_s: float) -> JobSuspended:
    """A process that neither the harness nor the driver has parked keeps its memory on the GPU, if it has any there."""
    order, stillness = task.order, seen.stillness if seen.acknowledged else None
    if stillness is None:
        parked = seen.by_driver is not None and seen.by_driver.memory in (OnDevice.NO, OnDevice.NONE)
        took_s = seen.by_driver.took_s if parked and seen.by_driver is not None else 0.0
        return JobSuspended(
            job_id=order.job_id,
            attempt=order.attempt,
            node_id=order.node_id,
            parked=parked,
            delay_s=round(max(0.0, now_s - asked_s - took_s), 6),
            took_s=round(took_s, 6),
            note="" if parked else _not_at_a_boundary(seen),
            untrained=not parked and seen.untrained and now_s < task.started_s + LITTLE_S,
        )
    return JobSuspended(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        parked=stillness.parked,
        delay_s=round(max(0.0, stillness.parked_at_s - asked_s), 6),
        took_s=round(stillness.park_s, 6),
        parked_bytes=stillness.bytes_parked,
        left_bytes=stillness.bytes_left,
        minibatches_total=stillness.minibatches_total,
        note="" if stillness.parked else _NOT_MOVED,
    )


_NOT_MOVED = "its processes found nothing that could be moved to the host, or no room there; their log says which"


def _not_at_a_boundary(seen: Seen) -> str:
    """Why processes that have not come to stand still by themselves have kept their memory."""
    if seen.by_driver is not None and seen.by_driver.memory is OnDevice.STUCK:
        return "the driver could not take it off"
    if seen.harnessed:
        return f"its processes came to no mini-batch boundary within {BOUNDARY_PATIENCE_S:.0f} s"
    return "its processes do not listen at mini-batch boundaries"


def _resumed(task: Task, seen: Seen, took_s: float) -> JobResumed:
    order = task.order
    return JobResumed(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        gpu_indices=task.gpu_indices,
        took_s=round(seen.stillness.unpark_s if seen.stillness else 0.0, 6),
        delay_s=round(took_s, 6),
    )
