"""Opportunistic jobs as guests on what owners leave: seats, owners that come, upgrades, expulsion."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from libs.contracts.gateway import JobCancelRequested, JobPauseRequested, TenantConfigured
from libs.contracts.introspection import InterferenceDetected
from libs.contracts.jobs import JobClass, SimulatedWork
from libs.contracts.placement import (
    GangReleased,
    GangReserved,
    GuestExpelled,
    JobPlaced,
    JobPreempted,
    JobQueued,
    LaunchTask,
    ResumeTask,
    SetClass,
    StopTask,
    SuspendTask,
    TimeSliceStarted,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.reasons import PendingReason
from libs.kernel.service import InvariantViolated
from libs.testing.core_case import node, only
from tests.unit.placement.guests_case import GIB, GuestsCase
from tests.unit.placement.placement_case import SAID

POLICIES = ("antman", "backfill", "strict_fifo", "max_min_fairness", "finish_time_fairness", "gandiva")


def test_a_guest_goes_to_the_least_loaded_gpu_and_is_launched_as_one():
    case = GuestsCase(n1=2, n2=2)
    case.load(0, 0.1)
    case.load(1, 0.4)
    case.load(0, 0.05, "n2")
    case.load(1, 0.3, "n2")
    said = case.guest("g")
    placed = only(said, JobPlaced)
    assert (placed.role, case.where("g")) == ("guest", {"n2": [0]})
    assert placed.reason.code == "LeastLoaded" and placed.reason.numbers["load"] == 0.05
    assert [each.what for each in placed.reason.rejected] == ["n1:0", "n2:1", "n1:1"]
    assert only(said, LaunchTask).role == "guest"


def test_guests_that_come_at_once_do_not_pile_up_on_one_idle_gpu():
    case = GuestsCase(n1=3)
    for index, ratio in enumerate((0.0, 0.1, 0.2)):
        case.load(index, ratio)
    for number in range(3):
        case.guest(f"g{number}")
    assert [case.where(f"g{number}") for number in range(3)] == [{"n1": [0]}, {"n1": [1]}, {"n1": [2]}]


def test_a_sample_that_is_younger_than_a_guest_counts_instead_of_what_it_was_taken_to_use():
    case = GuestsCase(n1=2)
    case.load(0, 0.0)
    case.load(1, 0.4)
    case.guest("first")
    assert case.where("first") == {"n1": [0]}
    case.load(0, 0.2, at=1.0)
    case.guest("second")
    assert case.where("second") == {"n1": [0]}


def test_a_guest_waits_with_the_loads_in_its_reason_and_starts_when_a_gpu_becomes_idle():
    case = GuestsCase(n1=1)
    case.submit("owner")
    case.start("owner")
    case.load(0, 0.85, at=1.0)
    reason = only(case.guest("g"), JobQueued).reason
    assert reason.code == PendingReason.NO_GUEST_SEAT
    assert [(each.what, each.code, each.numbers) for each in reason.rejected] == [("n1:0", "TooBusy", {"load": 0.85})]
    assert [event.job_id for event in case.load(0, 0.5, at=2.0) if isinstance(event, JobPlaced)] == ["g"]
    assert case.placement("g").packed_with == ["owner"]


def test_a_gpu_takes_no_more_guests_than_it_has_seats():
    case = GuestsCase(n1=1)
    for number in range(4):
        case.guest(f"g{number}")
        case.load(0, 0.1, at=float(number + 1))
    assert case.placed == ["g0", "g1", "g2"]
    assert case.decided(JobQueued)[-1].reason.rejected[0].code == "NoSeat"


def test_a_gang_of_guests_goes_to_the_fewest_servers():
    case = GuestsCase(n1=2, n2=4)
    for index in range(2):
        case.load(index, 0.0)
    for index in range(4):
        case.load(index, 0.3, "n2")
    case.guest("three", 3)
    assert list(case.where("three")) == ["n2"]
    for index in range(3):
        case.load(index, 0.4, "n2", at=1.0)
    case.guest("five", 5)
    assert {node_id: len(gpus) for node_id, gpus in case.where("five").items()} == {"n2": 4, "n1": 1}


def test_where_nothing_scales_guests_have_gpus_without_owners_alone():
    case = GuestsCase(n1=2, scales=False)
    case.submit("owner")
    case.guest("a")
    assert case.where("a") == {"n1": [1]}
    case.guest("b")
    codes = {each.what: each.code for each in case.decided(JobQueued)[-1].reason.rejected}
    assert codes == {"n1:0": "HasOwner", "n1:1": "NoSeat"}, "of neither is known how much memory it needs"
    case.profile("a", peak_bytes=15 * GIB)
    case.guest("c")
    assert case.placed == ["owner", "a"]


def test_to_owners_gpus_with_guests_are_free_and_those_with_the_fewest_go_first():
    case = GuestsCase(n1=2, n2=2)
    case.guest("g")
    assert case.where("g") == {"n1": [0]}
    case.submit("owner", 2)
    assert case.where("owner") == {"n2": [0, 1]}
    case.submit("next")
    assert case.where("next") == {"n1": [1]}
    case.start("g")
    case.submit("last")
    assert case.where("last") == {"n1": [0]}
    assert case.placement("last").packed_with == ["g"]
    assert case.suspended == []


def test_where_nothing_scales_a_guest_stands_still_for_an_owner_and_goes_on_when_that_has_ended():
    case = GuestsCase(n1=1, scales=False)
    case.guest("g")
    case.start("g")
    said = case.submit("owner")
    assert [type(event) for event in said] == [TimeSliceStarted, SuspendTask, JobPlaced, LaunchTask, JobQueued]
    assert case.suspended == ["g"] and case.placement("owner").packed_with == []
    case.still("g")
    case.start("owner")
    resumed = only(case.exit("owner"), ResumeTask)
    assert (resumed.job_id, resumed.role) == ("g", "guest")


def test_a_guest_that_has_not_begun_is_preempted_for_an_owner():
    case = GuestsCase(n1=1, scales=False)
    case.guest("g")
    said = case.submit("owner")
    assert only(said, JobPreempted).job_id == "g" and only(said, StopTask).grace_s == 10.0


@pytest.mark.parametrize("slow", [True, False])
def test_a_guest_that_does_not_leave_in_time_or_cannot_be_parked_is_ended(slow: bool):
    case = GuestsCase(n1=1, scales=False)
    case.guest("g")
    case.start("g")
    case.submit("owner")
    said = case.wake() if slow else case.still("g", parked=False)
    assert case.now_s == (10.0 if slow else 0.0)
    assert only(said, JobPreempted).reason.code == ("TooSlow" if slow else "NotParked")
    assert only(said, StopTask).grace_s == 0.0
    case.exit("g", code=None, signal=9, outcome="stopped")
    assert case.decided(JobQueued)[-1].attempt == 2


def test_what_is_reserved_for_a_gang_takes_guests_and_no_other_owner():
    case = GuestsCase(n1=4)
    case.submit("first")
    case.start("first")
    said = case.submit("gang", 4)
    assert only(said, GangReserved).gpus_held == 3
    assert only(case.submit("other"), JobQueued).reason.code == PendingReason.BEHIND
    for number in range(3):
        case.guest(f"g{number}")
        case.start(f"g{number}")
    assert {gpu for number in range(3) for gpu in case.where(f"g{number}")["n1"]} == {1, 2, 3}
    assert case.decided(UpgradeOffered) == [], "their GPUs are kept for another"
    placed = [event for event in case.exit("first") if isinstance(event, JobPlaced)]
    assert [event.job_id for event in placed] == ["gang"] and sorted(placed[0].packed_with) == ["g0", "g1", "g2"]
    assert case.suspended == [] and case.decided(JobPreempted) == []


def test_what_a_gang_has_acquired_runs_guests_until_it_is_complete_or_given_back():
    """Policy `philly`: the gang of four has three GPUs of a server, and the last becomes free in its second try."""
    case = GuestsCase("philly", n1=4)
    for job_id in ("stays", "goes"):
        case.submit(job_id, 1 if job_id == "stays" else 3)
        case.start(job_id)
    case.exit("goes")
    assert only(case.submit("gang", 4, at=100.0), GangReserved).gpus_held == 3
    for number in range(3):
        case.guest(f"g{number}")
        case.start(f"g{number}")
    assert {gpu for number in range(3) for gpu in case.where(f"g{number}")["n1"]} == {1, 2, 3}
    assert only(case.wake(), GangReleased).gpus_held == 3, "a guest is in nothing's way"
    assert only(case.wake(), GangReserved).gpus_held == 3
    placed = [event for event in case.exit("stays") if isinstance(event, JobPlaced)]
    assert [event.job_id for event in placed] == ["gang"] and sorted(placed[0].packed_with) == ["g0", "g1", "g2"]


def test_tenants_that_use_least_of_their_quota_go_first():
    case = GuestsCase(n1=4)
    for tenant, gpus in (("rich", 4), ("poor", 4)):
        case.give(TenantConfigured(tenant=tenant, gpu_limit=gpus, requested_by="op"))
    case.submit("holds", 3, tenant="rich")
    case.submit("fills", 1, tenant="rich")
    case.start("holds")
    case.start("fills")
    case.submit("rich-waits", 1, tenant="rich", priority=5)
    case.submit("poor-waits", 1, tenant="poor")
    assert [event.job_id for event in case.exit("fills") if isinstance(event, JobPlaced)] == ["poor-waits"]


class TestUpgrades:
    """A guest becomes the owner of its GPUs."""

    def test_gpus_are_kept_until_quota_answers_and_the_agents_are_told(self):
        case = GuestsCase(n1=2)
        offered = only(case.automatic("g", 2), UpgradeOffered)
        assert (offered.job_id, offered.gpus) == ("g", 2)
        assert case.submit("owner") and case.placed == ["g"], "its GPUs are kept for it"
        said = case.upgrade("g", 2)
        assert only(said, SetClass).role == "owner"
        assert case.replica.state.nodes["n1"].gpus[0].holders == ["g"]
        case.exit("g")
        assert case.placed == ["g", "owner"]

    def test_a_declined_offer_stands_until_an_owner_comes(self):
        case = GuestsCase(n1=1)
        case.automatic("g")
        assert not [event for event in case.decline("g") if isinstance(event, UpgradeOffered)]
        case.start("g")
        said = case.submit("owner")
        assert only(said, UpgradeWithdrawn).job_id == "g"
        case.upgrade("g")
        assert case.replica.state.jobs["g"].guest, "the answer has come too late"
        case.start("owner")
        assert only(case.exit("owner"), UpgradeOffered).job_id == "g"

    def test_quota_may_say_yes_later(self):
        case = GuestsCase(n1=1)
        case.automatic("g")
        case.decline("g")
        assert only(case.upgrade("g"), SetClass).job_id == "g"
        assert case.submit("owner") and case.placed == ["g"]

    def test_no_part_of_a_gang_is_offered(self):
        case = GuestsCase(n1=2)
        case.submit("owner")
        case.start("owner")
        case.automatic("g", 2)
        assert case.placed == ["owner", "g"] and case.decided(UpgradeOffered) == []
        assert only(case.exit("owner"), UpgradeOffered).gpus == 2

    def test_what_was_kept_for_a_guest_is_an_owners_as_soon_as_another_guest_is_upgraded_before_it(self):
        case = GuestsCase(n1=2)
        case.submit("first", 2)
        for name, gpus in (("one", 1), ("both", 2)):
            case.load(0, 0.1)
            case.load(1, 0.1)
            case.automatic(name, gpus)
        case.exit("first")
        assert [offer.job_id for offer in case.decided(UpgradeOffered)] == ["one", "both"]
        case.submit("owner")
        assert case.placed == ["first", "one", "both"], "all GPUs are kept"
        said = case.upgrade("one")
        assert only(said, UpgradeWithdrawn).job_id == "both"
        assert only(said, JobPlaced).job_id == "owner"

    @pytest.mark.parametrize("why", ["asked for", "too large"])
    def test_a_job_that_never_uses_quota_is_not_offered(self, why: str):
        case = GuestsCase(n1=2)
        case.give(TenantConfigured(tenant="default", gpu_limit=1, requested_by="op"))
        case.guest("g", 2, JobClass.OPPORTUNISTIC if why == "asked for" else JobClass.AUTOMATIC)
        assert case.placed == ["g"] and case.decided(UpgradeOffered) == []

    def test_other_guests_make_room_for_the_new_owner(self):
        case = GuestsCase()
        case.give(replace(node("n1", 1), scales_memory="all", spill_bytes=GIB))
        case.automatic("g")
        case.decline("g")
        case.load(0, 0.1, at=1.0)
        case.guest("other")
        case.start("other")
        assert case.placed == ["g", "other"] and case.suspended == []
        case.upgrade("g")
        assert case.suspended == ["other"], "the server gives out no shares of its GPUs' time"

    @pytest.mark.parametrize("request_type", [JobPauseRequested, JobCancelRequested])
    def test_an_answer_for_a_guest_that_is_leaving_its_gpus_does_no_harm(self, request_type: type):
        case = GuestsCase(n1=1)
        case.automatic("g")
        case.start("g")
        more = {"grace_s": 1.0} if request_type is JobCancelRequested else {}
        case.give(request_type(job_id="g", requested_by="ada", **more))
        case.upgrade("g")
        if request_type is JobPauseRequested:
            case.still("g")
        else:
            case.exit("g", code=None, signal=15, outcome="stopped")
        case.submit("owner")
        assert case.placed == ["g", "owner"]


def hurt(case: GuestsCase, in_a_row: int, *beside: str) -> list[object]:
    event = InterferenceDetected(
        job_id="owner",
        attempt=1,
        beside=list(beside),
        minibatch_s=0.11,
        alone_s=0.1,
        in_a_row=in_a_row,
        reason=SAID,
    )
    return list(case.give(event))


class TestExpulsion:
    """A guest that slows an owner down leaves it."""

    def crowded(self) -> GuestsCase:
        case = GuestsCase(n1=2)
        case.submit("owner")
        case.start("owner")
        case.load(1, 0.9)
        case.guest("g")
        case.start("g")
        assert case.where("g") == {"n1": [0]}
        return case

    def test_three_profiles_running_it_is_suspended_and_goes_on_beside_others(self):
        case = self.crowded()
        assert not hurt(case, 2, "g")
        said = hurt(case, 3, "g")
        assert only(said, GuestExpelled).slowdown_ratio == pytest.approx(0.1)
        assert only(said, SuspendTask).job_id == "g"
        case.still("g")
        case.load(0, 0.0, at=1.0)
        assert case.replica.state.jobs["g"].suspended, "not beside that owner again"
        resumed = only(case.load(1, 0.1, at=2.0), ResumeTask)
        assert resumed.gpu_indices == [1]

    def test_one_that_keeps_its_work_is_queued_again(self):
        case = GuestsCase(n1=1)
        case.submit("owner")
        case.start("owner")
        case.guest("g", restartable=True)
        case.start("g")
        assert only(hurt(case, 3, "g"), JobPreempted).job_id == "g"

    def test_of_several_the_one_that_came_last_goes_first(self):
        case = self.crowded()
        case.load(0, 0.2, at=5.0)
        case.guest("later")
        case.start("later")
        assert only(hurt(case, 3, "g", "later"), GuestExpelled).job_id == "later"


class TestSwitching:
    """Guests on and off, and under every policy."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_under_every_policy_guests_are_beside_owners_and_these_do_not_wait_for_them(self, policy: str):
        case = GuestsCase(policy, n1=2)
        case.guest("g", 2)
        case.start("g")
        case.submit("owner", 2)
        case.start("owner")
        assert case.placed == ["g", "owner"] and case.placement("owner").packed_with == ["g"]
        case.exit("owner")
        case.exit("g")
        assert not case.replica.state.jobs

    def test_switching_through_all_policies_disturbs_no_job(self):
        case = GuestsCase(n1=2)
        case.guest("g", 2)
        case.start("g")
        case.submit("owner")
        case.start("owner")
        for policy in (*POLICIES, *reversed(POLICIES)):
            for guests in ("antman", "none"):
                case.policy(policy, guests)
        assert case.suspended == [] and case.decided(JobPreempted) == [] and len(case.placed) == 2

    @pytest.mark.parametrize("policy", ["strict_fifo", "antman", "max_min_fairness"])
    def test_what_was_kept_for_a_gang_while_there_were_no_guests_is_released_when_it_starts_as_one(self, policy: str):
        case = GuestsCase("backfill", guests="none", n1=2)
        case.submit("owner")
        case.start("owner")
        case.guest("gang", 2)
        while not case.decided(GangReserved):
            case.wake()
        said = case.policy(policy)
        assert "gang" in {event.job_id for event in said if isinstance(event, JobPlaced)}
        assert [event.job_id for event in case.decided(GangReleased)] == ["gang"]
        assert not case.replica.state.reservations

    def test_without_guests_an_opportunistic_job_stands_behind_all_others_and_owns_its_gpus(self):
        case = GuestsCase("backfill", guests="none", n1=1)
        case.submit("first")
        case.start("first")
        case.guest("g", priority=9)
        case.submit("second")
        case.exit("first")
        case.start("second")
        case.exit("second")
        assert case.placed == ["first", "second", "g"] and case.placement("g").role == "owner"

    def test_jobs_that_wait_change_queues_with_the_switch(self):
        case = GuestsCase("backfill", guests="none", n1=1)
        case.submit("owner")
        case.start("owner")
        case.load(0, 0.1)
        case.guest("g")
        assert case.placed == ["owner"]
        case.policy("backfill", "antman")
        assert case.placed == ["owner", "g"]

    def test_a_guest_that_stands_still_goes_on_where_no_owner_is_when_guests_are_switched_off(self):
        case = GuestsCase(n1=2, scales=False)
        case.submit("holds")
        case.start("holds")
        case.guest("g")
        case.start("g")
        case.submit("owner")
        case.still("g")
        case.policy("backfill", "none")
        case.start("owner")
        assert only(case.exit("owner"), ResumeTask).job_id == "g"


def test_servers_are_looked_at_for_seats_again_only_where_something_has_changed():
    case = GuestsCase(n1=2, n2=2)
    case.guest("first")
    before = dict(case.replica.state.seating)
    case.guest("second")
    after = case.replica.state.seating
    assert case.where("second") == {"n1": [1]}
    assert (before.keys(), after.keys()) == ({"n2"}, {"n2"}), "n1 changes with each guest that it gets"
    assert after["n2"] is before["n2"]


def test_a_look_at_seats_that_has_missed_a_change_is_found():
    case = GuestsCase(n1=2, n2=2)
    case.guest("g")
    case.replica.state.nodes["n2"].gpus[0].load_ratio = 0.7
    with pytest.raises(InvariantViolated, match="seats"):
        case.replica.check()


def test_a_guest_gets_its_seat_as_soon_as_it_is_known_that_there_is_room_beside_another():
    case = GuestsCase(n1=1, scales=False)
    case.guest("a")
    case.guest("b", simulated=SimulatedWork(duration_s=60.0, profiled_memory_bytes=GIB))
    assert case.placed == ["a"], "it is not known how much memory the other one needs"
    case.profile("a", peak_bytes=2 * GIB)
    assert case.placed == ["a", "b"]
