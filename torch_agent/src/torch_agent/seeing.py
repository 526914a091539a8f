"""What the agent sees of a task: put together from its folder, its pages, its shim and what is under way for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from libs.node.advance import TAKING_OVER
from libs.node.seen import Seen, Wait
from libs.node.task import Status, Task, Want
from torch_agent.acknowledgements import with_acknowledgements
from torch_agent.driver.operations import Operations
from torch_agent.folders import TaskFolder
from torch_agent.interruptions import Interruptions
from torch_agent.launching import Launcher
from torch_agent.moving.taking import Fetches
from torch_agent.pages import living, minibatches_done, ranks_apart
from torch_agent.shims import Shims


class Seeing:
    """Looks at tasks, one at a time."""

    def __init__(
        self,
        launcher: Launcher,
        shims: Shims,
        fetches: Fetches,
        by_driver: Operations | None,
        interruptions: Interruptions,
        wait: Callable[[Task], Wait | None],
    ) -> None:
        """See `see`.

        Args:
            by_driver: moves the memory of processes without the harness; None: that stays where it is.
            wait: why a task that waits for its GPUs may not have them yet.
        """
        self._launcher, self._shims, self._fetches, self._by_driver = launcher, shims, fetches, by_driver
        self._interruptions, self._wait = interruptions, wait

    def see(self, task: Task, folder: TaskFolder) -> Seen:
        """How the task is; one that is to stop is not launched any more, and one whose shim has failed is refused."""
        if task.want is Want.STOP:
            self._shims.call_off(task.key)  # else the stop would wait for what a launch waits for
        seen = self._with_preparation(self._in_folder(task, folder), task)
        if task.asked_since_s is not None or task.status in TAKING_OVER or _may_be_movable(task):
            seen = self._with_what_processes_say(seen, task, folder)
        if not seen.launched and seen.ended is None and (status := self._shims.status(task.key)) is not None:
            with suppress(OSError):  # without room for that it is launched again, when there is some
                folder.refuse(f"the task's shim ended with status {status} before it had started anything")
            seen = folder.look(starting=False, started=False)
        if seen.ended is not None:
            ended = msgspec.structs.replace(seen.ended, minibatches_total=minibatches_done(folder.pages))
            seen = msgspec.structs.replace(seen, ended=ended)
        return seen

    def _in_folder(self, task: Task, folder: TaskFolder) -> Seen:
        """What its folder says, with an end only when it is certain how the task has ended."""
        starting = self._shims.is_starting(task.key)
        started, before_restart = task.status is not Status.ACCEPTED, self._interruptions.before_restart(task)
        seen = folder.look(starting=starting, started=started, before_restart=before_restart)
        if seen.ended is None:
            return seen
        return msgspec.structs.replace(seen, ended=self._interruptions.judged(task, seen.ended))

    def _with_preparation(self, seen: Seen, task: Task) -> Seen:
        """What a task that does not run yet waits for."""
        wait = self._wait(task) if task.waits_for_gpus else None
        seen = msgspec.structs.replace(seen, wait=wait, preparing=self._launcher.doing.get(task.key, ""))
        if (setup := self._launcher.setting_up.get(task.key)) is not None:
            seen = msgspec.structs.replace(seen, setup=setup)
        return seen

    def _with_what_processes_say(self, seen: Seen, task: Task, folder: TaskFolder) -> Seen:
        """Whether they stand still, and how far a hand-over of their state is."""
        found = living(folder.pages)
        seen = with_acknowledgements(seen, folder.pages, found)
        seen = msgspec.structs.replace(seen, apart=ranks_apart(found.pages, task.order))
        if self._by_driver is not None and task.asked_since_s is not None and not found.pages:
            moved = self._by_driver.seen(task.key, folder.processes)
            seen = msgspec.structs.replace(seen, by_driver=moved)
        if task.status in TAKING_OVER:
            seen = msgspec.structs.replace(seen, takeover=self._fetches.seen(task, folder, found.pages))
        return seen


def _may_be_movable(task: Task) -> bool:
    """Whether its processes may say any moment that they can hand over their state."""
    return task.status is Status.RUNNING and not task.movable
