"""What tasks write, read on from where it was left: their output, the reports of scripts, the losses in lines."""

from __future__ import annotations

import time
from collections.abc import Callable

from libs.contracts.agent import LogLine
from libs.contracts.base import Event
from libs.node.loss_lines import told_by_lines
from libs.node.reports import passed_on
from libs.node.seen import Report
from libs.node.task import Status, Task
from torch_agent.folders import TaskFolder
from torch_agent.journal import Journal
from torch_agent.output import read_lines, rest_of
from torch_agent.reports import last_report

BACKLOG_LIMIT = 5_000
"""Facts that may wait for the log before output and reports are left in their files."""


class Written:
    """Reads what all tasks of the node write. How far it was read is in the journal."""

    def __init__(self, journal: Journal, is_short: Callable[[], bool] = lambda: False) -> None:
        """`is_short`: whether the disk has no room for more than must be kept."""
        self._journal, self._is_short = journal, is_short
        self._loss_told: dict[str, Report] = {}
        """{task key: what its lines have told of its loss, and is not due}."""

    def report(self, folder: TaskFolder, *, ended: bool) -> tuple[Report | None, dict[str, int]]:
        """The script's last report, if there is a new one, and {file: how far it is read with that}."""
        if self._is_left(ended=ended):
            return None, {}
        offset = self._journal.tail(str(folder.reports))
        report, new_offset = last_report(folder.reports, offset)
        return report, ({str(folder.reports): new_offset} if new_offset != offset else {})

    def output(self, task: Task, folder: TaskFolder) -> tuple[list[LogLine], dict[str, int]]:
        """New lines of all ranks, and {file: how far it is read}; of a task that has ended what is left, bounded."""
        ended = task.status is Status.EXITED
        lines: list[LogLine] = []
        tails: dict[str, int] = {}
        if self._is_left(ended=ended):
            return lines, tails
        for path in folder.outputs():
            offset, now_s = self._journal.tail(str(path)), time.time()
            until = 0
            if ended:
                left_out, offset, until = rest_of(path, offset, now_s)
                lines += left_out
            while True:
                more, new_offset = read_lines(path, offset, ended=ended, now_s=now_s)
                lines += more
                if new_offset == offset:
                    break
                tails[str(path)] = offset = new_offset
                if offset >= until:
                    break
        return lines, tails

    def loss(self, task: Task, lines: list[LogLine], now_s: float, *, due: bool) -> list[Event]:
        """The last loss that lines of the task tell, as a report, where that is due; until then it waits."""
        if (found := told_by_lines(task.order, lines)) is not None:
            self._loss_told[task.key] = found
        return passed_on(task, self._loss_told.pop(task.key, None), now_s) if due else []

    def _is_left(self, *, ended: bool) -> bool:
        """Whether it stays in the files for now: too many facts wait for the log already, or the disk has no room."""
        return not ended and (self._is_short() or self._journal.backlog > BACKLOG_LIMIT)

    def forget(self, key: str) -> None:
        """The task has ended."""
        self._loss_told.pop(key, None)
