"""Rounds: shares are heard and realised, leases are renewed, idle GPUs are given away at once."""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

import pytest

from libs.contracts.gateway import (
    ColocatedRate,
    IsolatedRate,
    JobPauseRequested,
    PolicyChanged,
    ThroughputsProvided,
)
from libs.contracts.placement import (
    AllocationComputed,
    AllocationRequested,
    JobPlaced,
    JobPreempted,
    JobQueued,
    LaunchTask,
    RoundStarted,
    Share,
    ThroughputEstimated,
)
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from services.placement.core.mechanisms.rounds.claims import LAG_PART, claims
from services.placement.core.mechanisms.rounds.places import Present
from services.placement.core.mechanisms.rounds.selection import NOTHING, Assignment, Backfill, Claim, fill, select
from services.placement.core.sharing.pairs import together
from tests.unit.placement.placement_case import PlacementCase
from tests.unit.placement.rounds_case import ROUND_S, RoundsCase


def test_the_first_job_gets_its_share_at_once():
    case = RoundsCase(n1=1)
    said = case.submit("a")
    asked, computed = only(said, AllocationRequested), only(said, AllocationComputed)
    assert asked.question == computed.question and asked.reason.numbers["jobs"] == 1
    assert [share.time for share in computed.shares] == [{"v100": 1.0}]
    assert only(said, RoundStarted).leases[0].job_id == "a"
    assert only(said, JobPlaced).reason.code == "Lease" and only(said, LaunchTask)


def test_an_answer_counts_only_when_it_is_read_from_the_log():
    case = RoundsCase(n1=1)
    said = PlacementCase.submit(case, "a")
    answer = only(said, AllocationComputed)
    assert not any(isinstance(event, JobPlaced) for event in said)
    assert only(case.give(answer), RoundStarted) is not None


def test_an_answer_to_another_question_is_nothing():
    case = RoundsCase(n1=1)
    answer = only(PlacementCase.submit(case, "a"), AllocationComputed)
    fresh = case.give(PolicyChanged(policy="min_makespan", requested_by="op"))
    assert case.give(answer) == []
    assert only(case.heard(fresh), JobPlaced)


def test_a_problem_with_the_checksum_of_the_last_one_is_put_anew():
    first, second = "j-xs4ibwwl", "j-adwoqc8j"
    assert crc32(first.encode()) == crc32(second.encode())
    case = RoundsCase(n1=1)
    asked = only(case.submit(first), AllocationRequested)
    case.heard(case.exit(first))
    said = case.submit(second) + case.wake()
    assert only(said, AllocationRequested).question != asked.question


def turns(rounds: int, **first) -> list[tuple[str, int]]:
    """(Job, rounds that it had) of the turns that two jobs take on one GPU, but for the last one."""
    case = RoundsCase(n1=1)
    case.submit("a", **first)
    assert only(case.submit("b"), JobQueued).reason.code == PendingReason.FAIR_SHARE
    began = [("a", 0)]
    for number in range(1, rounds + 1):
        began += [(job_id, number) for job_id in case.next_round()]
    return [(job_id, end - begin) for (job_id, begin), (_, end) in pairwise(began)]


def test_two_jobs_take_turns_on_one_gpu():
    assert turns(10) == [("a", 3), ("b", 3), ("a", 3)]


def test_the_longer_jobs_have_run_the_longer_their_turns_are():
    lengths = [length for _, length in turns(400)]
    assert lengths == sorted(lengths) and lengths[-1] == 20
    assert all(length <= 2 + 2 * LAG_PART * 400 / 2 for length in lengths)


def test_a_job_with_a_deadline_does_not_wait_longer_for_being_old():
    assert max(length for _, length in turns(400, deadline_s=1e6)) == 4


def test_a_job_that_needs_no_change_is_not_interrupted():
    case = RoundsCase(n1=2)
    case.submit("a")
    case.submit("b")
    for _ in range(3):
        said = case.wake()
        assert not any(isinstance(event, JobPreempted) for event in said)
        assert only(said, RoundStarted).renewed == ["a", "b"]


def test_an_idle_gpu_does_not_wait_for_the_end_of_the_round():
    case = RoundsCase(n1=1)
    case.submit("a")
    case.submit("b")
    said = case.heard(case.exit("a", at=case.now_s + 7))
    placed = only(said, JobPlaced)
    assert placed.job_id == "b" and placed.reason.code == "IdleGpus"


