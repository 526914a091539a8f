"""Bugs that are put in on purpose: the histories of the whole system find each of them.

A check that has never failed shows nothing: these say how many histories it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from libs.testing.builders import Scenario
from tests.properties.campaign import BATCH, histories
from tests.properties.test_whole_system import live_through

MOST = 500
"""Histories within which each is found."""


def without_fence(scenario: Scenario) -> None:
    """Tasks go on when the lease of their node is over."""
    assert scenario.lease is not None
    live_through(scenario.options(lease=replace(scenario.lease, fenced=False)))


@pytest.mark.parametrize(
    ("live", "shown_by"),
    [(without_fence, "s at the same time: attempt")],
    ids=["no fence"],
)
def test_it_is_found_within_500_histories(live: Callable[[Scenario], None], shown_by: str):
    with pytest.raises(AssertionError, match=shown_by):
        for number in range(MOST // BATCH):
            histories(BATCH, number, live)
