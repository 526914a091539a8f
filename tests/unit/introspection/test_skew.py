"""Which change of a node's clock is a fact."""

from libs.contracts.introspection import ClockSkewed
from services.introspection.core.skew import Skews


def seen(*skews_s: float, reported: float = 0.0) -> list[float]:
    """What is said of the clock by these heartbeats."""
    skews, said = Skews(), []
    for skew_s in skews_s:
        found = skews.take("n1", 1, skew_s, {"n1": reported})
        if found is not None:
            assert (found.node_id, found.incarnation) == ("n1", 1)
            said.append(found.skew_s)
    return said


def test_a_clock_that_is_right_is_no_fact():
    assert seen(-0.01, 0.02, -1.5, -0.3, 1.9) == []


def test_a_clock_that_is_off_is_one_fact():
    assert seen(3600.0, 3599.99, 3599.98, 3600.0, 3599.9) == [3600.0]
    assert seen(*[-3600.01] * 6) == [-3600.01]


def test_a_heartbeat_that_was_held_up_is_no_clock_that_is_late():
    assert seen(-0.1, -7.0, -5.0, -0.2, -9.0) == []


def test_a_jump_and_a_repair_are_facts():
    assert seen(0.0, 0.0, 0.0, 86_400.0, 86_400.0, 86_400.0, 0.0, 0.0, 0.0) == [86_400.0, 0.0]


def test_what_the_log_has_is_not_said_again():
    assert seen(3600.0, 3600.0, 3600.0, reported=3600.2) == []


def test_an_agents_next_start_is_judged_anew():
    skews = Skews()
    for _ in range(3):
        skews.take("n1", 1, 50.0, {})
    found = [skews.take("n1", 2, 50.0, {}) for _ in range(3)]
    assert found[2] == ClockSkewed(node_id="n1", incarnation=2, skew_s=50.0)
    skews.forget_all_but({"n1": 3})
    assert skews.take("n1", 3, 50.0, {}) is None
