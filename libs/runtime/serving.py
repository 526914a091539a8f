"""Metrics and traces, wired by the settings. OpenTelemetry is loaded only for a port or a collector."""

from __future__ import annotations

from contextlib import ExitStack

from libs.runtime.handled import Tracer
from libs.runtime.settings import Settings
from libs.runtime.stats import Stats


def metrics(stats: Stats, settings: Settings, closing: ExitStack) -> None:
    """Serve `/metrics` and `/healthz` of this process until `closing`, if a port is set."""
    if not settings.metrics_port:
        return
    from libs.runtime.metrics import MetricsPort, expose

    port = MetricsPort(stats.service, settings.cell, settings.metrics_host, settings.metrics_port, stats.health)
    closing.callback(port.close)
    expose(stats, port.meter)


def traces(service: str, settings: Settings, closing: ExitStack) -> Tracer | None:
    """A tracer that sends to the collector until `closing`; None when no collector is set."""
    if not settings.otlp_endpoint:
        return None
    from libs.runtime.tracing import to_collector

    tracing = to_collector(service, settings.cell)
    closing.callback(tracing.close)
    return tracing
