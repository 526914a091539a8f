"""The processes of a simulated task: they do what they are told after a delay, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from libs.contracts.placement import LaunchTask, RestoreTask
from libs.node.admission import Told
from libs.node.fetching import Answer
from libs.node.seen import Ended, Report, Seen, Stillness, Takeover
from libs.node.task import task_key
from libs.sim.agenda import Agenda
from libs.sim.options import Options, TakeoverFailure

Key = tuple[str, int]
"""Job id and attempt: names a task on its node."""
SIGKILL, SIGTERM = 9, 15


class Gangs(Protocol):
    """What the world must know of the processes of gangs, which may run on several nodes."""

    def launched(self, order: LaunchTask) -> None:
        """A node has begun to start its task."""

    def withdrawn(self, key: Key, node_id: str) -> None:
        """The node's task is gone before it was started; it may be launched once more."""

    def may_go_on(self, key: Key) -> bool:
        """Whether an earlier attempt of the job has left a checkpoint to start from."""

    def started(self, key: Key, node_id: str) -> None:
        """The node's task runs."""

    def suspended(self, key: Key, node_id: str) -> None:
        """The node's task stands still."""

    def fenced(self, key: Key, node_id: str, fenced: bool) -> None:
        """The node's task is stopped since its node has no lease, or has one again."""

    def resumed(self, key: Key, node_id: str, gpu_indices: list[int]) -> None:
        """The node's task goes on, on these GPUs."""

    def ask(self, launch: LaunchTask, order: RestoreTask) -> Answer:
        """What the nodes say that have the states which a task is to take over: the worst of their answers."""

    def takeover_failure(self, key: Key, node_id: str) -> TakeoverFailure | None:
        """How the node's task fails to take over the state of an earlier attempt; None: it does not."""

    def take_over(self, key: Key, node_id: str, order: RestoreTask) -> None:
        """The node's task gets the state of an earlier attempt."""

    def stopping(self, key: Key) -> None:
        """A task of the gang was told to end, and saves its work."""

    def is_answered(self) -> bool:
        """Whether placement has read all that nodes have reported up to now."""

    def ended(self, key: Key, node_id: str) -> int:
        """The node's task is gone. Returns the steps that the attempt has done."""


