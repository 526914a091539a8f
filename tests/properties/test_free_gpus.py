"""What the index of free GPUs says is what a look at all servers says."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts.cluster import PortRange
from services.placement.core.cluster.hosts import Limited
from services.placement.core.cluster.nodes import Gpu, Node
from services.placement.core.cluster.servers import Index, Listed, Servers
from services.placement.core.cluster.together import Together, without
from tests.properties.effort import whole_system

TYPES = ("k80", "v100")
NAMES = [f"n{number}" for number in range(8)]


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """A server of one or two GPU types, some GPUs held, some broken; it may be away or drained."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    gpus = [Gpu(gpu_type=t, holders=draw(st.sampled_from([[], [], ["j"]]))) for t in types]
    healthy: dict[str, list[int]] = {}
    for index, gpu_type in enumerate(types):
        if draw(st.integers(0, 3)):
            healthy.setdefault(gpu_type, []).append(index)
    ports = PortRange(first=1, last=9)
    flags = {"present": draw(st.integers(0, 4)) > 0, "draining": draw(st.integers(0, 4)) == 0}
    fixed = {"incarnation": 1, "address": "", "rack": "r", "ports": ports, "next_port": 1}
    return Node(node_id=name, gpus=gpus, healthy=healthy, **fixed, **flags)


def answers(servers: Servers) -> list[object]:
    """All that can be asked, where the order means nothing without it."""
    found: list[object] = [servers.types(), sorted(node.node_id for node in servers.nodes())]
    for gpu_type in servers.types():
        found += [sorted((node.node_id, free) for node, free in servers.with_free(gpu_type)), servers.free(gpu_type)]
        found.append({gpus: n for gpus, n in servers.capacities(gpu_type).items() if gpus})
        found += [servers.fullest(gpu_type, count) for count in range(1, 5)]
        found += [servers.emptiest(gpu_type, capacity) for capacity in range(1, 5)]
    return [*found, servers.closest(servers.types(), 3), servers.closest([], 2)]


@settings(whole_system, max_examples=100)
@given(st.data())
def test_the_index_answers_as_a_list_of_the_servers_does(data: st.DataObject):
    cluster: dict[str, Node] = {}
    index = Index(cluster)
    for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=16), "servers that change"):
        cluster[name] = data.draw(nodes(name))
        index.refresh(name)
        assert index.agrees()
        closed = data.draw(st.lists(st.sampled_from(NAMES), max_size=2), "closed")
        listed = Listed([node for node in cluster.values() if node.usable and node.node_id not in closed])
        assert answers(index.without(closed)) == answers(listed)


@given(st.data())
def test_servers_with_less_to_give_answer_as_a_list_of_them_does(data: st.DataObject):
    """What is reserved on some servers is neither free there nor ever to be: all others are as they are."""
    cluster = {name: data.draw(nodes(name)) for name in data.draw(st.sets(st.sampled_from(NAMES)).map(sorted))}
    reserved = data.draw(
        st.dictionaries(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(TYPES), st.integers(1, 3)))
    )
    usable = [node for node in cluster.values() if node.usable]
    seen = [without(node, reserved.get(node.node_id, {})) for node in usable]
    for node, left in zip(usable, seen, strict=True):
        for gpu_type, gpus in reserved.get(node.node_id, {}).items():
            assert left.free(gpu_type) == node.free(gpu_type)[gpus:]
            assert left.capacity(gpu_type) == max(0, node.capacity(gpu_type) - gpus)
    few = Listed([node for node in seen if node.node_id in reserved])
    assert answers(Together(Index(cluster).without(reserved), few)) == answers(Listed(seen))


class Few:
    """So many GPUs of each server, now and were it empty."""

    def __init__(self, rooms: dict[str, tuple[int, int]]) -> None:
        self._rooms = rooms

    def now(self, node: Node, most: int) -> int:
        return min(most, self._rooms[node.node_id][0])

    def empty(self, node: Node, most: int) -> int:
        return min(most, self._rooms[node.node_id][1])


@given(st.data())
def test_servers_with_too_little_beside_gpus_answer_as_smaller_servers_do(data: st.DataObject):
    """Which of the servers that fit is the fullest is seen by the GPUs that are free, not by those that it may have."""
    cluster = {name: data.draw(nodes(name)) for name in data.draw(st.sets(st.sampled_from(NAMES)).map(sorted))}
    for node in cluster.values():  # of one type: what is held beside one type is held beside the other
        node.gpus = [Gpu(gpu_type="v100", holders=gpu.holders) for gpu in node.gpus]
        node.healthy = {"v100": sorted(index for working in node.healthy.values() for index in working)}
    rooms = {name: tuple(sorted(data.draw(st.tuples(*[st.integers(0, 5)] * 2)))) for name in cluster}
    limited = Limited(Index(cluster).without(()), Few(rooms))
    listed = Listed([limited.limited(node) for node in cluster.values() if node.usable])
    for node in listed.nodes():
        whole, (now, empty) = cluster[node.node_id], rooms[node.node_id]
        assert node.free("v100") == whole.free("v100")[:now]
        assert node.capacity("v100") == max(min(empty, whole.capacity("v100")), len(node.free("v100")))
    if limited.types():
        assert limited.free("v100") == listed.free("v100")
        assert +Counter(limited.capacities("v100")) == +Counter(listed.capacities("v100"))
        for capacity in range(1, 5):
            assert limited.emptiest("v100", capacity) == listed.emptiest("v100", capacity)
    for count in range(1, 5) if limited.types() else ():
        found, fitting = limited.fullest("v100", count), [n for n in listed.nodes() if len(n.free("v100")) >= count]
        assert (found is None) == (not fitting)
        if found is not None:
            fullest = min(fitting, key=lambda n: (len(cluster[n.node_id].free("v100")), n.node_id))
            assert (found[0].node_id, found[1]) == (fullest.node_id, fullest.free("v100"))
    assert limited.closest(["v100"], 3) == listed.closest(["v100"], 3)
