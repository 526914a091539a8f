"""What is said of the hosts of nodes: the first sample at once, then a minute's together."""

from __future__ import annotations

from libs.contracts.agent import HostSample, NodeHeartbeat
from services.introspection.core.hosts import Hosts

GIB = 2**30


def beat(busy: float, used_gib: int = 1, *, incarnation: int = 1) -> NodeHeartbeat:
    host = HostSample(cpus=8, cpu_utilisation_ratio=busy, memory_bytes=16 * GIB, memory_used_bytes=used_gib * GIB)
    return NodeHeartbeat(node_id="n1", incarnation=incarnation, running_tasks=0, host=host)


def test_the_first_sample_is_said_at_once_and_then_each_minute():
    hosts = Hosts()
    first = hosts.take(beat(0.5), 100.0, {})
    assert first is not None and (first.window_start_s, first.window_s, first.samples) == (100.0, 0.0, 1)
    assert hosts.take(beat(0.1, 2), 130.0, {}) is None
    second = hosts.take(beat(0.3, 4), 160.0, {})
    assert second is not None
    assert (second.window_start_s, second.window_s, second.samples) == (130.0, 30.0, 2)
    assert (second.cpu_utilisation_ratio, second.memory_used_mean_bytes) == (0.2, 3 * GIB)
    assert second.memory_used_peak_bytes == 4 * GIB and second.memory_bytes == 16 * GIB


def test_what_is_on_the_log_is_not_said_again_after_a_restart():
    hosts = Hosts()
    assert hosts.take(beat(0.5), 110.0, {"n1": 100.0}) is None
    assert hosts.take(beat(0.5), 160.0, {"n1": 100.0}) is not None


def test_a_clock_that_is_set_back_does_not_silence_a_node():
    assert Hosts().take(beat(0.5), 50.0, {"n1": 100.0}) is not None


def test_a_heartbeat_of_an_older_agent_says_nothing_of_its_host():
    assert Hosts().take(NodeHeartbeat(node_id="n1", incarnation=1, running_tasks=0), 0.0, {}) is None
