"""The judge of packs: together or by turns."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.introspection import JobProfiled, PackFailed, PackSucceeded
from libs.contracts.placement import JobPacked, JobSucceeded, JobUnpacked
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, only
from services.introspection.service import SERVICE

WHY = Reason(code="Test", message="test")


class Judge(CoreCase):
    """Two jobs that make 10 and 4 mini-batches a second alone, packed at 100 s, on trial until 160 s."""

    def __init__(self) -> None:
        super().__init__(SERVICE)
        self.profile("a", 10.0, at=50.0)
        self.profile("b", 4.0, at=60.0)
        self.give(
            JobPacked(job_id="a", attempt=1, with_job="b", with_attempt=1, trial_ends_s=160.0, reason=WHY),
            at=100.0,
        )

    def profile(self, job_id: str, rate: float, *, at: float, window_s: float = 5.0) -> list[Event]:
        """Introspection's telemetry shell says how fast the job is."""
        return self.give(
            JobProfiled(
                job_id=job_id,
                attempt=1,
                window_start_s=at - window_s,
                window_s=window_s,
                minibatches_total=100,
                rate_per_s=rate,
                loss=None,
                memory_peak_bytes=0,
                memory_min_bytes=0,
            ),
            at=at,
        )


def test_a_pack_that_does_more_than_by_turns_succeeds_once():
    judge = Judge()
    assert judge.profile("a", 8.0, at=110.0) == []
    verdict = only(judge.profile("b", 2.0, at=111.0), PackSucceeded)
    assert (verdict.job_id, verdict.with_job, verdict.packed_ratio) == ("a", "b", 1.3)
    assert verdict.reason.numbers == {"part.a": 0.8, "part.b": 0.5}
    judge.profile("a", 8.0, at=120.0)
    assert judge.profile("b", 2.0, at=121.0) == [] and judge.replica.next_wakeup is None


def test_a_pack_that_does_less_fails_with_numbers():
    judge = Judge()
    judge.profile("a", 4.0, at=110.0)
    verdict = only(judge.profile("b", 2.0, at=111.0), PackFailed)
    assert verdict.packed_ratio == 0.9 and verdict.reason.code == "SlowerThanByTurns"
    judge.profile("a", 4.0, at=115.0)
    assert judge.profile("b", 2.0, at=116.0) == []  # said once; placement is about to part them


def test_what_was_measured_before_the_pack_does_not_count():
    judge = Judge()
    judge.profile("a", 1.0, at=104.0)
    assert judge.profile("b", 0.1, at=104.5) == []


def test_a_pack_of_which_nothing_can_be_measured_fails_at_the_end_of_its_trial():
    judge = Judge()
    judge.profile("a", 9.0, at=110.0)
    verdict = only(judge.wake(), PackFailed)
    assert verdict.packed_ratio is None and "b" in verdict.reason.message


def test_a_pack_that_ceases_to_pay_fails_later():
    judge = Judge()
    judge.profile("a", 8.0, at=110.0)
    judge.profile("b", 3.0, at=111.0)
    judge.profile("a", 5.0, at=200.0)
    assert only(judge.profile("b", 1.8, at=201.0), PackFailed).packed_ratio == 0.95


def test_nothing_is_judged_when_they_are_parted_or_one_has_left():
    for over in (JobUnpacked(job_id="a", with_job="b", reason=WHY), JobSucceeded(job_id="b", attempt=1)):
        judge = Judge()
        judge.give(over)
        judge.profile("a", 1.0, at=110.0)
        assert judge.profile("b", 0.1, at=111.0) == [] and judge.replica.next_wakeup is None
