"""Policy `philly` with `wait_for_locality_s`: a gang that could start on many servers waits for few where it gains."""

from libs.contracts.gateway import IsolatedRate, SettingChanged, ThroughputsProvided
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import GangReserved, JobPlaced, JobQueued
from libs.contracts.reasons import PendingReason, Reason
from libs.testing.core_case import only
from tests.unit.placement.placement_case import PlacementCase
from tests.unit.placement.test_philly import cell

SOON_S, LATE_S = 400.0, 1000.0
"""When the jobs on n2 and on n1 are to end."""
ASKED_S, RELAXED_S = 100.0, 110.0
"""When the gang comes, and when it accepts two servers."""


def crowded(limit_s: float = 3600.0, spread: float = 0.8) -> PlacementCase:
    """On each of two servers two of four GPUs are taken; gangs of four are slower on both."""
    case = cell(r1={"n1": 4, "n2": 4})
    for name, value in (
        ("acquire_s", 10.0),
        ("backoff_s", 5.0),
        ("relax_after", 1.0),
        ("wait_for_locality_s", limit_s),
    ):
        case.give(SettingChanged(service="placement", name=name, value=value, requested_by="op"))
    if spread:
        rates = IsolatedRate(
            model="m", batch_size=None, gpus=4, steps_per_s={"v100": 1.0}, spread_steps_per_s={"v100": spread}
        )
        case.give(ThroughputsProvided(provided_by="op", isolated=[rates]))
    for name, steps in (("goes-0", 1.0), ("late", LATE_S), ("goes-1", 1.0), ("soon", SOON_S)):
        case.submit(name, 2, total_steps=steps, throughputs={"v100": 1.0})
    case.exit("goes-0", "n1")
    case.exit("goes-1", "n2")
    return case


def asked(case: PlacementCase, steps: float | None = 3000.0, job_id: str = "gang") -> PlacementCase:
    """A gang comes, and accepts two servers after its first try."""
    case.submit(job_id, 4, at=ASKED_S, model="m", total_steps=steps, throughputs={"v100": 1.0})
    case.wake()
    assert case.now_s == RELAXED_S
    return case


def last_placed(case: PlacementCase) -> JobPlaced:
    return case.decided(JobPlaced)[-1]


def waits(case: PlacementCase) -> list[Reason]:
    told = [event.reason for event in case.decided(JobQueued) if event.job_id == "gang"]
    return [reason for reason in told if reason.code == PendingReason.LOCALITY_RELAXING]


def test_a_gang_waits_where_that_gains_more_than_it_costs():
    """3,000 steps take 3,000 s on one server and 3,750 s on two; in 290 s four GPUs of n2 are free."""
    case = asked(crowded())
    assert "gang" not in case.placed
    [reason] = waits(case)
    assert reason.numbers == {"gpus": 4, "nodes_now": 2, "gain_s": 750.0, "wait_s": 290.0, "until_s": 3700.0}
    assert reason.message == (
        "fits on 2 nodes now, and waits: the rest of its work would take 750 s less on 1 server, by the operators' "
        "table; GPUs are expected there in 290 s (n2)"
    )
    case.exit("soon", "n2", at=SOON_S)
    assert (case.placed[-1], list(case.where("gang")), case.now_s) == ("gang", ["n2"], SOON_S)


def test_gpus_are_kept_where_they_are_expected_and_for_as_long_as_they_are():
    case = asked(crowded())
    kept = only(case.wake(), GangReserved)
    assert (kept.job_id, kept.node_ids, kept.relaxed, kept.try_number) == ("gang", ["n2"], "fewest_servers", 2)
    assert kept.until_s == case.now_s + 285.0 + 10.0
    case.submit("small", 1, at=200.0)
    assert list(case.where("small")) == ["n1"], "n2 has as many free ones, kept for the gang"


def test_a_gang_that_gains_less_than_it_waits_starts_and_says_both():
    """1,000 steps take 250 s longer on two servers."""
    case = asked(crowded(), steps=1000.0)
    decision = last_placed(case)
    assert (decision.job_id, len(decision.gang), case.now_s) == ("gang", 2, RELAXED_S)
    assert decision.reason.code == "LocalityRelaxed"
    assert {name: decision.reason.numbers[name] for name in ("gain_s", "wait_s")} == {"gain_s": 250.0, "wait_s": 290.0}
    assert "take 250 s less on 1 server" in decision.reason.message
    assert "expected there in 290 s (n2)" in decision.reason.message and not waits(case)


