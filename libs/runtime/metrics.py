"""`/metrics` for Prometheus and `/healthz` for probes: an HTTP port, off unless asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from libs.runtime.stats import Stats

SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets of every histogram in seconds; OpenTelemetry's own begin at 5."""

Health = Callable[[], tuple[bool, dict[str, object]]]


class MetricsPort:
    """The HTTP port of one process. Instruments are made through `meter`."""

    def __init__(self, service: str, cell: str, host: str, port: int, health: Health) -> None:
        """Start to listen; port 0 takes any free one.

        Raises:
            OSError: the address cannot be listened on.
        """
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(registry=self._registry, disable_target_info=True, scope_info_enabled=False)
        seconds = View(instrument_name="*_seconds", aggregation=ExplicitBucketHistogramAggregation(SECONDS_BOUNDS))
        resource = Resource.create({"service.name": f"sanjaya.{service}", "service.namespace": cell})
        self._provider = MeterProvider(
            metric_readers=[reader], views=[seconds], resource=resource, shutdown_on_exit=False
        )
        self.meter: Meter = self._provider.get_meter("sanjaya")
        self._server = ThreadingHTTPServer((host, port), _handler(self._registry, health))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._provider.shutdown()


def expose(stats: Stats, meter: Meter) -> None:
    """Publish a shell's numbers. They are read when the port is asked; the loop pays for commit latency alone."""
    labels = {"service": stats.service}

    def reading(
        value: Callable[[], float | None],
    ) -> list[Callable[[CallbackOptions], Iterable[Observation]]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            number = value()
            return [] if number is None else [Observation(number, labels)]

        return [read]

    counters: dict[str, tuple[Callable[[], float], str]] = {
        "sanjaya_records": (lambda: stats.records, "control records read"),
        "sanjaya_events_handled": (lambda: stats.events, "records that the core took"),
        "sanjaya_decisions": (lambda: stats.decisions, "events decided"),
        "sanjaya_commits": (lambda: stats.commits, "transactions"),
        "sanjaya_timers_fired": (lambda: stats.timers, "wake-ups appended"),
        "sanjaya_snapshots": (lambda: stats.snapshots, "snapshots saved"),
        "sanjaya_snapshot_failures": (lambda: stats.snapshot_failures, "snapshots that could not be saved"),
        "sanjaya_state_check_violations": (lambda: stats.violations, "contradictions found in the state"),
        "sanjaya_impossible_events": (lambda: stats.impossible, "inputs that could not be in the state that they met"),
        "sanjaya_position_repairs": (lambda: stats.repairs, "positions behind the log's own records, repaired"),
    }
    for name, (value, text) in counters.items():
        meter.create_observable_counter(name, reading(value), description=text)
    gauges: dict[str, tuple[Callable[[], float | None], str]] = {
        "sanjaya_next_offset": (lambda: stats.next_offset, "everything before it is handled"),
        "sanjaya_lag_records": (lambda: stats.lag_records, "records on the log and not handled yet"),
        "sanjaya_live": (lambda: float(stats.health()[0]), "1 while the service does its work"),
        "sanjaya_snapshot_age_seconds": (lambda: _age_s(stats.snapshot_at_s), "time since the last snapshot"),
        "sanjaya_progress_age_seconds": (lambda: _age_s(stats.progress_at_s), "time since the last record"),
    }
    for name, (measure, text) in gauges.items():
        meter.create_observable_gauge(name, reading(measure), description=text)
    latency = meter.create_histogram("sanjaya_commit_seconds", unit="s", description="time of one commit")
    stats.on_commit = lambda seconds: latency.record(seconds, labels)


def _age_s(time_s: float | None) -> float | None:
    return None if time_s is None else max(0.0, time.time() - time_s)


def _handler(registry: CollectorRegistry, health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(200, content_type, encode(registry))
            elif self.path == "/healthz":
                healthy, facts = health()
                body = {"healthy": healthy, **facts}
                self._answer(200 if healthy else 503, "application/json", json.dumps(body).encode())
            else:
                self._answer(404, "text/plain", b"there are /metrics and /healthz\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not news."""

    return Handler
