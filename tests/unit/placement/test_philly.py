"""Policy `philly`: gangs acquire GPUs close together, give them back, and accept less after some tries."""

from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.placement import GangReleased, GangReserved, JobPlaced, JobQueued
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import PlacementCase


def cell(**racks: dict[str, int]) -> PlacementCase:
    """Servers in racks, under `philly`."""
    case = PlacementCase()
    for rack, servers in racks.items():
        for node_id, gpus in servers.items():
            case.give(node(node_id, gpus, rack=rack))
    case.give(PolicyChanged(policy="philly", requested_by="op"))
    return case


def half_full() -> PlacementCase:
    """On each of two servers of a rack two of four GPUs are taken."""
    case = cell(r1={"n1": 4, "n2": 4})
    for number in range(4):
        case.submit(f"s{number}", 2)
    case.exit("s0", "n1")
    case.exit("s2", "n2")
    assert [len(n.free("v100")) for n in case.replica.state.nodes.values()] == [2, 2]
    return case


def test_a_gang_goes_to_the_rack_with_most_free_gpus_and_there_to_the_fewest_servers():
    case = cell(r1={"a1": 4, "a2": 4}, r2={"b1": 4, "b2": 4, "b3": 4})
    case.submit("gang", 8)
    assert list(case.where("gang")) == ["b1", "b2"]


def test_small_jobs_are_packed_onto_the_fullest_server():
    case = cell(r1={"n1": 4, "n2": 4})
    case.submit("first", 3)
    case.submit("small", 1)
    assert list(case.where("small")) == list(case.where("first"))


def test_jobs_that_are_not_small_go_to_the_emptiest_server_where_that_is_asked_for():
    case = cell(r1={"n1": 4, "n2": 4})
    case.give(SettingChanged(service="placement", name="emptiest_above_gpus", value=1.0, requested_by="op"))
    case.submit("first", 2)
    case.submit("small", 1)
    case.submit("second", 2)
    first, second = list(case.where("first")), list(case.where("second"))
    assert list(case.where("small")) == first != second
    case.submit("third", 2)
    assert list(case.where("third")) == second, "no other has room"


def test_servers_that_are_set_apart_are_for_small_jobs_first_and_for_others_last():
    case = cell(r1={"n1": 4, "n2": 4, "n3": 4})
    case.give(SettingChanged(service="placement", name="small_servers", value=1.0, requested_by="op"))
    case.submit("pair", 2)
    case.submit("small", 1)
    assert (list(case.where("pair")), list(case.where("small"))) == (["n2"], ["n1"]), "n2 is fuller"
    case.submit("large", 6)
    assert sorted(case.where("large")) == ["n2", "n3"]
    case.submit("late", 2)
    assert list(case.where("late")) == ["n1"], "no other has room"
    for number in range(2):
        case.submit(f"more-{number}", 1)
    assert list(case.where("more-0")) == ["n1"] and "more-1" not in case.placed


def test_gpus_are_acquired_held_given_back_and_acquired_again():
    case = half_full()
    tried = only(case.submit("gang", 4, at=100.0), GangReserved)
    assert (tried.try_number, tried.until_s, tried.relaxed) == (1, 250.0, "fewest_servers")
    assert (tried.gpus_held, tried.gpus_missing) == (2, 2)
    assert only(case.wake(), GangReleased).retry_s == 250.0 + 120.0
    assert case.now_s == 250.0
    again = only(case.wake(), GangReserved)
    assert (case.now_s, again.try_number, again.until_s) == (370.0, 2, 520.0)


def test_what_is_acquired_is_not_given_to_others_and_what_is_given_back_is():
    case = half_full()
    held = only(case.submit("gang", 4, at=100.0), GangReserved).node_ids
    case.submit("small", 2)
    assert list(case.where("small")) != held
    case.submit("other", 2)
    assert "other" not in case.placed
    case.wake()
    assert case.placed[-1] == "other"


