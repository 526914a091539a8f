"""Telemetry in windows: the pure fold."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.agent import MinibatchProfiled
from libs.contracts.introspection import WindowClosed
from services.introspection.core.windows import JobWindows, Rules, close_all, envelope, fold

RULES = Rules(window_s=2.0, grace_s=1.0)


def record(
    total: int, done: int = 5, rank: int = 0, attempt: int = 1, interval_s: float = 1.0, **fields
) -> MinibatchProfiled:
    known = {"loss": 0.5, "memory_peak_bytes": 100, "memory_min_bytes": 10, "world_size": 2}
    return MinibatchProfiled(
        job_id="j",
        attempt=attempt,
        node_id="n1",
        rank=rank,
        minibatches=done,
        minibatches_total=total,
        interval_s=interval_s,
        minibatch_mean_s=interval_s / max(1, done),
        **{**known, **fields},
    )


def run(*records: tuple[float, MinibatchProfiled]) -> tuple[list[WindowClosed], JobWindows]:
    """(windows closed on the way, the job's windows)"""
    job: JobWindows | None = None
    closed: list[WindowClosed] = []
    for time_s, event in records:
        job, more = fold(job, event, time_s, RULES)
        closed += more
    assert job is not None
    return closed, job


def all_windows(*records: tuple[float, MinibatchProfiled]) -> list[WindowClosed]:
    closed, job = run(*records)
    return closed + close_all(job, RULES)


def test_a_window_closes_when_event_time_has_passed_its_end_and_grace():
    closed, _ = run((10.5, record(5)), (11.5, record(10)), (12.5, record(15)))
    assert closed == []
    closed, _ = run((10.5, record(5)), (11.5, record(10)), (12.5, record(15)), (13.0, record(20)))
    [window] = closed
    assert (window.window_start_s, window.window_s) == (10.0, 2.0)
    assert (window.minibatches, window.minibatches_total, window.rate_per_s, window.ranks) == (10, 10, 5.0, 1)


def test_the_slowest_rank_counts():
    [window] = all_windows((10.5, record(8, 8, rank=0)), (10.6, record(3, 3, rank=1)), (10.7, record(5, 5, rank=2)))
    assert (window.ranks, window.minibatches, window.minibatches_total, window.rate_per_s) == (3, 3, 3, 3.0)


def test_memory_is_the_extreme_of_all_ranks_and_the_loss_that_of_the_first_that_has_one():
    [window] = all_windows(
        (10.5, record(1, 1, rank=1, loss=0.7, memory_peak_bytes=300, memory_min_bytes=30)),
        (10.6, record(1, 1, rank=0, loss=None, memory_peak_bytes=200, memory_min_bytes=20)),
        (11.2, record(2, 1, rank=1, loss=0.6, memory_peak_bytes=250, memory_min_bytes=40)),
    )
    assert (window.loss, window.memory_peak_bytes, window.memory_min_bytes) == (0.6, 300, 20)


def test_a_slow_job_is_measured_over_the_time_that_its_mini_batch_took():
    [window] = all_windows((20.0, record(1, 1, interval_s=8.0)))
    assert window.rate_per_s == 1 / 8


def test_a_repeated_record_changes_nothing():
    records = [(10.5, record(5)), (11.5, record(10)), (12.5, record(15))]
    assert all_windows(*records) == all_windows(*(r for r in records for _ in range(3)))


def test_a_late_record_counts_in_the_window_that_is_open():
    first, second = all_windows((10.5, record(5)), (13.5, record(10)), (11.9, record(12, 2)))
    assert (first.minibatches_total, second.minibatches_total) == (5, 12)
    assert second.minibatches == 7


def test_a_lost_record_is_seen_in_the_progress_and_not_in_the_rate():
    [window] = all_windows((10.1, record(5)), (11.1, record(25, 5)))
    assert (window.minibatches, window.minibatches_total, window.rate_per_s) == (25, 25, 5.0)


def test_a_new_attempt_closes_the_windows_of_the_old_one():
    closed, job = run((10.5, record(50)), (10.9, record(3, 3, attempt=2)))
    assert [(window.attempt, window.minibatches_total) for window in closed] == [(1, 50)]
    assert job.attempt == 2


def test_records_of_an_older_attempt_change_nothing():
    closed, job = run((10.5, record(3, 3, attempt=2)), (10.6, record(50)))
    assert closed == []
    [window] = close_all(job, RULES)
    assert (window.attempt, window.minibatches_total) == (2, 3)


def test_a_window_has_one_id_and_the_time_of_its_end():
    [window] = all_windows((10.5, record(5)))
    assert envelope(window) == envelope(window)
    assert envelope(window).time_s == 12.0


def test_ranks_may_come_in_any_order():
    records = [(10.5, record(8, 8, rank=0)), (10.6, record(3, 3, rank=1)), (11.5, record(6, 3, rank=1))]
    assert (
        len(
            {
                str(all_windows(*order))
                for order in permutations(records)
                if order.index(records[1]) < order.index(records[2])
            }
        )
        == 1
    )


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.floats(0.1, 3.0)), min_size=1, max_size=40),
    st.lists(st.integers(0, 39), max_size=20),
)
def test_no_mini_batch_is_lost_or_counted_twice(steps: list[tuple[int, int, float]], repeated: list[int]):
    """One rank's running number ends up in the windows, whatever is repeated on the way."""
    time_s, totals, records = 1000.0, dict.fromkeys(range(4), 0), []
    for rank, done, gap_s in steps:
        time_s += gap_s
        totals[rank] += done
        records.append((time_s, record(totals[rank], done, rank=rank, interval_s=gap_s)))
    ranks = {rank for rank, _, _ in steps}
    for index in repeated:
        records.insert(min(index, len(records)), records[min(index, len(records) - 1)])
    for rank in ranks:
        own = [(t, r) for t, r in records if r.rank == rank]
        windows = all_windows(*own)
        assert sum(window.minibatches for window in windows) == totals[rank]
        assert windows[-1].minibatches_total == totals[rank]
        assert [w.window_start_s for w in windows] == sorted({w.window_start_s for w in windows})


@pytest.mark.parametrize("window_s", [0.5, 2.0, 7.3])
def test_windows_tile_time(window_s: float):
    rules = Rules(window_s=window_s, grace_s=0.0)
    job, starts = None, []
    for step in range(1, 200):
        job, closed = fold(job, record(step, 1), 1_700_000_000.0 + step * 0.21, rules)
        starts += [window.window_start_s for window in closed]
    gaps = {round(b - a, 5) for a, b in pairwise(starts)}
    assert gaps == {window_s}


def test_a_loss_that_is_no_number_is_named_and_outweighs_those_of_other_ranks():
    nan = record(10, loss=None, loss_nonfinite="nan")
    [window] = all_windows((10.5, record(5)), (11.5, nan))
    assert (window.loss, window.loss_nonfinite) == (None, "nan")
    [window] = all_windows((10.5, nan), (11.5, record(15)))
    assert (window.loss, window.loss_nonfinite) == (0.5, "")
    [window] = all_windows((10.5, record(5)), (10.6, record(5, rank=1, loss=None, loss_nonfinite="inf")))
    assert (window.loss, window.loss_nonfinite) == (None, "inf")
