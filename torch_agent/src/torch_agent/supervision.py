"""Keeps the node's tasks as they are wanted, one round after another.

orders ──> Task.want                                   facts ──> journal ──> log
              │                                          ▲
Seeing ──> Seen ──> libs.node.advance ──> actions, facts ┘
                                             └──> Acting
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from libs.contracts.agent import NodeLeaving
from libs.contracts.base import Event
from libs.contracts.placement import StopTask
from libs.node.admission import Admission
from libs.node.advance import advance
from libs.node.reports import report_due
from libs.node.seen import Wait
from libs.node.task import Order, Status, Task, apply_order, stop_all
from torch_agent.acting import Acting
from torch_agent.clock import go_on, now_s, offset_s
from torch_agent.driver.interface import Driver
from torch_agent.driver.operations import Operations
from torch_agent.folders import TaskFolder
from torch_agent.interruptions import Interruptions
from torch_agent.journal import Journal
from torch_agent.launching import Launcher
from torch_agent.moving.taking import Fetches
from torch_agent.output import logged
from torch_agent.patience import STARTING_LOOK_S, patience_s
from torch_agent.processes import machine_start
from torch_agent.removing import Removing
from torch_agent.room import Room
from torch_agent.seeing import Seeing
from torch_agent.sharing import Sharing
from torch_agent.shims import Shims
from torch_agent.written import Written

log = logging.getLogger(__name__)


class Supervision:
    """All tasks of the node."""

    def __init__(
        self,
        state_dir: Path,
        journal: Journal,
        launcher: Launcher,
        on_facts: Callable[[], None],
        sharing: Sharing,
        admission: Admission,
        driver: Driver | None = None,
        leased: Callable[[], bool] = lambda: True,
        room: Room | None = None,
    ) -> None:
        """Take over what the journal knows.

        Args:
            sharing: of the node's GPUs.
            admission: to GPUs that tasks share.
            driver: moves the memory of processes without the harness; None: that stays where it is.
            leased: whether tasks may run: the lease of the node holds.
            room: on the disk; None: there always is.
            on_facts: called when the journal has something to publish.
        """
        self._folders = state_dir / "tasks"
        self._journal, self._on_facts = journal, on_facts
        launcher.say = self.report
        self._sharing, self._admission, self._leased, self._room = sharing, admission, leased, room
        self.tasks: dict[str, Task] = journal.tasks()
        self._removing = Removing(self.tasks, journal, self.folder)
        self._changed = asyncio.Event()
        self._shims = Shims(launcher, self._changed.set)
        self._written = Written(journal, lambda: room is not None and bool(room.shortage))
        fetches = Fetches(self._changed.set)
        by_driver = Operations(driver, self._changed.set) if driver is not None else None
        self._machine_start = machine_start()
        is_restarted = journal.machine_start not in ("", self._machine_start)
        if not is_restarted and journal.clock_offset_s is not None:
            go_on(journal.clock_offset_s)
        self._interruptions = Interruptions(self.active(), self.folder, restarted=is_restarted)
        self._seeing = Seeing(launcher, self._shims, fetches, by_driver, self._interruptions, self._wait)
        self._acting = Acting(self._shims, fetches, by_driver)
        self._end_strangers()

    def _end_strangers(self) -> None:
        """End the tasks that the journal does not know: it is new, or an old copy. They hold GPUs, unseen."""
        for path in self._folders.glob("*"):
            if path.name not in self.tasks and TaskFolder(path).end_unknown():
                log.warning("%s: a task that is not in the journal was running here and has been killed", path)

    def folder(self, task: Task) -> TaskFolder:
        """The task's folder."""
        return TaskFolder(self._folders / task.key)

    def wake(self) -> None:
        """Look at the tasks at once: something that they wait for may have changed."""
        self._changed.set()

    def active(self) -> list[Task]:
        """Tasks that have not ended."""
        return [task for task in self.tasks.values() if task.status is not Status.EXITED]

    def adopt(self) -> None:
        """Look for the first time. What the journal has from then on is of the machine's present life."""
        self.look()
        self._journal.machine_start, self._journal.clock_offset_s = self._machine_start, offset_s()

    def active_setups(self) -> set[str]:
        """Names of the environments that such tasks use, or are about to."""
        return {name for task in self.active() if (name := self.folder(task).setup) is not None}

    def active_jobs(self) -> set[str]:
        """Ids of the jobs with such tasks."""
        return {task.order.job_id for task in self.active()}

    def take(self, orders: list[Order], next_order: int) -> None:
        """Journal what orders ask for, together with the position behind them.

        A task that stands still because the lease has run out ends without another step: its job may run elsewhere.
        """
        if not self._leased():
            orders = [replace(order, grace_s=0.0) if isinstance(order, StopTask) else order for order in orders]
        changed = [task for order in orders if (task := apply_order(self.tasks, order)) is not None]
        self._journal.record(changed, next_order=next_order)
        self._changed.set()

    def agent_ends(self) -> None:
        """The agent has been told to end: perhaps all that is ended from outside from now on is ended with it."""
        self._interruptions.agent_ends()

    def stop_all(self, because: NodeLeaving) -> None:
        """Want every task to end. The reason is on record with that, so that it is on the log before their ends."""
        stop_all(self.tasks)
        self._journal.record(self.active(), [because], time_s=time.time())
        self._on_facts()
        self._changed.set()

    def changed(self, task: Task) -> None:
        """Journal what is wanted of a task now, and see to it."""
        self._journal.record([task])
        self._changed.set()

    def report(self, facts: Sequence[Event]) -> None:
        """Bring facts about tasks to the log."""
        self._journal.record(facts=facts, time_s=time.time())
        self._on_facts()

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
                async with asyncio.timeout(patience_s(self.active(), now_s())):
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
        self._removing.go_on()
        return [task.status for task in active] != before

    def _look_at(self, task: Task) -> None:
        folder, before, begun = self.folder(task), task.status, _begun(task)
        seen = self._seeing.see(task, folder)
        if seen.pid is not None and seen.ended is None:
            self._shims.watch(task, folder)
        if seen.ended is not None and self._journal.is_full:
            return  # its shim has the result, and its files the output, which may be more than memory has room for
        at_s = now_s()
        due = report_due(task, ended=seen.ended is not None, now_s=at_s)
        report_tails: dict[str, int] = {}
        if due:
            report, report_tails = self._written.report(folder, ended=seen.ended is not None)
            seen = replace(seen, report=report)
        step = advance(task, seen, at_s)
        # Done first, then journalled: an agent that is killed in between has the next one do it once more, which is
        # harmless. The other way round processes would seem to have done what they were never told.
        if task.status is not Status.ACCEPTED:
            self._sharing.keep(task, folder)
        for action in step.actions:
            self._acting.act(action, task, folder)
        lines, output_tails = self._written.output(task, folder)
        tails = {**report_tails, **output_tails}
        facts: list[Event] = [*logged(task.order, lines)]
        facts += self._written.loss(task, lines, at_s, due=due)
        facts += step.facts
        if facts or tails or task.status is not before or _begun(task) != begun:
            self._journal.record([task], facts, time_s=time.time(), tails=tails)
            self._on_facts()
        if task.status is Status.EXITED:
            self._ended(task)

    def _wait(self, task: Task) -> Wait | None:
        if task.status is Status.ACCEPTED and self._room is not None and self._room.shortage:
            return Wait(gpus=task.place, jobs=[], of_node=self._room.shortage)
        if not self._leased():
            return Wait(gpus=task.place, jobs=[], of_node="the lease of its node has run out")
        return self._admission.wait(task, self.active())

    def _ended(self, task: Task) -> None:
        self._removing.ended(task.key)
        self._interruptions.forget(task.key)
        self._written.forget(task.key)
        self._acting.forget(task.key)
        self.folder(task).drop_states()
        self._shims.forget(task.key)


def _begun(task: Task) -> tuple[float | None, float | None]:
    """What is under way with its processes, since when."""
    return task.asked_since_s, task.stopping_since_s
