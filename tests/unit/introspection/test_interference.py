"""The judge of guests: an owner's mini-batches beside them and alone."""

from __future__ import annotations

import pytest

from libs.contracts.agent import JobSuspended
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.introspection import InterferenceDetected, JobProfiled
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.contracts.quota import JobUpgraded
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, only
from services.introspection.service import SERVICE

WHY = Reason(code="Test", message="test")


class Pair(CoreCase):
    """An owner on n1:0 with three profiles alone, of `minibatches_s` each."""

    def __init__(self, *alone_s: float) -> None:
        super().__init__(SERVICE)
        self.place("owner", "owner", 0)
        for minibatch_s in alone_s or (0.1, 0.1, 0.1):
            self.profile(minibatch_s)

    def place(self, job_id: str, role: str, index: int) -> None:
        gang = [TaskPlacement(node_id="n1", gpu_indices=[index], first_rank=0)]
        self.give(JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=WHY, role=role))

    def profile(self, minibatch_s: float, job_id: str = "owner", window_s: float = 5.0) -> list[Event]:
        return self.give(
            JobProfiled(
                job_id=job_id,
                attempt=1,
                window_start_s=self.now_s,
                window_s=window_s,
                minibatches_total=100,
                rate_per_s=1 / minibatch_s,
                loss=None,
                memory_peak_bytes=0,
                memory_min_bytes=0,
            ),
            at=self.now_s + window_s,
        )


def test_each_profile_in_which_guests_slow_their_owner_down_is_told_and_counted():
    pair = Pair()
    pair.place("guest", "guest", 0)
    first = only(pair.profile(0.12), InterferenceDetected)
    assert (first.beside, first.minibatch_s, first.alone_s, first.in_a_row) == (["guest"], 0.12, 0.1, 1)
    assert first.reason.numbers["absolute_rule"] is True and first.reason.numbers["relative_rule"] is True
    assert only(pair.profile(0.12), InterferenceDetected).in_a_row == 2
    assert pair.profile(0.1) == []
    assert only(pair.profile(0.12), InterferenceDetected).in_a_row == 1


@pytest.mark.parametrize(
    ("alone_s", "beside_s", "absolute", "relative"),
    [
        (0.010, 0.011, False, True),
        (1.0, 1.02, True, False),
        (0.1, 0.102, None, None),
    ],
)
def test_either_rule_is_enough(alone_s, beside_s, absolute, relative):
    pair = Pair(alone_s, alone_s, alone_s)
    pair.place("guest", "guest", 0)
    said = pair.profile(beside_s)
    if absolute is None:
        assert said == []
    else:
        numbers = only(said, InterferenceDetected).reason.numbers
        assert (numbers["absolute_rule"], numbers["relative_rule"]) == (absolute, relative)


def test_an_owner_that_scatters_by_itself_is_not_slowed_down_by_as_much():
    pair = Pair(0.010, 0.013, 0.007, 0.011, 0.009)
    pair.place("guest", "guest", 0)
    assert pair.profile(0.0125) == []


def test_guests_of_other_gpus_and_guests_that_stand_still_do_not_count():
    pair = Pair()
    pair.place("elsewhere", "guest", 1)
    assert pair.profile(0.2) == []
    pair.place("guest", "guest", 0)
    pair.give(JobSuspended(job_id="guest", attempt=1, node_id="n1"))
    assert pair.profile(0.2) == []


def test_a_profile_that_has_begun_before_a_guest_came_is_of_neither_kind():
    pair = Pair()
    begun_s = pair.now_s
    pair.now_s += 3.0
    pair.place("guest", "guest", 0)
    pair.now_s = begun_s
    assert pair.profile(0.2) == []


def test_a_guest_that_is_upgraded_is_an_owner():
    pair = Pair()
    pair.give(JobSucceeded(job_id="owner", attempt=1))
    pair.place("guest", "guest", 0)
    pair.give(JobUpgraded(job_id="guest", attempt=1, tenant="default", gpus=1, reason=WHY))
    for _ in range(3):
        pair.profile(0.1, "guest")
    pair.place("other", "guest", 0)
    assert only(pair.profile(0.2, "guest"), InterferenceDetected).beside == ["other"]


def test_an_owner_that_was_never_alone_is_not_judged():
    case = Pair()
    case.give(JobSucceeded(job_id="owner", attempt=1))
    case.place("guest", "guest", 0)
    case.place("owner", "owner", 0)
    assert [case.profile(0.2) for _ in range(4)] == [[], [], [], []]