def test_the_faster_type_goes_to_the_job_that_it_helps():
    case = RoundsCase(n1=1)
    case.give(node("k1", 1, gpu_type="k80"))
    case.submit("steady", throughputs={"v100": 1.0, "k80": 1.0})
    case.submit("eager", throughputs={"v100": 5.0, "k80": 1.0})
    said = case.wake()
    said += case.stop(said)
    places = {event.job_id: event.gang[0].node_id for event in case.decided(JobPlaced)}
    assert places == {"steady": "k1", "eager": "n1"}


def test_jobs_that_pack_well_share_their_gpus():
    case = RoundsCase(space_sharing=True, n1=1)
    case.give(
        ThroughputsProvided(
            provided_by="op",
            colocated=[
                ColocatedRate(
                    a_model="m",
                    a_batch_size=None,
                    b_model="m",
                    b_batch_size=None,
                    gpus=1,
                    gpu_type="v100",
                    a_steps_per_s=0.9,
                    b_steps_per_s=0.9,
                )
            ],
        )
    )
    case.submit("a", model="m", throughputs={"v100": 1.0})
    case.submit("b", model="m", throughputs={"v100": 1.0})
    said = case.wake()
    assert only(said, RoundStarted).packs == [["a", "b"]]
    placed = only(said, JobPlaced)
    assert placed.job_id == "b" and placed.packed_with == ["a"]
    assert only(said, LaunchTask).packed_with == ["a"]
    assert not any(isinstance(event, JobPreempted) for event in said)


def reference_table() -> ThroughputsProvided:
    """Two models that pack with each other and not with themselves: `heavy` keeps the GPU busy, `light` does not."""
    alone = {"heavy": {"v100": 10.0, "k80": 1.0}, "light": {"v100": 10.0, "k80": 8.0}}
    kept = {("heavy", "heavy"): (0.3, 0.3), ("heavy", "light"): (0.8, 0.7), ("light", "light"): (0.9, 0.9)}
    return ThroughputsProvided(
        provided_by="op",
        isolated=[
            IsolatedRate(model=model, batch_size=None, gpus=1, steps_per_s=rates) for model, rates in alone.items()
        ],
        colocated=[
            ColocatedRate(
                a_model=a,
                b_model=b,
                a_batch_size=None,
                b_batch_size=None,
                gpus=1,
                gpu_type=gpu_type,
                a_steps_per_s=both[0] * alone[a][gpu_type],
                b_steps_per_s=both[1] * alone[b][gpu_type],
            )
            for (a, b), both in kept.items()
            for gpu_type in ("v100", "k80")
        ],
    )


def test_an_unknown_model_is_taken_to_share_gpus_like_the_one_it_resembles():
    case = RoundsCase(space_sharing=True, n1=1)
    case.give(node("k1", 1, gpu_type="k80"))
    case.give(reference_table())
    said = case.submit("a", model="gru", throughputs={"v100": 20.0, "k80": 16.0})
    estimate = only(said, ThroughputEstimated)
    assert (estimate.configuration, estimate.like, estimate.evidence) == ("gru||1", "light||1", 0)
    assert 0 < estimate.confidence < 0.5
    a = case.replica.state.jobs["a"]
    assert together(case.replica.state, a, a, ["v100"])["v100"] == pytest.approx((18.0, 18.0)), "as light beside light"


def test_a_model_that_was_tried_beside_a_reference_keeps_that_and_is_like_the_one_that_this_shows():
    case = RoundsCase(space_sharing=True, n1=1)
    case.give(node("k1", 1, gpu_type="k80"))
    case.give(reference_table())
    tried = ColocatedRate(
        a_model="gru",
        b_model="light",
        a_batch_size=None,
        b_batch_size=None,
        gpus=1,
        gpu_type="v100",
        a_steps_per_s=14.0,
        b_steps_per_s=8.0,
    )
    case.give(ThroughputsProvided(provided_by="op", colocated=[tried]))
    said = case.submit("a", model="gru", throughputs={"v100": 20.0, "k80": 9.2})
    estimate = only(said, ThroughputEstimated)
    assert (estimate.configuration, estimate.like, estimate.evidence) == ("gru||1", "heavy||1", 1)
    case.submit("b", model="light", throughputs={"v100": 10.0, "k80": 8.0})
    a, b = case.replica.state.jobs["a"], case.replica.state.jobs["b"]
    beside = together(case.replica.state, a, b, ["v100", "k80"])
    assert beside["v100"] == (14.0, 8.0), "as it was measured"
    assert beside["k80"] == pytest.approx((7.36, 5.6)), "as heavy beside light"
    assert together(case.replica.state, b, a, ["v100"])["v100"] == (8.0, 14.0)


