"""From closed windows to JobProfiled."""

import pytest

from libs.contracts.introspection import JobProfiled, WindowClosed
from services.introspection.core.profiles import Profiles, envelope
from services.introspection.core.watching import Running
from services.introspection.core.windows import envelope as window_envelope


def window(
    start_s: float, total: int, attempt: int = 1, rate: float = 5.0, loss: float | None = 0.5, **fields
) -> WindowClosed:
    known = {"memory_peak_bytes": 100, "memory_min_bytes": 10, "ranks": 1, "minibatches": 10}
    return WindowClosed(
        job_id="j",
        attempt=attempt,
        window_start_s=start_s,
        window_s=2.0,
        minibatches_total=total,
        rate_per_s=rate,
        loss=loss,
        **{**known, **fields},
    )


@pytest.fixture
def profiles() -> Profiles:
    return Profiles(interval_s=5.0)


def test_the_first_window_is_reported_at_once(profiles: Profiles):
    profile = profiles.take(window(10.0, 10), Running(attempt=1))
    assert profile == JobProfiled(
        job_id="j",
        attempt=1,
        window_start_s=10.0,
        window_s=2.0,
        minibatches_total=10,
        rate_per_s=5.0,
        loss=0.5,
        memory_peak_bytes=100,
        memory_min_bytes=10,
    )


def test_later_windows_are_condensed_until_the_interval_has_passed(profiles: Profiles):
    running = Running(attempt=1)
    profiles.take(window(10.0, 10), running)
    assert profiles.take(window(12.0, 20, rate=4.0, memory_peak_bytes=300), running) is None
    assert profiles.take(window(14.0, 30, rate=5.0, memory_min_bytes=1, loss=None), running) is None
    assert profiles.gathers("j")
    profile = profiles.take(window(16.0, 42, rate=6.0, loss=0.25), running)
    assert profile is not None
    assert (profile.window_start_s, profile.window_s) == (12.0, 6.0)
    assert (profile.minibatches_total, profile.rate_per_s, profile.loss) == (42, 5.0, 0.25)
    assert (profile.memory_peak_bytes, profile.memory_min_bytes) == (300, 1)
    assert not profiles.gathers("j")


def test_a_window_that_comes_again_changes_nothing(profiles: Profiles):
    running = Running(attempt=1)
    profiles.take(window(10.0, 10), running)
    assert profiles.take(window(10.0, 10), running) is None
    profiles.take(window(12.0, 20), running)
    profiles.take(window(14.0, 30), running)
    profiles.take(window(12.0, 20), running)
    profile = profiles.take(window(16.0, 40, rate=8.0), running)
    assert profile is not None
    assert profile.rate_per_s == 6.0


def test_after_a_restart_control_knows_what_was_reported(profiles: Profiles):
    running = Running(attempt=1, profiled_until_s=12.0)
    assert profiles.take(window(10.0, 10), running) is None
    assert profiles.take(window(12.0, 20), running) is None
    assert profiles.take(window(14.0, 30), running) is None
    assert profiles.take(window(16.0, 40), running) is not None


def test_a_new_attempt_is_reported_at_once(profiles: Profiles):
    profiles.take(window(10.0, 10), Running(attempt=1))
    profiles.take(window(12.0, 20), Running(attempt=1))
    profile = profiles.take(window(12.0, 4, attempt=2), Running(attempt=2))
    assert profile is not None
    assert (profile.attempt, profile.window_start_s, profile.minibatches_total) == (2, 12.0, 4)


@pytest.mark.parametrize("running", [None, Running(attempt=2)])
def test_windows_of_what_does_not_run_are_dropped(profiles: Profiles, running: Running | None):
    assert profiles.take(window(10.0, 10), running) is None
    assert not profiles.gathers("j")


def test_jobs_that_ended_are_forgotten(profiles: Profiles):
    profiles.take(window(10.0, 10), Running(attempt=1))
    profiles.take(window(12.0, 20), Running(attempt=1))
    assert profiles.forget_all_but({}) == ["j"]
    assert profiles.forget_all_but({}) == []
    assert not profiles.gathers("j")


def test_the_id_follows_from_what_was_measured(profiles: Profiles):
    cause = window_envelope(window(10.0, 10))
    profile = profiles.take(window(10.0, 10), Running(attempt=1))
    assert profile is not None
    first, again = envelope(profile, cause), envelope(profile, cause)
    assert first == again
    assert (first.causation_id, first.time_s, first.source) == (cause.id, 12.0, "introspection")


def test_the_newest_known_loss_counts_and_may_be_no_number(profiles: Profiles):
    running = Running(attempt=1)
    first = profiles.take(window(10.0, 10, loss=None, loss_nonfinite="nan"), running)
    assert first is not None and (first.loss, first.loss_nonfinite) == (None, "nan")
    profiles.take(window(12.0, 20, loss=None, loss_nonfinite="inf"), running)
    profiles.take(window(14.0, 30, loss=0.25), running)
    later = profiles.take(window(16.0, 40, loss=None), running)
    assert later is not None and (later.loss, later.loss_nonfinite) == (0.25, "")
