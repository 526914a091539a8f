"""Keeps the node's tasks as they are wanted: looks, acts, journals what happened."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from libs.contracts.agent import NodeLeaving
from libs.contracts.base import Event
from libs.node.advance import TAKING_OVER, Action, advance, next_look_s
from libs.node.handover import gpus_taken
from libs.node.reports import report_due
from libs.node.seen import Ended, Seen
from libs.node.task import Order, Status, Task, Want, apply_order, stop_all
from torch_agent.acknowledgements import with_acknowledgements
from torch_agent.driver.interface import Driver
from torch_agent.driver.operations import Operations
from torch_agent.folders import TaskFolder
from torch_agent.harness.control import turn_to
from torch_agent.harness.versions import Unreadable
from torch_agent.interruptions import Interruptions, interrupted
from torch_agent.journal import Journal
from torch_agent.launching import Launcher
from torch_agent.moving.taking import Fetches
from torch_agent.once import warn_once
from torch_agent.output import logged
from torch_agent.pacing import end_pacer
from torch_agent.pages import living_pages, minibatches_done, ranks_apart
from torch_agent.processes import machine_start
from torch_agent.sharing import Sharing
from torch_agent.shims import Shims
from torch_agent.written import Written

log = logging.getLogger(__name__)

STARTING_LOOK_S = 0.05
TURNING_LOOK_S = 0.005
"""While a task is being suspended or resumed: others wait for its GPUs."""
ACTIVE_LOOK_S = 0.25
"""Also how often output and reports are read."""
KEEP_ENDED_S = 3600.0

SIGNALS: dict[Action, tuple[int, ...]] = {
    Action.TERMINATE: (signal.SIGTERM, signal.SIGCONT),
    Action.END_STILL: (signal.SIGTERM, signal.SIGCONT),
    Action.KILL: (signal.SIGKILL,),
    Action.ASK: (),
    Action.FREEZE: (signal.SIGSTOP,),
    Action.THAW: (signal.SIGCONT,),
}
TURNS = {Action.ASK: True, Action.THAW: False, Action.TERMINATE: False}
"""{action: whether the processes are to stand still from then on}; a process that stands still hears no signal."""


class Supervision:
    """All tasks of the node."""

    def __init__(
        self,
        state_dir: Path,
        journal: Journal,
        launcher: Launcher,
        on_facts: Callable[[], None],
        sharing: Sharing,
        driver: Driver | None = None,
        admits: Callable[[Task, Sequence[Task]], bool] = lambda task, active: True,
    ) -> None:
        """Take over what the journal knows.

        Args:
            sharing: of the node's GPUs.
            driver: moves the memory of processes without the harness; None: that stays where it is.
            admits: whether there is room for a task on GPUs that it shares with these.
            on_facts: called when the journal has something to publish.
        """
        self._folders = state_dir / "tasks"
        self._journal, self._launcher, self._on_facts = journal, launcher, on_facts
        launcher.say = self.report
        self._sharing, self._admits = sharing, admits
        self.tasks: dict[str, Task] = journal.tasks()
        self._ended_at_s: dict[str, float] = {}
        self._removal: tuple[str, subprocess.Popen[bytes]] | None = None
        """The task with the folder that is being removed, and the process that removes it."""
        self._expelled: dict[str, str] = {}
        """{task key: why this agent ends it}."""
        self._changed = asyncio.Event()
        self._shims = Shims(launcher, self._changed.set)
        self._written = Written(journal)
        self._fetches = Fetches(self._changed.set)
        self._by_driver = Operations(driver, self._changed.set) if driver is not None else None
        self._machine_start = machine_start()
        is_restarted = journal.machine_start not in ("", self._machine_start)
        self._interruptions = Interruptions(self.active(), self.folder, restarted=is_restarted)
        self._end_strangers()

    def _end_strangers(self) -> None:
        """End the tasks that the journal does not know: it is new, or an old copy. They hold GPUs, unseen."""
        for path in self._folders.glob("*"):
            if path.name not in self.tasks and TaskFolder(path).end_unknown():
                log.warning("%s: a task that is not in the journal was running here and has been killed", path)

    def folder(self, task: Task) -> TaskFolder:
        """The task's folder."""
        return TaskFolder(self._folders / task.key)

    def active(self) -> list[Task]:
        """Tasks that have not ended."""
        return [task for task in self.tasks.values() if task.status is not Status.EXITED]

    def adopt(self) -> None:
        """Look for the first time. What the journal has from then on is of the machine's present life."""
        self.look()
        self._journal.machine_start = self._machine_start

    def active_setups(self) -> set[str]:
        """Names of the environments that such tasks use, or are about to."""
        return {name for task in self.active() if (name := self.folder(task).setup) is not None}

    def active_jobs(self) -> set[str]:
        """Ids of the jobs with such tasks."""
        return {task.order.job_id for task in self.active()}

    def take(self, orders: list[Order], next_order: int) -> None:
        """Journal what orders ask for, together with the position behind them."""
        changed = [task for order in orders if (task := apply_order(self.tasks, order)) is not None]
        self._journal.record(changed, next_order=next_order)
        self._changed.set()

    def stop_all(self, because: NodeLeaving) -> None:
        """Want every task to end. The reason is on record with that, so that it is on the log before their ends."""
        stop_all(self.tasks)
        self._journal.record(self.active(), [because], time_s=time.time())
        self._on_facts()
        self._changed.set()

    def leave(self, task: Task) -> None:
        """Have a guest stand still without its memory on the GPU, for the sake of an owner."""
        if task.want is Want.RUN:
            task.want, task.yielding = Want.SUSPEND, True
            self._note(task)

    def come_back(self, task: Task) -> None:
        """Let it go on."""
        if task.yielding:
            task.want, task.yielding = Want.RUN, False
            self._note(task)

    def expel(self, task: Task, why: str) -> None:
        """End a guest that stands still and keeps memory that an owner needs; its job is not to blame."""
        if task.want is not Want.STOP:
            self._expelled[task.key] = why
            task.want, task.yielding, task.grace_s = Want.STOP, False, 0.0
            self._note(task)

    def report(self, facts: Sequence[Event]) -> None:
        """Bring facts about tasks to the log."""
        self._journal.record(facts=facts, time_s=time.time())
        self._on_facts()

    def _note(self, task: Task) -> None:
        self._journal.record([task])
        self._changed.set()

    async def show(self, look: Callable[[Sequence[tuple[Task, TaskFolder]]], None], every_s: float) -> None:
        """Have another part of the agent look at the tasks that have not ended, and their folders, for ever."""
        while True:
            look([(task, self.folder(task)) for task in self.active()])
            await asyncio.sleep(every_s)

    async def run(self) -> None:
        """Look after the tasks for ever."""
        while True:
            self._changed.clear()
            if self.look():
                await asyncio.sleep(0)
                continue
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the change, and
                # then the agent does not end when it is told to.
                async with asyncio.timeout(self._patience_s()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def until_idle(self, timeout_s: float) -> bool:
        """Wait until no task is active, while `run` is running. Returns whether that was so in time."""
        deadline = time.monotonic() + timeout_s
        while self.active() and time.monotonic() < deadline:
            await asyncio.sleep(STARTING_LOOK_S)
        return not self.active()

    def look(self) -> bool:
        """One round over all active tasks. Returns whether one of them has come further: others may wait for that."""
        active = self.active()
        before = [task.status for task in active]
        for task in active:
            self._look_at(task)
        self._forget_old()
        return [task.status for task in active] != before

    def _look_at(self, task: Task) -> None:
        folder, before, begun = self.folder(task), task.status, _begun(task)
        seen = self._see(task, folder)
        if seen.pid is not None and seen.ended is None:
            self._shims.watch(task, folder)
        now_s = time.time()
        due = report_due(task, ended=seen.ended is not None, now_s=now_s)
        report_tails: dict[str, int] = {}
        if due:
            report, report_tails = self._written.report(folder, ended=seen.ended is not None)
            seen = msgspec.structs.replace(seen, report=report)
        step = advance(task, seen, now_s)
        # Done first, then journalled: an agent that is killed in between has the next one do it once more, which is
        # harmless. The other way round processes would seem to have done what they were never told.
        if task.status is not Status.ACCEPTED:
            self._sharing.keep(task, folder)
        for action in step.actions:
            self._act(action, task, folder)
        lines, output_tails = self._written.output(task, folder)
        tails = {**report_tails, **output_tails}
        facts: list[Event] = [*logged(task.order, lines)]
        facts += self._written.loss(task, lines, now_s, due=due)
        facts += step.facts
        if facts or tails or task.status is not before or _begun(task) != begun:
            self._journal.record([task], facts, time_s=now_s, tails=tails)
            self._on_facts()
        if task.status is Status.EXITED:
            self._ended(task)

    def _see(self, task: Task, folder: TaskFolder) -> Seen:
        if task.want is Want.STOP:
            self._shims.call_off(task.key)  # else the stop would wait for what a launch waits for
        starting = self._shims.is_starting(task.key)
        started, before_restart = task.status is not Status.ACCEPTED, self._interruptions.before_restart(task)
        seen = folder.look(starting=starting, started=started, before_restart=before_restart)
        if seen.ended is not None:
            seen = msgspec.structs.replace(seen, ended=self._judged(task, seen.ended))
        taken = task.waits_for_gpus and not self._has_room(task)
        seen = msgspec.structs.replace(seen, gpus_taken=taken, preparing=self._launcher.doing.get(task.key, ""))
        if (setup := self._launcher.setting_up.get(task.key)) is not None:
            seen = msgspec.structs.replace(seen, setup=setup)
        if task.asked_since_s is not None or task.status in TAKING_OVER or _may_be_movable(task):
            living = living_pages(folder.pages)
            seen = with_acknowledgements(seen, folder.pages, living)
            seen = msgspec.structs.replace(seen, apart=ranks_apart(living, task.order))
            if self._by_driver is not None and task.asked_since_s is not None and not living:
                moved = self._by_driver.seen(task.key, folder.processes)
                seen = msgspec.structs.replace(seen, by_driver=moved)
            if task.status in TAKING_OVER:
                seen = msgspec.structs.replace(seen, takeover=self._fetches.seen(task, folder, living))
        if not seen.launched and seen.ended is None and (status := self._shims.status(task.key)) is not None:
            folder.refuse(f"the task's shim ended with status {status} before it had started anything")
            seen = folder.look(starting=False, started=False)
        if seen.ended is not None:
            ended = msgspec.structs.replace(seen.ended, minibatches_total=minibatches_done(folder.pages))
            seen = msgspec.structs.replace(seen, ended=ended)
        return seen

    def _judged(self, task: Task, ended: Ended) -> Ended | None:
        """None: it is not certain yet how the task has ended."""
        if task.key in self._expelled:
            return interrupted(self._expelled[task.key])
        return self._interruptions.judged(task, ended)

    def _has_room(self, task: Task) -> bool:
        active = self.active()
        return not gpus_taken(task, active) and self._admits(task, active)

    def _act(self, action: Action, task: Task, folder: TaskFolder) -> None:
        if action is Action.LAUNCH:
            self._shims.launch(task, folder)
            return
        if action is Action.FETCH:
            self._fetches.begin(task, folder)
            return
        if action is Action.TAKE_OFF and self._by_driver is not None:
            self._by_driver.take_off(task.key, folder.processes())
            return
        if action is Action.BRING_BACK and self._by_driver is not None:
            self._by_driver.bring_back(task.key, folder.processes())
            return
        log.info("%s %s", action.value, task.key)
        if action in TURNS:
            try:
                turn_to(folder.pages, suspend=TURNS[action])
            except (Unreadable, OSError) as error:
                warn_once(f"{error}: the task's processes are told by signals alone")
        if action is Action.FREEZE:
            end_pacer(folder)
        folder.signal_ranks(*SIGNALS[action])

    def _ended(self, task: Task) -> None:
        self._ended_at_s[task.key] = time.monotonic()
        self._interruptions.forget(task.key)
        self._expelled.pop(task.key, None)
        self._written.forget(task.key)
        self._fetches.forget(task.key)
        if self._by_driver is not None:
            self._by_driver.forget(task.key)
        self.folder(task).drop_states()
        self._shims.forget(task.key)

    def _forget_old(self) -> None:
        """Remove the folders of tasks that ended long ago, one by one.

        A task is forgotten when its folder is gone: a removal that ends with the agent begins anew with the next one.
        """
        if self._removal is not None and not self._forget_removed(*self._removal):
            return
        now_s = time.monotonic()
        for key, task in self.tasks.items():
            is_old = task.status is Status.EXITED and now_s - self._ended_at_s.setdefault(key, now_s) > KEEP_ENDED_S
            if is_old and self._removal is None:
                self._removal = key, self.folder(task).remove()

    def _forget_removed(self, key: str, removal: subprocess.Popen[bytes]) -> bool:
        """Forget the task if its folder is gone; returns whether it is."""
        if removal.poll() is None:
            return False
        self._removal = None
        folder = self.folder(self.tasks.pop(key))
        self._journal.forget(key, str(folder.path))
        self._ended_at_s.pop(key, None)
        return True

    def _patience_s(self) -> float | None:
        active = self.active()
        if not active:
            return None
        if any(_turns(task) for task in active):
            return TURNING_LOOK_S
        if any(task.status in (Status.ACCEPTED, Status.WARMING) for task in active):
            return STARTING_LOOK_S
        now_s = time.time()
        looks = [at - now_s for task in active if (at := next_look_s(task)) is not None]
        return max(STARTING_LOOK_S, min([ACTIVE_LOOK_S, *looks]))


def _begun(task: Task) -> tuple[float | None, float | None]:
    """What is under way with its processes, since when."""
    return task.asked_since_s, task.stopping_since_s


def _turns(task: Task) -> bool:
    """Whether others wait for what its processes are doing right now."""
    return task.asked_since_s is not None or (task.status is Status.READY and task.restore is not None)


def _may_be_movable(task: Task) -> bool:
    """Whether its processes may say any moment that they can hand over their state."""
    return task.status is Status.RUNNING and not task.movable