def test_each_three_tries_accept_one_step_less():
    case = half_full()
    case.submit("gang", 4, at=100.0)
    while "gang" not in case.placed:
        case.wake()
    tries = [(e.try_number, e.relaxed) for e in case.decided(GangReserved)]
    assert tries == [(1, "fewest_servers"), (2, "fewest_servers"), (3, "fewest_servers")]
    assert (case.now_s, len(case.where("gang"))) == (100.0 + 3 * 150.0 + 2 * 120.0, 2)


def test_a_gang_that_accepts_any_server_keeps_what_it_has():
    case = half_full()
    case.submit("gang", 8, at=100.0)
    for _ in range(30):
        if case.replica.next_wakeup is not None:
            case.wake()
    last = case.decided(GangReserved)[-1]
    assert (last.try_number, last.until_s, last.relaxed) == (10, None, "anywhere")
    assert "gang" in case.replica.state.reservations
    case.exit("s1", "n1")
    case.exit("s3", "n2")
    assert case.placed[-1] == "gang"


def test_a_gang_larger_than_every_rack_accepts_any_servers_at_once():
    case = cell(r1={"a1": 4}, r2={"b1": 4})
    case.submit("gang", 8)
    assert sorted(case.where("gang")) == ["a1", "b1"] and not case.decided(GangReserved)


def test_servers_of_two_racks_are_the_last_that_is_accepted():
    """Six GPUs are free, at most four of them in each of two racks."""
    case = cell(r1={"a1": 4, "a2": 4}, r2={"b1": 4, "b2": 4})
    for number, stays in enumerate((3, 3, 2, 2)):
        case.submit(f"stays{number}", stays)
        case.submit(f"goes{number}", 4 - stays)
    for number in range(4):
        case.exit(f"goes{number}", next(iter(case.where(f"goes{number}"))))
    assert sorted(len(each.free("v100")) for each in case.replica.state.nodes.values()) == [1, 1, 2, 2]
    case.submit("gang", 5, at=1000.0)
    while "gang" not in case.placed:
        case.wake()
    tried = [e.relaxed for e in case.decided(GangReserved)]
    assert tried == [*3 * ["fewest_servers"], *3 * ["one_server_more"], *3 * ["one_rack"]]
    assert only([case.decided(JobPlaced)[-1]], JobPlaced).reason.code == "LocalityRelaxed"


def test_settings_say_how_long_and_how_often():
    case = half_full()
    for name, value in (("acquire_s", 10.0), ("backoff_s", 5.0), ("relax_after", 1.0)):
        case.give(SettingChanged(service="placement", name=name, value=value, requested_by="op"))
    case.submit("gang", 4, at=100.0)
    case.wake()
    assert (case.placed[-1], case.now_s) == ("gang", 110.0)


def test_the_causes_of_a_gang_that_tries():
    case = half_full()
    case.submit("gang", 4, at=100.0)
    case.wake(), case.wake()
    causes = [(e.reason.code) for e in case.decided(JobQueued) if e.job_id == "gang"]
    acquiring, backing_off = PendingReason.GANG_ACQUIRING, PendingReason.ACQUIRE_BACKOFF
    assert causes == [acquiring, backing_off, acquiring]


def test_a_start_out_of_order_says_what_it_passes_and_whether_that_is_delayed():
    case = half_full()
    case.submit("gang", 4, at=100.0)
    kept = only(case.submit("small", 1), JobPlaced)
    assert (kept.passed, kept.delays) == ("gang", ""), "what is acquired is not lost"
    case.wake()
    assert case.replica.state.reservations == {}
    in_the_way = [only(case.submit(f"t{number}", 1), JobPlaced) for number in range(2)]
    assert [e.passed for e in in_the_way] == ["gang", "gang"] and in_the_way[-1].delays == "gang"


def test_another_policy_forgets_the_tries_and_keeps_nothing():
    case = half_full()
    case.submit("gang", 4, at=100.0)
    case.give(PolicyChanged(policy="strict_fifo", requested_by="op"))
    state = case.replica.state
    case.give(PolicyChanged(policy="gandiva", requested_by="op"))
    assert (state.reservations, state.acquiring) == ({}, {})
