"""When tasks stop, when an acknowledgement is too late, when a node is lost."""

from __future__ import annotations

import math

import pytest

from libs.node.lease import DEFAULTS, LeaseTerms, mistake_in


def test_a_node_is_lost_two_margins_after_its_tasks_have_stopped():
    terms = LeaseTerms(node_timeout_s=20.0, margin_s=4.0)
    assert terms.holds(15.9) and not terms.holds(16.0)
    assert terms.renews(19.9) and not terms.renews(20.0)
    assert terms.lost_s - terms.lease_s == 8.0


def test_the_defaults_are_without_a_mistake():
    assert mistake_in(DEFAULTS, 2.0) is None


@pytest.mark.parametrize(
    ("terms", "heartbeat_s", "said"),
    [
        ({"node_timeout_s": 3.0}, None, "a node time-out of 3 s with a lease margin of 4 s: expected a margin above 0"),
        ({"node_timeout_s": 4.0}, None, "a node time-out of 4 s with a lease margin of 4 s: expected a margin above 0"),
        ({"margin_s": 0.0}, None, "a node time-out of 20 s with a lease margin of 0 s: expected a margin above 0"),
        ({"margin_s": math.nan}, None, "with a lease margin of nan s: expected"),
        ({"node_timeout_s": math.inf}, None, "a node time-out of inf s with"),
        ({"grace_s": -1.0}, None, "a lease grace of -1 s: expected 0 or more"),
        (
            {},
            16.0,
            "a heartbeat every 16 s, a node time-out of 20 s with a lease margin of 4 s: expected a",
        ),
        ({}, 0.0, "a heartbeat every 0 s, "),
    ],
)
def test_a_mistake_is_said_with_its_values(terms: dict[str, float], heartbeat_s: float | None, said: str):
    assert said in (mistake_in(LeaseTerms(**terms), heartbeat_s) or "")
