"""What the index of free GPUs says is what a look at all servers says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts.cluster import PortRange
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
