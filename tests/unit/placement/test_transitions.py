"""The table of what may be said of a job: whole, drawn in the README; what is in no row is told."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

from libs.bus.memory import MemoryBus
from libs.bus.port import TopicLayout
from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Event
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.placement import StopTask
from libs.contracts.quota import QuotaGranted
from libs.kernel.replica import ImpossibleEvent
from libs.testing.core_case import arrival, node
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase, replayed
from services.placement.core.lifecycle.transitions import TABLE, diagram
from services.placement.service import SERVICE
from tests.unit.placement.placement_case import SAID, PlacementCase

README = Path(__file__).parents[3] / "services" / "placement" / "README.md"


def running() -> PlacementCase:
    """Job `a` runs its first attempt."""
    case = PlacementCase(n1=2)
    case.submit("a")
    case.start("a")
    return case


def test_no_event_is_in_two_rows():
    cells = Counter((cls, at, of) for row in TABLE for cls in row.events for at in row.at for of in row.of)
    assert [cell for cell, rows in cells.items() if rows > 1] == []


def test_the_picture_in_the_readme_is_that_of_the_table():
    text = README.read_text()
    begins, ends = "<!-- transitions -->\n", "<!-- /transitions -->"
    assert text.partition(begins)[2].partition(ends)[0] == f"```mermaid\n{diagram()}\n```\n"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (JobAdmitted(job_id="a", reason=SAID), "JobAdmitted cannot be said of job a, which is running, attempt 1"),
        (JobRejected(job_id="a", reason=SAID), "expected: arrived"),
        (arrival("a"), "JobArrived cannot be said of job a"),
        (QuotaGranted(job_id="a", attempt=2, tenant="default", gpus=1, reason=SAID), "(attempt 2, newer)"),
        (RetryScheduled(job_id="a", attempt=2, not_before_s=0.0, reason=SAID), "expected: failed (newer attempt)"),
        (JobStarted(job_id="a", attempt=7, node_id="n1", pid=2), "(attempt 7, newer)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_what_cannot_be_raises_and_changes_nothing(event: Event, words: str):
    case = running()
    before = case.replica.state_bytes
    with pytest.raises(ImpossibleEvent) as raised:
        case.give(event)
    assert words in str(raised.value)
    assert case.replica.state_bytes == before


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_is_late_is_no_fault(has_ended: bool):
    case = running()
    if has_ended:
        case.exit("a")
    late = JobStarted(job_id="a", attempt=0, node_id="n1", pid=1)
    assert [type(output) for output in case.give(late)] == [StopTask], "a task of an attempt that is over is stopped"


async def test_a_live_service_counts_it_and_goes_on(caplog: pytest.LogCaptureFixture):
    memory = MemoryBus("lab")
    await memory.create_topics(TopicLayout())
    live = ShellCase(SERVICE, FaultyBus(memory, Faults()))
    admitted = JobAdmitted(job_id="a", reason=SAID)
    granted = QuotaGranted(job_id="a", attempt=1, tenant="default", gpus=1, reason=SAID)
    ended = JobExited(job_id="a", attempt=1, node_id="n1", exit_code=0, signal=None, outcome="exited")
    with caplog.at_level(logging.ERROR):
        await live.give(node("n1", 2), arrival("a"), admitted, granted, admitted, ended)
        await live.run_to_end()
    stats = live.shell.stats
    assert stats.impossible == 1
    assert "JobAdmitted cannot be said of job a, which is running" in stats.last_impossible
    assert stats.health()[1]["impossible_events"] == 1
    assert "impossible" in caplog.text
    with pytest.raises(ImpossibleEvent):
        await replayed(SERVICE, live.bus)
