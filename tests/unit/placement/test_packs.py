"""Packs: the two jobs that use their GPUs least share them, on trial, where more want to run than can."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.introspection import JobProfiled, PackFailed, PackSucceeded
from libs.contracts.placement import JobPacked, JobUnpacked, ResumeTask, TimeSliceStarted
from libs.contracts.reasons import Reason
from libs.testing.core_case import only
from tests.unit.placement.test_slices import SlicesCase

VERDICT = Reason(code="SlowerThanByTurns", message="test")


class PacksCase(SlicesCase):
    """Jobs `a`, `b`, `c` on one GPU (16 GiB), of which the first two use 20 % and 30 %."""

    def __init__(self, gpus: int = 1) -> None:
        super().__init__(n1=gpus)
        self.give(SettingChanged(service="placement", name="pack_utilisation", value=1.0, requested_by="op"))
        for name, ratio in (("c", 0.9), ("a", 0.2), ("b", 0.3)):
            self.submit(name, at=self.now_s)
            while name not in self.running:
                self.wake()
            self.profile(name, ratio)

    def profile(self, job_id: str, ratio: float | None, memory_bytes: int = 1 << 30) -> list[Event]:
        """What introspection measures of a job that runs."""
        return self.give(
            JobProfiled(
                job_id=job_id,
                attempt=1,
                window_start_s=self.now_s,
                window_s=5.0,
                minibatches_total=10,
                rate_per_s=10.0,
                loss=None,
                memory_peak_bytes=memory_bytes,
                memory_min_bytes=0,
                gpu_utilisation_ratio=ratio,
            )
        )

    def fail(self) -> list[Event]:
        """The verdict on the last pack."""
        pack = self.decided(JobPacked)[-1]
        return self.give(
            PackFailed(job_id=pack.job_id, with_job=pack.with_job, packed_ratio=0.8, reason=VERDICT), at=self.now_s + 5
        )


def test_the_two_that_use_least_are_packed_when_a_slice_is_over():
    case = PacksCase()
    said = case.wake()
    packed = only(said, JobPacked)
    assert {packed.job_id, packed.with_job} == {"a", "b"}
    assert packed.reason.numbers == {"utilisation.a": 0.2, "utilisation.b": 0.3}
    assert packed.trial_ends_s == case.now_s + 60.0
    assert case.running == ["a", "b"]
    partners = {order.job_id: order.packed_with for order in said if isinstance(order, ResumeTask)}
    assert partners == {"a": ["b"]}  # b runs already


def test_a_pack_on_trial_is_not_suspended_and_then_takes_turns_like_one_job():
    case = PacksCase()
    case.wake()
    case.wake()
    assert case.running == ["a", "b"]
    case.give(PackSucceeded(job_id="a", with_job="b", packed_ratio=1.4, reason=VERDICT))
    turns = []
    for _ in range(8):
        case.wake()
        turns.append(" ".join(case.running))
    assert set(turns[4:]) == {"a b", "c"}


def test_a_failed_pack_is_undone_at_once_and_remembered():
    case = PacksCase()
    case.wake()
    said = case.fail()
    assert only(said, JobUnpacked).reason == VERDICT
    assert len(only(said, TimeSliceStarted).suspended) == 1 and len(case.running) == 1
    for _ in range(6):
        case.wake()
        assert len(case.running) == 1
    assert len(case.decided(JobPacked)) == 1  # b and c use too much, a and b are known not to go together


def test_no_job_is_packed_while_there_are_enough_gpus():
    case = PacksCase(gpus=3)
    assert case.replica.next_wakeup is None and case.decided(JobPacked) == []


def test_memory_must_suffice():
    case = PacksCase()
    case.wake()
    case.fail()
    case.exit("c")
    case.submit("d")
    case.wake()
    case.profile("d", 0.1, memory_bytes=16 << 30)
    for _ in range(4):
        case.wake()
    assert len(case.decided(JobPacked)) == 1


def test_packing_can_be_switched_off():
    case = PacksCase()
    case.give(SettingChanged(service="placement", name="pack_utilisation", value=0.0, requested_by="op"))
    case.wake()
    assert case.decided(JobPacked) == []


def test_when_one_leaves_the_other_goes_on_alone():
    case = PacksCase()
    case.wake()
    case.exit("a")
    assert case.running == ["b"] and case.replica.state.book.companions == {}


def test_another_policy_parts_them():
    case = PacksCase()
    case.wake()
    said = case.give(PolicyChanged(policy="backfill", requested_by="op"))
    assert only(said, JobUnpacked).reason.code == "PolicyChanged"
    assert len(case.running) == 1
    case.exit(case.running[0])
    assert len(case.running) == 1


def test_what_is_known_of_a_pair_is_forgotten_with_its_jobs():
    case = PacksCase()
    case.wake()
    case.fail()
    assert list(case.replica.state.book.incompatible) == ["a + b"]
    case.exit("c")
    assert list(case.replica.state.book.incompatible) == ["a + b"]
    case.exit("a")
    assert list(case.replica.state.book.incompatible) == []


def test_a_late_verdict_on_another_pack_does_not_end_the_trial():
    case = PacksCase()
    case.wake()
    case.give(PackSucceeded(job_id="a", with_job="c", packed_ratio=1.4, reason=VERDICT))
    assert case.replica.state.book.on_trial("a") and case.replica.state.book.on_trial("b")
    case.give(PackSucceeded(job_id="a", with_job="b", packed_ratio=1.4, reason=VERDICT))
    assert not case.replica.state.book.on_trial("a") and not case.replica.state.book.on_trial("b")
