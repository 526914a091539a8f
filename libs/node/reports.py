"""When a script's reports are passed on: the last one of each second, and the last one of all.

They stay on the log for ever, so the pauses grow with the time that the attempt has been training: after a minute it
has passed on 60 reports at most, after a day some 800, after a month some 1,100.
"""

from __future__ import annotations

from libs.contracts.agent import MetricsReported
from libs.contracts.base import Event
from libs.node.seen import Report
from libs.node.task import Status, Task

REPORT_EVERY_S = 1.0
REPORT_EVERY_RATIO = 0.01
"""Of the attempt's time so far, where that is longer."""


def report_due(task: Task, *, ended: bool, now_s: float) -> bool:
    """Whether a new report may be passed on now; until then it waits, and a later one may take its place.

    A task that is to take over has nothing to say yet: its script repeats what it has reported in the attempt before.
    """
    if task.status is Status.ACCEPTED:
        return ended
    if task.status not in (Status.RUNNING, Status.SUSPENDED):
        return False
    at_s = task.reported_at_s
    # A clock that has been set back must not silence the script.
    return ended or at_s is None or not at_s <= now_s < next_report_s(at_s, task.started_s)


def next_report_s(reported_at_s: float, started_s: float) -> float:
    """From when on the next report may be passed on: when the pause is `REPORT_EVERY_RATIO` of the time until then."""
    grown_s = (reported_at_s - REPORT_EVERY_RATIO * started_s) / (1.0 - REPORT_EVERY_RATIO)
    return max(reported_at_s + REPORT_EVERY_S, grown_s)


def passed_on(task: Task, report: Report | None, now_s: float) -> list[Event]:
    """The fact that carries a report, if there is one, and a note on the task of when it was passed on.

    A step below the last one comes from another process of the script that is behind, and is dropped. The same step
    again may have other metrics.
    """
    if report is None or (task.reported_step is not None and report.step < task.reported_step):
        return []
    task.reported_at_s, task.reported_step = now_s, report.step
    order = task.order
    return [
        MetricsReported(
            job_id=order.job_id,
            attempt=order.attempt,
            node_id=order.node_id,
            step=report.step,
            values=report.values,
        )
    ]
