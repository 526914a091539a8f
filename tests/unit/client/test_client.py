"""What the client makes of answers and of silence."""

from __future__ import annotations

from collections.abc import Callable

import httpcore2
import httpx2
import pytest

from libs.client import ApiError, Client, Unreachable, client

Answer = Callable[[httpx2.Request], httpx2.Response]


def client_of(answer: Answer) -> Client:
    """A client with requests that are answered here."""
    made = Client("http://gateway")
    made._http = httpx2.Client(base_url="http://gateway", transport=httpx2.MockTransport(answer))
    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REPEAT_EVERY_S", 0.001)


def test_a_submission_without_an_answer_is_repeated_under_its_key():
    keys = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            raise httpx2.ReadError("connection reset", request=request)
        if len(keys) == 2:
            return httpx2.Response(503, json={"title": "It may have been accepted"})
        return httpx2.Response(201, json={"id": "j-1"})

    assert client_of(answer).submit({"command": ["true"]})["id"] == "j-1"
    assert len(keys) == 3 and len(set(keys)) == 1


def test_a_sweep_is_submitted_once_too():
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, request.url.path, request.headers["Idempotency-Key"]))
        if len(asked) == 1:
            raise httpx2.ReadError("connection reset", request=request)
        return httpx2.Response(201, json={"id": "s-1"})

    assert client_of(answer).submit_sweep({"trials": 3}, idempotency_key="k")["id"] == "s-1"
    assert asked == [("POST", "/v1/sweeps", "k")] * 2


def test_sweeps_are_asked_for_where_they_are():
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, str(request.url.raw_path, "ascii"), request.content))
        return httpx2.Response(200, json={"items": [{"id": "s-1"}, {"id": "s-2"}], "next_cursor": None})

    cell = client_of(answer)
    assert [sweep["id"] for sweep in cell.sweeps(limit=1, state=["RUNNING", "STOPPING"])] == ["s-1"]
    cell.sweep("a b")
    cell.sweep_curves("s-1", limit=500)
    cell.sweep_curves("s-1")
    cell.cancel_sweep("s-1", note="why")
    assert asked == [
        ("GET", "/v1/sweeps?state=RUNNING&state=STOPPING&limit=1", b""),
        ("GET", "/v1/sweeps/a%20b", b""),
        ("GET", "/v1/sweeps/s-1/curves?limit=500", b""),
        ("GET", "/v1/sweeps/s-1/curves", b""),
        ("POST", "/v1/sweeps/s-1/cancel", b'{"note":"why"}'),
    ]


def test_a_gateway_that_is_not_there_is_not_waited_for():
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        raise httpx2.ConnectError("refused", request=request)

    with pytest.raises(Unreachable):
        client_of(answer).submit({"command": ["true"]})
    assert len(asked) == 1


def test_the_key_is_told_when_the_outcome_stays_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "IN_DOUBT_S", 0.0)

    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("reset", request=request)

    with pytest.raises(Unreachable, match="my-key"):
        client_of(answer).submit({"command": ["true"]}, idempotency_key="my-key")


def test_a_problem_document_becomes_an_error():
    document = {"title": "There is no such thing", "detail": "no job j-9", "did_you_mean": "j-8", "errors": []}
    with pytest.raises(ApiError) as caught:
        client_of(lambda request: httpx2.Response(404, json=document)).job("j-9")
    error = caught.value
    assert (error.status, error.did_you_mean, str(error)) == (404, "j-8", "no job j-9")


def test_something_else_that_answers_is_no_gateway():
    with pytest.raises(Unreachable, match="no gateway"):
        client_of(lambda request: httpx2.Response(200, text="<html>")).status()
    with pytest.raises(ApiError, match="bad gateway"):
        client_of(lambda request: httpx2.Response(502, text="bad gateway")).status()


def test_pages_are_joined_and_a_limit_is_asked_for():
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(dict(request.url.params))
        more = "cursor" not in request.url.params
        return httpx2.Response(200, json={"items": [{"id": len(asked)}], "next_cursor": "o1" if more else None})

    cell = client_of(answer)
    assert [job["id"] for job in cell.jobs(state=["RUNNING"])] == [1, 2]
    assert asked[1] == {"state": "RUNNING", "limit": "500", "cursor": "o1"}
    assert [job["id"] for job in cell.jobs(limit=1)] == [3] and asked[2]["limit"] == "1"


def test_names_are_quoted():
    paths = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.raw_path)
        return httpx2.Response(200, json={"id": "x"})

    client_of(answer).why("a/b?c")
    assert paths == [b"/v1/jobs/a%2Fb%3Fc/why"]


def test_a_gateway_without_tls_is_asked_without_reading_certificates(monkeypatch: pytest.MonkeyPatch):
    def read(*_: object, **__: object) -> None:
        raise AssertionError("certificates are read")

    monkeypatch.setattr(httpcore2, "default_ssl_context", read)
    Client("http://gateway").close()
    with pytest.raises(AssertionError):
        Client("https://gateway")
