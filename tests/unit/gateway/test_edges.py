"""Small parts of the edge: index, events on the wire, tokens, views, media types, problems."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.formats.json import JSONFormat

from libs.contracts.envelope import Envelope
from libs.contracts.gateway import JobArrived, JobCancelRequested, JobPauseRequested
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.read_models import EventRow, GpuRow, TenantRow
from libs.testing.core_case import arrival
from services.gateway.adapters.tokens import Scope, Tokens, TokensUnreadable
from services.gateway.api.streams import resume_after, wanted
from services.gateway.core import views
from services.gateway.core.cloudevent import structured, structured_row
from services.gateway.core.idempotency import Recent, accepted, digest_of, request_digest
from services.gateway.problems import KINDS, Problem, nearest, shown
from tests.unit.projection.story import Story
from tests.unit.projection.sweep_story import sweep_arrived


def envelope(event_id: str, event: Any) -> Envelope:
    return Envelope(id=event_id, source="gateway", time_s=1.0, event=event)


class TestIndex:
    def test_what_was_appended_is_known_until_it_is_stored(self) -> None:
        recent = Recent()
        entries = [accepted(envelope("a", arrival("j")), 4), accepted(envelope("b", sweep_arrived("s")), 5)]
        for entry in entries:
            recent.add(entry)
        assert (recent.get("a"), recent.arrival_of("s"), recent.all()) == (entries[0], entries[1], entries)
        recent.stored(entries[:1])
        assert (recent.get("a"), recent.arrival_of("j"), recent.all()) == (None, None, entries[1:])
        recent.stored(entries)
        assert (len(recent), recent.arrival_of("s")) == (0, None)

    def test_an_entry_says_what_arrived_and_when(self) -> None:
        entry = accepted(envelope("a", arrival("j")), 4)
        assert (entry.event_id, entry.offset, entry.arrival, entry.time_s) == ("a", 4, "j", 1.0)
        assert accepted(envelope("c", JobCancelRequested(job_id="j", requested_by="a")), 6).arrival is None

    def test_a_request_with_a_digest_of_its_own_is_compared_by_it(self) -> None:
        first, second = sweep_arrived(seed=1), sweep_arrived(seed=2)
        told = {"request_digest": request_digest(b"{}")}
        assert digest_of(first) != digest_of(second)
        assert digest_of(msgspec.structs.replace(first, **told)) == digest_of(msgspec.structs.replace(second, **told))

    def test_a_digest_is_of_the_request_and_not_of_its_name(self) -> None:
        spec = JobSpec(name="x", command=["x"], gpus=GpuRequest(count=1))
        digest = request_digest(b'{"command":["x"]}')
        job = JobArrived(job_id="j", spec=spec, submitted_by="a", request_digest=digest)
        assert digest_of(job) == digest_of(msgspec.structs.replace(job, submitted_by="b")) == bytes.fromhex(digest)
        cancel, pause = (
            JobCancelRequested(job_id="j", requested_by="a"),
            JobPauseRequested(job_id="j", requested_by="a"),
        )
        assert len({digest_of(cancel), digest_of(pause), digest_of(msgspec.structs.replace(cancel, grace_s=1))}) == 3


class TestCloudEvents:
    def test_the_sdk_reads_what_the_streams_send(self) -> None:
        story = Story().two_nodes().granted()
        for record in story.records:
            body = msgspec.json.encode(structured(record))
            headers = {"content-type": "application/cloudevents+json"}
            event = from_http(HTTPMessage(headers, body), JSONFormat())
            assert (event.get_id(), event.get_type()) == (record.envelope.id, record.envelope.event.wire_type)
            assert event.get_subject() == record.envelope.event.subject
            assert event.get_time() is not None
            assert event.get_extension("offset") == record.offset

    def test_rows_and_records_are_shown_alike(self) -> None:
        story = Story().running()
        rows = [structured_row(row) for row in story.rows.all(EventRow)]
        assert rows == [msgspec.to_builtins(structured(record)) for record in story.records]


class TestTokens:
    def file(self, folder: Path, text: str) -> Path:
        path = folder / "tokens.yaml"
        path.write_text(text)
        return path

    def test_a_token_is_found_in_clear_or_by_its_hash(self, tmp_path: Path) -> None:
        hashed = hashlib.sha256(b"bob's long secret").hexdigest()
        text = f"""tokens:
          - {{name: alice, token: alice's long secret, scopes: [read]}}
          - {{name: bob, sha256: {hashed}, scopes: [admin]}}"""
        tokens = Tokens.read(self.file(tmp_path, text))
        alice = tokens.find("alice's long secret")
        assert alice is not None and (alice.name, alice.scopes) == ("alice", frozenset({Scope.READ}))
        assert tokens.by_id(alice.token_id) == alice and tokens.by_id("0" * 16) is None
        bob = tokens.find("bob's long secret")
        assert bob is not None and all(bob.may(scope) for scope in Scope)
        assert tokens.find("unknown") is None

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("tokens: []", "tokens"),
            ("tokens: [{name: a, scopes: [read]}]", "tokens/0"),
            ("tokens: [{name: a, token: 0123456789abcdef, scopes: [root]}]", "tokens/0/scopes/0"),
            ("tokens: [{name: a, token: short, scopes: [read]}]", "tokens/0/token"),
            ("tokens: [{name: a, sha256: xyz, scopes: [read]}]", "tokens/0/sha256"),
            ("tokens: [{name: a b, token: 0123456789abcdef, scopes: [read]}]", "tokens/0/name"),
            ("tokens: [{name: a, token: 0123456789abcdef, scopes: [agent]}]", "expected nodes with the scope agent"),
            ('tokens: [{name: a, token: 0123456789abcdef, scopes: [read], nodes: ["*"]}]', "with no other scope"),
            ("users: []", "tokens"),
            ("tokens: [", "tokens.yaml"),
        ],
    )
    def test_a_wrong_file_is_refused_with_the_place(self, tmp_path: Path, text: str, place: str) -> None:
        with pytest.raises(TokensUnreadable, match=place):
            Tokens.read(self.file(tmp_path, text))


class TestViews:
    def test_places(self) -> None:
        gang = [{"node_id": "n1", "gpu_indices": [0, 1]}, {"node_id": "n2", "gpu_indices": [3]}]
        assert (views.where(gang), views.where([])) == ("n1:0-1, n2:3", "")

    def test_a_gpu_with_two_jobs_of_a_tenant_is_one_gpu(self) -> None:
        other = {"job_id": "b", "attempt": 1, "tenant": "nlp"}
        shared = GpuRow(id="n1:0", node_id="n1", gpu_index=0, gpu_type="t", memory_bytes=1, packed=[other])
        shared.job_id, shared.attempt, shared.tenant = "a", 1, "nlp"
        shown = views.tenants([TenantRow(name="nlp")], [shared], [("nlp", "RUNNING", 2)])
        assert shown[0]["held_gpus"] == 1


def request(**headers: str) -> Any:
    return SimpleNamespace(headers={name.replace("_", "-"): value for name, value in headers.items()})


class TestStreams:
    @pytest.mark.parametrize(
        ("accept", "media_type"),
        [
            ("*/*", "application/json"),
            ("text/event-stream", "text/event-stream"),
            ("application/x-ndjson, application/json", "application/x-ndjson"),
            ("application/json;q=0.5, text/event-stream", "text/event-stream"),
            ("text/*", "text/event-stream"),
            ("text/html, */*;q=0.1", "application/json"),
            ("application/json;q=0, */*", "application/json"),
            ("application/json;q=high", "application/json"),
        ],
    )
    def test_the_client_chooses(self, accept: str, media_type: str) -> None:
        offered = ("application/json", "text/event-stream", "application/x-ndjson")
        assert wanted(request(accept=accept), offered) == media_type

    def test_a_client_that_takes_nothing_is_refused(self) -> None:
        with pytest.raises(Problem) as refused:
            wanted(request(accept="image/png"), ("application/json",))
        assert refused.value.status_code == 406

    def test_a_stream_goes_on_behind_the_last_event(self) -> None:
        assert resume_after(request(last_event_id="41"), 3) == 42
        assert resume_after(request(), 3) == 3
        assert resume_after(request(last_event_id=" "), None) is None
        with pytest.raises(Problem):
            resume_after(request(last_event_id="x"), None)


class TestProblems:
    def test_values_are_shown_short_and_safe(self) -> None:
        assert shown("a\0b\ud800") == "a\\0b?"
        assert len(shown("x" * 1000)) == 201
        assert shown(10**9) == 10**9
        assert isinstance(shown(10**30), str) and shown(2**10_000) == "an integer of 10001 bits"
        assert shown(float("nan")) == "nan"
        msgspec.json.encode(shown({"a": [1, float("inf"), 2**80]}))

    def test_what_was_meant(self) -> None:
        assert nearest("visoin", ["vision", "nlp"]) == "vision"
        assert nearest("zzz", ["vision", "nlp"]) is None

    def test_every_kind_is_an_error_with_words(self) -> None:
        assert all(400 <= kind.status < 600 and kind.title and kind.meaning for kind in KINDS.values())
