"""How long mini-batches take, from a histogram."""

from torch_agent.harness.rhythm import BUCKETS, GROWTH, SHORTEST_S, Rhythm


def rhythm_of(*times_s: float) -> float:
    rhythm = Rhythm()
    for seconds in times_s:
        rhythm.took(seconds)
    return rhythm.p99_s()


def test_one_of_a_hundred_may_take_longer():
    assert rhythm_of() == 0.0
    assert 0.5 <= rhythm_of(*[0.5] * 99, 60.0) <= 0.5 * GROWTH
    assert 60.0 <= rhythm_of(*[0.5] * 98, 60.0, 60.0) <= 60.0 * GROWTH
    assert 60.0 <= rhythm_of(*[0.5] * 98, 60.0) <= 60.0 * GROWTH


def test_no_time_is_too_short_or_too_long_for_it():
    assert rhythm_of(0.0) == SHORTEST_S
    assert rhythm_of(1e9) == SHORTEST_S * GROWTH ** (BUCKETS - 1) > 3600
