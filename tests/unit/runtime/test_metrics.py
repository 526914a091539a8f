"""What the metrics port tells."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from libs.runtime.metrics import MetricsPort, expose
from libs.runtime.stats import Phase, Stats


@pytest.fixture
def stats() -> Stats:
    return Stats("placement", phase=Phase.LIVE, records=7, lag_records=3, violations=1)


@pytest.fixture
def port(stats: Stats) -> Iterator[MetricsPort]:
    port = MetricsPort("placement", "t", "127.0.0.1", 0, stats.health)
    expose(stats, port.meter)
    yield port
    port.close()


def fetch(port: MetricsPort, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_counters_and_gauges_are_read_when_asked_for(port: MetricsPort, stats: Stats):
    _, text = fetch(port, "/metrics")
    assert 'sanjaya_records_total{service="placement"} 7.0' in text
    assert 'sanjaya_lag_records{service="placement"} 3.0' in text
    assert 'sanjaya_state_check_violations_total{service="placement"} 1.0' in text
    stats.records = 8
    assert 'sanjaya_records_total{service="placement"} 8.0' in fetch(port, "/metrics")[1]


def test_commit_latency_has_bounds_that_fit_seconds(port: MetricsPort, stats: Stats):
    assert stats.on_commit is not None
    stats.on_commit(0.003)
    text = fetch(port, "/metrics")[1]
    assert 'sanjaya_commit_seconds_bucket{le="0.0025",service="placement"} 0.0' in text
    assert 'sanjaya_commit_seconds_bucket{le="0.005",service="placement"} 1.0' in text


def test_ages_are_absent_until_there_is_something_to_be_old(port: MetricsPort, stats: Stats):
    assert "sanjaya_snapshot_age_seconds{" not in fetch(port, "/metrics")[1]
    stats.snapshot_at_s = 0.0
    assert "sanjaya_snapshot_age_seconds{" in fetch(port, "/metrics")[1]


@pytest.mark.parametrize(
    ("change", "status"),
    [({}, 200), ({"phase": Phase.REPLAYING}, 503), ({"log_away": True}, 503), ({"beat": -1e9}, 503)],
)
def test_health(port: MetricsPort, stats: Stats, change: dict[str, object], status: int):
    for name, value in change.items():
        setattr(stats, name, value)
    code, body = fetch(port, "/healthz")
    assert code == status
    assert json.loads(body)["healthy"] is (status == 200)
    assert json.loads(body)["service"] == "placement"


def test_other_paths_are_not_found(port: MetricsPort):
    assert fetch(port, "/")[0] == 404