def test_a_gang_that_has_waited_for_as_long_as_it_may_starts():
    at_once = last_placed(asked(crowded(limit_s=290.0)))
    assert (at_once.job_id, at_once.reason.numbers["may_wait_s"]) == ("gang", 280.0)
    assert at_once.reason.message.endswith("expected there in 290 s (n2), and it may wait for 280 s more")
    late = asked(crowded(limit_s=400.0))
    assert "gang" not in late.placed
    while "gang" not in late.placed:
        late.wake()  # what is on n2 goes on: it is expected to last as long again as it is late
    assert late.now_s <= ASKED_S + 400.0 and len(late.where("gang")) == 2


def test_with_the_option_off_and_where_nothing_is_known_gangs_do_as_ever():
    for case in (crowded(limit_s=0.0), crowded(spread=0.0), crowded(spread=1.0)):
        decision = last_placed(asked(case))
        assert decision.job_id == "gang" and "gain_s" not in decision.reason.numbers
    assert "gain_s" not in last_placed(asked(crowded(), steps=None)).reason.numbers


def test_where_no_rack_has_enough_servers_the_gang_starts_and_says_so():
    """Two GPUs are free in each of three racks; six would fit on two servers, which are in two racks."""
    case = cell(r1={"n1": 4}, r2={"n2": 4}, r3={"n3": 4})
    rates = IsolatedRate(
        model="m", batch_size=None, gpus=6, steps_per_s={"v100": 1.0}, spread_steps_per_s={"v100": 0.5}
    )
    case.give(ThroughputsProvided(provided_by="op", isolated=[rates]))
    case.give(SettingChanged(service="placement", name="wait_for_locality_s", value=3600.0, requested_by="op"))
    for number in range(6):
        case.submit(f"s{number}", 2)
    for number in (0, 2, 4):
        case.exit(f"s{number}", next(iter(case.where(f"s{number}"))))
    assert [len(each.free("v100")) for each in case.replica.state.nodes.values()] == [2, 2, 2]
    case.submit("gang", 6, at=10.0, model="m", total_steps=100.0, throughputs={"v100": 1.0})
    assert (case.placed[-1], len(case.where("gang"))) == ("gang", 3)


def test_another_gang_of_the_shape_that_gains_less_goes_first():
    case = crowded()
    case.submit("gang", 4, at=ASKED_S, model="m", total_steps=3000.0, throughputs={"v100": 1.0})
    case.submit("short", 4, model="m", total_steps=100.0, throughputs={"v100": 1.0})
    while "short" not in case.placed:
        case.wake()
    assert "gang" not in case.placed and case.now_s < SOON_S
    assert last_placed(case).passed == "gang"


def profiled(job_id: str, rate_per_s: float) -> JobProfiled:
    return JobProfiled(
        job_id=job_id,
        attempt=1,
        window_start_s=0.0,
        window_s=10.0,
        minibatches_total=100,
        rate_per_s=rate_per_s,
        loss=None,
        memory_peak_bytes=0,
        memory_min_bytes=0,
    )


def test_rates_that_were_measured_on_few_and_on_many_servers_are_as_good_as_a_table():
    """The configuration has done 2 steps a second on one server, and 1 on two."""
    case = crowded(spread=0.0)
    for name in ("late", "soon"):
        case.exit(name, next(iter(case.where(name))))
    case.submit("together", 4, model="m")
    case.give(profiled("together", 2.0))
    case.exit("together", next(iter(case.where("together"))))
    for number in range(2):
        case.submit(f"goes-{number + 2}", 2)
        case.submit(f"stays-{number}", 2, total_steps=SOON_S, throughputs={"v100": 1.0})
    for number in range(2):
        case.exit(f"goes-{number + 2}", next(iter(case.where(f"goes-{number + 2}"))))
    case.submit("spread", 4, model="m")
    case.wake()
    assert len(case.where("spread")) == 2, "nothing is known of it on many servers yet"
    case.give(profiled("spread", 1.0))
    for node_id in ("n1", "n2"):
        case.exit("spread", node_id)
    case.submit("gang", 4, at=ASKED_S, model="m", total_steps=1000.0)
    case.wake()
    [reason] = waits(case)
    assert reason.numbers["gain_s"] == 500.0
    assert "by what was measured of its configuration" in reason.message
