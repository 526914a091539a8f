"""When silence means that a node is lost."""

import pytest

from services.introspection.core.liveness import Liveness, envelope

NODES = {"n1": 1, "n2": 1}


@pytest.fixture
def liveness() -> Liveness:
    return Liveness(timeout_s=20.0, now_s=0.0)


def lost(liveness: Liveness, now_s: float, nodes: dict[str, int] | None = None) -> list[tuple[str, int, float]]:
    found = liveness.lost(NODES if nodes is None else nodes, now_s)
    return [(event.node_id, event.incarnation, event.silent_s) for event in found]


def test_a_silent_node_is_lost_once(liveness: Liveness):
    assert lost(liveness, 1.0) == []
    liveness.heard("n1", 15.0)
    assert lost(liveness, 20.9) == []
    assert lost(liveness, 21.0) == [("n2", 1, 20.0)]
    assert lost(liveness, 25.0) == []
    assert lost(liveness, 35.0) == [("n1", 1, 20.0)]


def test_no_node_is_lost_right_after_the_start(liveness: Liveness):
    assert lost(liveness, 1000.0) == []
    assert lost(liveness, 1019.9) == []
    assert len(lost(liveness, 1020.0)) == 2


def test_after_an_outage_all_get_their_full_time_again(liveness: Liveness):
    lost(liveness, 0.0)
    liveness.not_listening(19.0)
    assert lost(liveness, 38.9) == []
    assert lost(liveness, 39.0) == [("n1", 1, 20.0), ("n2", 1, 20.0)]


def test_a_node_that_joins_again_starts_anew(liveness: Liveness):
    lost(liveness, 0.0)
    assert len(lost(liveness, 20.0)) == 2
    assert lost(liveness, 30.0, {"n1": 2}) == []
    assert lost(liveness, 49.0, {"n1": 2}) == []
    assert lost(liveness, 50.0, {"n1": 2}) == [("n1", 2, 20.0)]


def test_a_node_that_left_in_order_is_not_missed(liveness: Liveness):
    lost(liveness, 0.0)
    assert lost(liveness, 100.0, {}) == []


def test_heartbeats_of_a_node_that_has_not_joined_change_nothing(liveness: Liveness):
    liveness.heard("stranger", 1.0)
    assert lost(liveness, 5.0, {}) == []


def test_a_node_whose_lease_is_longer_is_lost_later(liveness: Liveness):
    """Its agent has other settings than this listener: its tasks go on for longer."""
    lost(liveness, 0.0)
    liveness.heard("n1", 0.0, lost_after_s=44.0)
    liveness.heard("n2", 0.0, lost_after_s=12.0)
    assert lost(liveness, 20.0) == [("n2", 1, 20.0)]
    assert lost(liveness, 43.9) == []
    assert lost(liveness, 44.0) == [("n1", 1, 44.0)]


def test_no_node_lives_for_as_long_as_it_likes(liveness: Liveness):
    lost(liveness, 0.0)
    liveness.heard("n1", 0.0, lost_after_s=1e9)
    assert lost(liveness, 3600.0, {"n1": 1}) == [("n1", 1, 3600.0)]


def test_one_id_per_incarnation(liveness: Liveness):
    lost(liveness, 0.0)
    first, second = (envelope(event, 20.0) for event in liveness.lost(NODES, 20.0))
    assert first.id != second.id
    assert (first.time_s, first.source) == (20.0, "introspection")


def test_half_a_time_out_of_silence_raises_doubts(liveness: Liveness):
    assert not liveness.doubts(NODES, 0.0)
    assert not liveness.doubts(NODES, 9.9) and liveness.doubts(NODES, 10.0)
    liveness.heard("n1", 10.0)
    assert liveness.doubts(NODES, 10.0)
    assert lost(liveness, 20.0) == [("n2", 1, 20.0)]
    liveness.heard("n1", 20.0)
    assert not liveness.doubts(NODES, 20.0), "of a node that is lost there is none"
