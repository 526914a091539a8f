"""What the gateway tells Prometheus, at its own `/metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The gateway's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "sanjaya_http_requests",
            "Requests answered.",
            ("operation", "method", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "sanjaya_http_request_seconds",
            "Time to the answer's end; streams are not measured.",
            ("operation",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.commit_requests = Histogram(
            "sanjaya_gateway_commit_requests",
            "Requests that were appended by one commit.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 500),
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "sanjaya_commit_seconds", "Time of one commit.", ("service",), buckets=_SECONDS, registry=self.registry
        )
        self.streams = Gauge("sanjaya_gateway_streams", "Open event and log streams.", registry=self.registry)
        self.conserved = Gauge(
            "sanjaya_conservation_light",
            "1 while every job and every GPU is accounted for, 0 when not.",
            registry=self.registry,
        )
        self.disk_free_bytes = Gauge(
            "sanjaya_disk_free_bytes",
            "Free on the disk of the log, and on that of uploads.",
            ("keeps",),
            registry=self.registry,
        )
        self.lag_records = Gauge(
            "sanjaya_read_models_lag_records",
            "Records on control that are not in the read models yet.",
            registry=self.registry,
        )

    def committed(self, requests: int, took_s: float) -> None:
        """A commit has happened."""
        self.commit_requests.observe(requests)
        self.commit_seconds.labels("gateway").observe(took_s)