class Processes:
    """Of one task, from its launch to its end. They outlive their agent."""

    __slots__ = (
        "_agenda",
        "_changed",
        "_fenced",
        "_gangs",
        "_gone",
        "_held",
        "_killed",
        "_name",
        "_options",
        "_order",
        "_still",
        "_turn",
        "answer_s",
        "applied",
        "key",
        "loading",
        "node_id",
        "seen",
        "told",
    )

    def __init__(
        self,
        order: LaunchTask,
        told: Told,
        agenda: Agenda,
        options: Options,
        gangs: Gangs,
        changed: Callable[[str], None],
    ) -> None:
        """They are being started.

        Args:
            order: to launch them.
            told: what they may have of their GPUs.
            agenda: of the run.
            options: how long they take.
            gangs: what the world must know of them.
            changed: called with the task's key when there is something new to be seen of them.
        """
        self._name = task_key(order.job_id, order.attempt)
        self.key, self.node_id = (order.job_id, order.attempt), order.node_id
        self._order, self._agenda, self._options, self._gangs, self._changed = order, agenda, options, gangs, changed
        self.seen = Seen(launched=True, harnessed=True)
        """Of them; `wait` aside."""
        self.told = told
        """What they may have of their GPUs, as they were told last,"""
        self.applied = told.number
        """and the number under which they keep to it."""
        self.answer_s = 0.0
        """When they will have done what they were told last."""
        self.loading = False
        """The state that they are to take over has come in."""
        self._still: bool | None = False
        """They stand still: True: at a boundary, their memory off the GPUs; None: stopped where they were."""
        self._turn = 0
        """Counts what they were told: only what was planned by the last word comes true."""
        self._killed = self._gone = self._fenced = False
        self._held: list[Callable[[], None]] = []
        """What they will do when their node has a lease again."""
        gangs.launched(order)
        overhead_s = options.checkpoint_overhead_s if gangs.may_go_on(self.key) else 0.0
        agenda.after(options.start_delay_s + overhead_s, self._unless_fenced, self._start)

    def stand_still(self) -> None:
        """They are to stop at their next boundary; until then they make progress."""
        self._see(acknowledged=self._still is True)
        self._plan(0.0 if self._still else self._options.suspend_delay_s, self._stop_at_boundary)

    def freeze(self) -> None:
        """They are stopped where they are; those that stand still at a boundary already stay as they are."""
        if self._still is False:
            self._turn += 1
            self._still = None
            self._gangs.suspended(self.key, self.node_id)

    def go_on(self, gpu_indices: list[int]) -> None:
        """They are to go on, on these GPUs; those that have not stopped yet just do."""
        delay_s = self._options.resume_delay_s if self._still else 0.0
        self._see(acknowledged=self._still is False)
        self._plan(delay_s, self._be_back, gpu_indices)

    def fence(self) -> None:
        """Their shim stops them: their node has no lease."""
        if not self._fenced and not self._gone:
            self._fenced = True
            self._gangs.fenced(self.key, self.node_id, True)

    def release(self) -> None:
        """Their shim lets them go on: their node has a lease again."""
        if not self._fenced or self._gone:
            return
        self._fenced = False
        self._gangs.fenced(self.key, self.node_id, False)
        held, self._held = self._held, []
        for action in held:
            action()

    @property
    def is_limited(self) -> bool:
        """Whether their memory has a limit on some GPU."""
        return any(limit is not None for limit in self.told.limits)

    @property
    def is_parked(self) -> bool:
        """Whether they stand still with their memory off the GPUs."""
        return self._still is True and self._options.parks

    def tell(self, limits: Sequence[int | None], share_ratio: float) -> int:
        """What they may have of their GPUs; they keep to it at their next boundary, or when they go on.

        Returns:
            Number of the change that says it.
        """
        if (tuple(limits), share_ratio) != (tuple(self.told.limits), self.told.share_ratio):
            self.told = Told(number=self.told.number + 1, limits=limits, share_ratio=share_ratio)
            if self._options.limit_delay_s > 0 or self._fenced:
                applies = partial(self._keep_to, self.told.number)
                self._agenda.after(self._options.limit_delay_s, self._unless_fenced, applies)
            elif self._still is False:
                self.applied = self.told.number
        return self.told.number

    def terminate(self) -> None:
        """They are to end, and save their work before; those that are stopped hear it when they go on."""
        if self._fenced:
            self._held.append(self.terminate)
            return
        self._gangs.stopping(self.key)
        self._plan(self._options.stop_delay_s, self.end, Ended(exit_code=None, signal=SIGTERM, outcome="signalled"))

    def kill(self) -> None:
        """They end at once, and save nothing; being told once more changes nothing."""
        if self._killed:
            return
        self._killed = True
        self._plan(0.0, self.end, Ended(exit_code=None, signal=SIGKILL, outcome="signalled"))

    def end(self, ended: Ended) -> None:
        """They end by themselves, or with their node; what has ended stays as it is."""
        if self._gone:
            return
        self._gone = True
        steps = self._gangs.ended(self.key, self.node_id)
        self._see(ended=msgspec.structs.replace(ended, minibatches_total=steps))
        self._changed(self._name)

    def vanish(self) -> None:
        """Their node dies before they were started: nothing is left of them."""
        self._gone = True
        self._gangs.withdrawn(self.key, self.node_id)

    def report(self, step: float, values: dict[str, float]) -> None:
        """Their script says how good it is; what it has said before and nothing has read is forgotten."""
        self._see(report=Report(step=step, values=values))
        self._changed(self._name)

    def take_report(self) -> None:
        """The agent has read the last report."""
        self._see(report=None)

    def load(self) -> None:
        """The state that they are to take over has come in."""
        self.loading = True
        self._agenda.after(self._options.move_delay_s or 0.0, self._unless_fenced, self._restored)

    def cannot_load(self, why: str) -> None:
        """That state cannot be had."""
        self._see(takeover=Takeover(ready=True, failed=why))
        self._changed(self._name)

    def _start(self) -> None:
        if self._gone:
            return
        order, movable = self._order, self._options.move_delay_s is not None
        failure = self._gangs.takeover_failure(self.key, self.node_id) if order.restores else None
        if order.restores:
            self._see(pid=1, takeover=Takeover(ready=failure is None))
        else:
            self._see(pid=1, movable=movable, resizable=movable and order.virtual_ranks is not None)
            self._gangs.started(self.key, self.node_id)
        self._changed(self._name)
        if failure is TakeoverFailure.ENDS:
            self.end(
                Ended(exit_code=1, signal=None, outcome="exited", stderr_tail="simulated: cannot be imported here")
            )
        if order.time_limit_s is not None:
            over = Ended(exit_code=None, signal=SIGKILL, outcome="time_limit")
            self._agenda.at(self._agenda.now_s + order.time_limit_s, self.end, over, awaited=False)

    def _stop_at_boundary(self) -> None:
        if self._still is False:
            self._gangs.suspended(self.key, self.node_id)
        self._still = True
        stillness = Stillness(
            parked=self._options.parks,
            bytes_parked=0,
            bytes_left=0,
            park_s=0.0,
            unpark_s=0.0,
            parked_at_s=self._agenda.now_s,
            minibatches_total=0,
        )
        self._see(acknowledged=True, stillness=stillness)
        self._changed(self._name)

    def _keep_to(self, number: int) -> None:
        if self._still is False and not self._gone and self.applied < number:
            self.applied = number
            self._changed(self._name)

    def _be_back(self, gpu_indices: list[int]) -> None:
        if self._still is False:
            return
        self._still, self.applied = False, self.told.number
        self._gangs.resumed(self.key, self.node_id, gpu_indices)
        self._see(acknowledged=True)
        self._changed(self._name)

    def _restored(self) -> None:
        if self._gone:
            return
        self._still = True
        self._see(acknowledged=True, takeover=Takeover(ready=True, restored=True))
        self._changed(self._name)

    def _plan(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        """They will have done what they are told, unless they are told something else before."""
        self._turn += 1
        self.answer_s = self._agenda.now_s + delay_s
        self._agenda.after(delay_s, self._do, self._turn, action, args)

    def _do(self, turn: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if turn != self._turn or self._gone:
            return
        if self._fenced and not self._killed:
            self._held.append(lambda: self._do(turn, action, args))
        else:
            action(*args)

    def _unless_fenced(self, action: Callable[[], None]) -> None:
        """Do it, or when they may go on."""
        if self._fenced:
            self._held.append(action)
        else:
            action()

    def _see(self, **changes: Any) -> None:
        self.seen = msgspec.structs.replace(self.seen, **changes)
