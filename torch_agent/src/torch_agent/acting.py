"""What the agent does to a task's processes: launches, fetches of states, turns, signals."""

from __future__ import annotations

import logging
import signal

from libs.node.advance import Action
from libs.node.task import Task
from torch_agent.driver.operations import Operations
from torch_agent.folders import TaskFolder
from torch_agent.harness.control import turn_to
from torch_agent.harness.versions import Unreadable
from torch_agent.moving.taking import Fetches
from torch_agent.once import warn_once
from torch_agent.pacing import end_pacer
from torch_agent.shims import Shims

log = logging.getLogger(__name__)

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
STILLNESS = {Action.FREEZE: True, Action.THAW: False, Action.TERMINATE: False, Action.END_STILL: False}
"""{action: whether a lease that is renewed leaves the processes as they are from then on}."""


class Acting:
    """Carries out what `libs.node.advance` asks for."""

    def __init__(self, shims: Shims, fetches: Fetches, by_driver: Operations | None) -> None:
        """`by_driver` moves the memory of processes without the harness; None: that stays where it is."""
        self._shims, self._fetches, self._by_driver = shims, fetches, by_driver

    def act(self, action: Action, task: Task, folder: TaskFolder) -> None:
        """Begin it, where it takes a while; done twice it is harmless."""
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
            _turn(folder, suspend=TURNS[action])
        if action is Action.FREEZE:
            end_pacer(folder)
        if action in STILLNESS:
            folder.note_suspended(STILLNESS[action])
        folder.signal_ranks(*SIGNALS[action])

    def forget(self, key: str) -> None:
        """The task has ended: nothing is fetched or moved for it any more."""
        self._fetches.forget(key)
        if self._by_driver is not None:
            self._by_driver.forget(key)


def _turn(folder: TaskFolder, *, suspend: bool) -> None:
    try:
        turn_to(folder.pages, suspend=suspend)
    except (Unreadable, OSError) as error:
        warn_once(f"{error}: the task's processes are told by signals alone")
