"""A trace follows a job through the services, with the ids that stand in the records' headers."""

from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, span_id
from libs.runtime.handled import Handled
from libs.runtime.serving import traces
from libs.runtime.settings import Settings
from libs.runtime.tracing import Tracing, span_context
from libs.testing.core_case import arrival, node
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase, messages
from services.admission.service import SERVICE as ADMISSION
from services.quota.service import SERVICE as QUOTA


async def test_one_job_through_two_services_is_one_trace():
    exporter = InMemorySpanExporter()
    bus = FaultyBus(await connect("memory:", "t"), Faults())
    await bus.create_topics(TopicLayout())
    tracers = [Tracing(name, "t", SimpleSpanProcessor(exporter)) for name in ("admission", "quota")]
    admission = ShellCase(ADMISSION, bus, tracer=tracers[0])
    quota = ShellCase(QUOTA, bus, tracer=tracers[1])
    await admission.give(node("n1", 4), arrival("j-1"), arrival("j-2"))
    await admission.run_to_end()
    await quota.run_to_end()

    log = [codec.record(message).envelope for message in await messages(bus.bus, Topic.CONTROL)]
    of_job = [envelope for envelope in log if envelope.correlation_id == "j-1"]
    assert [envelope.event.wire_type for envelope in of_job] == [
        "job.arrived.v1",
        "job.admitted.v1",
        "quota.granted.v1",
    ]
    arrived, admitted, granted = (span_context(envelope) for envelope in of_job)
    spans = {span.name: span for span in exporter.get_finished_spans() if span.context.trace_id == arrived.trace_id}
    assert sorted(spans) == ["job.admitted.v1", "quota.granted.v1"]
    assert spans["job.admitted.v1"].context.span_id == admitted.span_id
    assert spans["job.admitted.v1"].parent.span_id == arrived.span_id
    assert spans["quota.granted.v1"].context.span_id == granted.span_id
    assert spans["quota.granted.v1"].parent.span_id == admitted.span_id
    assert spans["quota.granted.v1"].resource.attributes["service.name"] == "sanjaya.quota"
    assert len(exporter.get_finished_spans()) == 4
    assert all(span.end_time >= span.start_time for span in exporter.get_finished_spans())
    for tracer in tracers:
        tracer.close()


def test_the_span_is_the_one_that_the_headers_name():
    envelope = Envelope(id="e1", source="gateway", time_s=0.0, event=arrival("j-1"))
    _, trace, _, _ = envelope.traceparent.split("-")
    assert span_context(envelope).trace_id == int(trace, 16)
    assert span_context(envelope).span_id == int(span_id("e1"), 16)


def test_a_decision_about_something_else_links_to_its_cause():
    exporter = InMemorySpanExporter()
    tracing = Tracing("placement", "t", SimpleSpanProcessor(exporter))
    cause = Envelope(id="e1", source="gateway", time_s=0.0, event=arrival("j-1"))
    output = Envelope(id="e2", source="placement", time_s=0.0, event=node("n1", 1), causation_id="e1")
    tracing.handled(Handled(cause, [output], started_ns=1))
    [span] = exporter.get_finished_spans()
    assert span.parent is None
    assert span.context.trace_id == span_context(output).trace_id
    assert [link.context.span_id for link in span.links] == [span_context(cause).span_id]
    tracing.close()


def test_a_fact_from_outside_is_the_root_of_its_trace():
    exporter = InMemorySpanExporter()
    tracing = Tracing("gateway", "t", SimpleSpanProcessor(exporter))
    fact = Envelope(id="e1", source="gateway", time_s=0.0, event=arrival("j-1"))
    tracing.appended(fact, started_ns=1)
    [span] = exporter.get_finished_spans()
    assert span.parent is None
    assert span.context.span_id == span_context(fact).span_id
    tracing.close()


def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch):
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    serving = Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    envelope = Envelope(id="e1", source="gateway", time_s=0.0, event=arrival("j-1"))
    with ExitStack() as closing:
        tracer = traces("quota", Settings(), closing)
        assert tracer is not None
        tracer.handled(Handled(envelope, [envelope], started_ns=1))
    server.shutdown()
    serving.join()
    server.server_close()
    [(path, body)] = received
    assert path == "/v1/traces"
    assert span_context(envelope).span_id.to_bytes(8, "big") in body
    assert b"sanjaya.quota" in body


def test_nothing_listens_by_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with ExitStack() as closing:
        assert traces("quota", Settings(), closing) is None
