"""A port that was given out and has no listener yet: no other process gets it."""

import subprocess
import sys
from pathlib import Path

import pytest

from libs.bus.local_broker import LocalBroker, network

ANOTHER_PROCESS = """
import sys
from libs.bus.local_broker import network
network._PORTS = range(int(sys.argv[1]), int(sys.argv[2]))
network.random.sample = lambda among, most: list(among)
print(network.free_port())
"""


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> range:
    """The choice is narrowed to these three, which nothing uses; the lowest is tried first."""
    for start in range(14_000, 14_900, 3):
        found = range(start, start + 3)
        if all(network.is_free(port) for port in found):
            break
    monkeypatch.setattr(network, "_PORTS", found)
    monkeypatch.setattr(network.random, "sample", lambda among, most: list(among))
    monkeypatch.setattr(network, "_given_out", [])
    return found


def test_no_port_is_given_out_twice(ports: range) -> None:
    assert [network.free_port() for _ in ports] == list(ports)
    with pytest.raises(OSError, match="no free port"):
        network.free_port()


def test_a_broker_and_its_controller_have_a_port_each(ports: range, tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path, cache_dir=tmp_path)
    assert [broker.port, broker._controller_port] == list(ports[:2])


def test_another_process_is_given_another_port(ports: range) -> None:
    mine = network.free_port()
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(ports.start), str(ports.stop)]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (mine, int(theirs)) == (ports[0], ports[1])
