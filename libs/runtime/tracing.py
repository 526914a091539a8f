"""Traces that follow a job: the trace is the job, a span is one event, its parent the event that caused it.

The ids are not random: they are those of `Envelope.traceparent`, so that services which know nothing of each
other make one trace, and a replayed log would make the same one again.
"""

from __future__ import annotations

import time
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from libs.contracts.envelope import Envelope
from libs.runtime.handled import Handled

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_next_ids: ContextVar[tuple[int, int]] = ContextVar("next_ids")


class EventIds(IdGenerator):
    """Gives a span the ids of the event that it stands for."""

    def generate_trace_id(self) -> int:
        """The event's trace."""
        return _next_ids.get()[0]

    def generate_span_id(self) -> int:
        """The event's span."""
        return _next_ids.get()[1]


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, service: str, cell: str, processor: SpanProcessor) -> None:
        """Spans go to `processor`."""
        resource = Resource.create({"service.name": f"sanjaya.{service}", "service.namespace": cell})
        self._provider = TracerProvider(id_generator=EventIds(), resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("sanjaya")

    def handled(self, handled: Handled) -> None:
        """A span for each decision, from when its cause was read to now: it is on the log."""
        for envelope in handled.outputs:
            self.appended(envelope, handled.started_ns, handled.cause)

    def appended(self, envelope: Envelope, started_ns: int, cause: Envelope | None = None) -> None:
        """A span for one event that was appended just now.

        Args:
            envelope: the event.
            started_ns: when the work on it began, nanoseconds since the epoch.
            cause: the event that caused it, None for a fact from outside.
        """
        own = span_context(envelope)
        parent, links = Context(), []
        if cause is not None:
            before = span_context(cause)
            if before.trace_id == own.trace_id:
                parent = set_span_in_context(NonRecordingSpan(before), parent)
            else:
                links.append(Link(before))
        token = _next_ids.set((own.trace_id, own.span_id))
        span = self._tracer.start_span(
            envelope.event.wire_type,
            context=parent,
            kind=SpanKind.PRODUCER if cause is None else SpanKind.CONSUMER,
            attributes={
                "messaging.system": "sanjaya",
                "messaging.destination.name": envelope.event.topic.value,
                "messaging.message.id": envelope.id,
                "sanjaya.subject": envelope.correlation_id,
                "sanjaya.cause": cause.event.wire_type if cause else "",
            },
            links=links,
            start_time=started_ns,
        )
        _next_ids.reset(token)
        span.end(time.time_ns())

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def span_context(envelope: Envelope) -> SpanContext:
    """The ids of `Envelope.traceparent`, as OpenTelemetry wants them."""
    _, trace, span, _ = envelope.traceparent.split("-")
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=_SAMPLED)


def to_collector(service: str, cell: str) -> Tracing:
    """Traces to an OTLP collector over HTTP, as the `OTEL_EXPORTER_OTLP_*` variables say."""
    return Tracing(service, cell, BatchSpanProcessor(OTLPSpanExporter()))
