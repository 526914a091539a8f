"""Bugs that are put in on purpose: the histories of the whole system find each of them within 500.

A check that has never failed shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from libs.contracts.envelope import Envelope
from libs.kernel.replica import Replica
from libs.node.admission import Admission
from libs.node.task import Task
from libs.testing.builders import Scenario
from libs.testing.thorough import THOROUGH
from tests.properties.campaign import BATCH, histories
from tests.properties.test_whole_system import live_through

MOST = 500
"""Histories within which each is found."""


def found(check: Callable[[Scenario], object] = live_through) -> str:
    """How the first of so many histories fails that does; empty: none."""
    for number in range(MOST // BATCH):
        try:
            histories(BATCH, number, check)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def without_fence(scenario: Scenario) -> None:
    """Tasks go on when the lease of their node is over."""
    assert scenario.lease is not None
    live_through(scenario.options(lease=replace(scenario.lease, fenced=False)))


def test_no_fence():
    assert "s at the same time: attempt" in found(without_fence)


def test_timers_by_the_clocks_of_sources(monkeypatch: pytest.MonkeyPatch):
    def present_at(replica: Replica[Any], envelope: Envelope) -> float:
        return max(replica.now_s, envelope.time_s if envelope.said_s is None else envelope.said_s)

    monkeypatch.setattr(Replica, "present_at", present_at)
    assert "for the sake of a clock" in found()


@pytest.mark.thorough
@pytest.mark.skipif(not THOROUGH, reason="looks through hundreds of histories: minutes")
def test_admission_by_the_gpu_that_a_task_has_left(monkeypatch: pytest.MonkeyPatch):
    def here(admission: Admission, index: int) -> list[Task]:
        return [task for task in admission._here.get(index, []) if index in task.gpu_indices]

    monkeypatch.setattr(Admission, "here", here)
    assert "have not ended" in found()
