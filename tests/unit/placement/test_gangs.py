"""Where a gang is placed."""

from typing import Any

from libs.contracts.base import Event
from libs.contracts.cluster import PortRange, TaskRef
from libs.contracts.gateway import SettingChanged
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import JobPlaced, JobQueued, LaunchTask
from libs.contracts.reasons import PendingReason
from libs.testing.builders import altered
from libs.testing.core_case import node, only
from tests.unit.placement.placement_case import PlacementCase


def test_a_job_is_placed_in_the_same_turn_as_its_grant():
    case = PlacementCase(n1=4)
    outputs = case.submit("a", 2)
    assert [type(e) for e in outputs] == [JobPlaced, LaunchTask]
    order = only(outputs, LaunchTask)
    assert (order.node_id, order.gpu_indices, order.world_size, order.rendezvous_port) == ("n1", [0, 1], 2, None)


def test_the_fullest_server_that_fits_is_taken():
    case = PlacementCase(n1=4, n2=4)
    case.submit("a", 3)
    case.submit("b", 1)
    assert case.where("b") == {case.decided(JobPlaced)[0].gang[0].node_id: [3]}


def test_a_gang_over_servers_has_ranks_in_order_and_a_rendezvous_on_its_first_node():
    case = PlacementCase(n1=4, n2=4)
    outputs = case.submit("a", 6)
    orders = [e for e in outputs if isinstance(e, LaunchTask)]
    assert [(o.node_id, o.gpu_indices, o.first_rank, o.node_rank) for o in orders] == [
        ("n1", [0, 1, 2, 3], 0, 0),
        ("n2", [0, 1], 4, 1),
    ]
    assert {(o.rendezvous_host, o.rendezvous_port, o.node_count) for o in orders} == {("n1.test", 29500, 2)}


def test_rendezvous_ports_take_turns():
    case = PlacementCase(n1=2, n2=2)
    first = next(e for e in case.submit("a", 4) if isinstance(e, LaunchTask))
    case.exit("a", "n1")
    case.exit("a", "n2")
    second = next(e for e in case.submit("b", 4) if isinstance(e, LaunchTask))
    assert (first.rendezvous_port, second.rendezvous_port) == (29500, 29501)


def test_a_gang_prefers_one_rack():
    case = PlacementCase()
    for node_id, rack in (("n1", "r1"), ("n2", "r2"), ("n3", "r1")):
        case.give(node(node_id, 4, rack=rack))
    case.submit("a", 8)
    assert list(case.where("a")) == ["n1", "n3"]


def test_a_gang_runs_on_one_type_and_only_on_those_it_accepts():
    case = PlacementCase()
    case.give(node("n1", 2, gpu_type="k80"))
    case.give(node("n2", 2, gpu_type="v100"))
    case.submit("a", GpuRequest(count=1, types=["v100"]))
    case.submit("b", GpuRequest(count=1, excluded_types=["v100"]))
    assert (case.where("a"), case.where("b")) == ({"n2": [0]}, {"n1": [0]})
    refused = only(case.submit("c", 2), JobQueued)
    assert refused.reason.code == PendingReason.INSUFFICIENT_GPUS


def test_a_gang_waits_for_one_server_and_then_accepts_more():
    case = PlacementCase(n1=4, n2=4)
    case.submit("a", 2)
    case.submit("b", GpuRequest(count=3))
    waits = only(case.submit("c", 3, at=10.0), JobQueued)
    assert waits.reason.code == PendingReason.LOCALITY_RELAXING
    assert waits.reason.numbers["nodes_now"] == 2
    case.wake()  # reservation is due first: no job may pass, but it still waits for one server
    case.wake()
    assert case.now_s == 70.0
    assert len(case.where("c")) == 2


def test_max_nodes_is_never_relaxed():
    case = PlacementCase(n1=4, n2=4)
    case.submit("a", 3)
    case.submit("b", 3)
    waits = only(case.submit("c", GpuRequest(count=2, max_nodes=1)), JobQueued)
    assert waits.reason.code == PendingReason.GANG_FRAGMENTED
    assert "c" not in case.placed


def test_unhealthy_gpus_are_not_given_away():
    from libs.contracts.agent import GpuRecovered, GpuUnhealthy

    case = PlacementCase(n1=2)
    case.give(GpuUnhealthy(node_id="n1", index=0, note="ecc"))
    waits = only(case.submit("a", 2), JobQueued)
    assert waits.reason.code == PendingReason.HEALTHY_GPUS_MISSING
    case.give(GpuRecovered(node_id="n1", index=0))
    assert case.where("a") == {"n1": [0, 1]}


ONE_PORT = PortRange(first=29500, last=29500)


def port_of(outputs: list[Event]) -> int | None:
    return next(event for event in outputs if isinstance(event, LaunchTask)).rendezvous_port


def end(case: PlacementCase, job_id: str) -> list[Event]:
    case.exit(job_id, "n1")
    return case.exit(job_id, "n2")


def with_a_gang_that_stays(**changes: Any) -> PlacementCase:
    """On a GPU of each of two nodes, which have another one free."""
    case = PlacementCase()
    case.give(SettingChanged(service="placement", name="locality_relax_s", value=0.0, requested_by="op"))
    for gpus, tasks in ((1, []), (2, [TaskRef(job_id="stays", attempt=1)])):
        for node_id in ("n1", "n2"):
            case.give(altered(node(node_id, gpus, incarnation=gpus, tasks=tasks), **changes))
        if gpus == 1:
            assert port_of(case.submit("stays", 2)) == 29500
    return case


def test_a_rendezvous_port_is_not_given_away_while_a_gang_meets_there():
    case, found = with_a_gang_that_stays(), []
    for number in range(12):
        found.append(port_of(case.submit(f"g{number}", 2)))
        end(case, f"g{number}")
    assert found == [*range(29501, 29510), *range(29501, 29504)], "they go round, past the one that is in use"


def test_a_port_is_free_when_its_gang_has_ended_and_not_before():
    case = with_a_gang_that_stays()

    def meetings() -> list[int]:
        return case.replica.state.nodes["n1"].meetings

    case.submit("a", 2)
    case.rejoin("n1", 2, tasks=[("stays", 1), ("a", 1)], incarnation=3)
    assert meetings() == [29500, 29501]
    case.exit("a", "n1", code=1)
    assert meetings() == [29500, 29501], "its task on n2 has not ended"
    case.exit("a", "n2", code=None, signal=15, outcome="stopped")
    assert meetings() == [29500]
    end(case, "stays")
    assert meetings() == []


def test_a_gang_for_which_no_port_is_left_waits_for_another_to_end():
    case = with_a_gang_that_stays(rendezvous_ports=ONE_PORT)
    waits = only(case.submit("a", 2), JobQueued).reason
    assert (waits.code, waits.message) == (
        PendingReason.NO_RENDEZVOUS_PORT,
        "gangs on several nodes use all of the ports 29500 to 29500 of n1",
    )
    case.submit("b", 1)
    assert case.placed == ["stays", "b"], "a job on one node needs none"
    case.exit("b", *case.where("b"))
    assert case.placed == ["stays", "b"]
    assert "a" in [event.job_id for event in end(case, "stays") if isinstance(event, JobPlaced)]