def test_what_is_seen_beside_others_counts_more_than_a_guess_and_says_nothing_of_the_job_alone():
    case = RoundsCase(space_sharing=True, n1=1)
    case.give(reference_table())
    case.submit("a", model="gru", throughputs={"v100": 20.0})
    case.submit("b", model="light", throughputs={"v100": 10.0})
    assert only(case.wake(), RoundStarted).packs == [["a", "b"]]
    case.profile("a", rate_per_s=8.0)
    a, b = case.replica.state.jobs["a"], case.replica.state.jobs["b"]
    assert together(case.replica.state, a, b, ["v100"])["v100"] == pytest.approx((8.0, 9.0))
    assert a.profile.rates == {}
    estimate = only(case.wake(), ThroughputEstimated)
    assert (estimate.configuration, estimate.evidence) == ("gru||1", 1)


def test_a_paused_job_keeps_its_gpus_out_of_the_rounds():
    case = RoundsCase(n1=2)
    case.submit("a")
    case.submit("b")
    case.submit("c")
    case.give(JobPauseRequested(job_id="a", requested_by="ada"))
    said = case.wake()
    assert only(said, AllocationRequested).reason.numbers["gpus.v100"] == 1


def test_switching_to_a_queue_keeps_what_runs():
    case = RoundsCase(n1=1)
    case.submit("a")
    case.submit("b")
    said = case.give(PolicyChanged(policy="backfill", requested_by="op"))
    assert not any(isinstance(event, JobPreempted) for event in said)
    assert only(case.exit("a"), JobPlaced).job_id == "b"


def test_what_a_job_had_under_another_policy_is_not_charged_to_its_share():
    case = RoundsCase(policy="backfill", n1=1)
    case.submit("a")
    case.submit("b")
    for policy in ("max_min_fairness", "fifo", "max_min_fairness"):
        case.heard(case.give(PolicyChanged(policy=policy, requested_by="op"), at=case.now_s + 1000 * ROUND_S))
    served = [job_id for _ in range(12) for job_id in case.next_round()]
    assert served == ["b", "a", "b"]


def test_of_several_rows_each_has_its_part_of_the_lag():
    case = RoundsCase(n1=1)
    case.submit("a")
    case.submit("b")
    state = case.replica.state
    a, b, rounds = state.jobs["a"], state.jobs["b"], state.rounds.current
    assert rounds is not None
    rounds.shares = [Share(jobs=("a",), time={"v100": 0.6}), Share(jobs=("a", "b"), time={"v100": 0.2})]
    rounds.rows = {"a": [0, 1], "b": [1]}
    rounds.credit = {"a": {"v100": 0.0}, "a+b": {"v100": 0.0}}
    a.account.attained_s = b.account.attained_s = 1000 * ROUND_S
    alone, packed = claims(state, rounds, [a, b], Present(running={}, suspended={}, pinned={}))
    assert alone.priority == pytest.approx(0.6 / (LAG_PART * 0.75 * 1000))
    assert packed.priority == pytest.approx(0.2 / (LAG_PART * 0.25 * 1000))  # b has all of its time in this row


def test_select_gives_to_the_largest_deficit_and_passes_over_what_does_not_fit():
    rows = [
        Claim(("small",), "v100", 1, NOTHING, priority=10.0, order=1),
        Claim(("wide",), "v100", 4, NOTHING, priority=90.0, order=2),
        Claim(("wider",), "v100", 8, NOTHING, priority=80.0, order=3),
        Claim(("small",), "k80", 1, NOTHING, priority=20.0, order=1),
    ]
    free = {"v100": 6, "k80": 1}
    assert select(rows, free, {}) == [rows[1], rows[3]]
    assert free == {"v100": 2, "k80": 0}


def test_fill_leaves_running_jobs_where_they_are_and_puts_others_on_their_fastest_type():
    requests = [
        Backfill("waits", 1, {"v100": 5.0, "k80": 1.0}, running_on=""),
        Backfill("runs", 1, {"v100": 5.0, "k80": 1.0}, running_on="v100"),
    ]
    assert fill(requests, {"v100": 1, "k80": 1}, {}) == [
        Assignment(("runs",), "v100", 1, {}),
        Assignment(("waits",), "k80", 1, {}),
    ]
