"""Streams that are cut off, and go on where they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from libs.client import streams
from libs.client.errors import ApiError, Unreachable
from libs.client.streams import followed, lines


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SHORTEST_WAIT_S", 0.001)


def stream_of(text: str) -> httpx2.Response:
    request = httpx2.Request("GET", "http://gateway/v1/events")
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=text.encode(), request=request)


class Gateway:
    """Streams that are opened one after the other; an error stands for a gateway that is away."""

    def __init__(self, *sessions: str | Exception) -> None:
        self.sessions = list(sessions)
        self.asked: list[str | None] = []

    @contextmanager
    def open(self, last: str | None) -> Iterator[httpx2.Response]:
        self.asked.append(last)
        session = self.sessions.pop(0)
        if isinstance(session, Exception):
            raise session
        yield stream_of(session)


def test_a_stream_that_breaks_off_goes_on_behind_its_last_event():
    gateway = Gateway("id: 4\ndata: a\n\nid: 5\nda", Unreachable("away"), "id: 5\ndata: b\n\n")
    told = followed(gateway.open)
    assert [next(told).data, next(told).data] == ["a", "b"]
    assert gateway.asked == [None, "4", "4"]


def test_comments_and_hints_are_not_events():
    gateway = Gateway(": still here\n\n: log away\nretry: 2000\n\nid: 1\nevent: x\ndata: a\n\n")
    sent = next(followed(gateway.open))
    assert (sent.event, sent.data, sent.id) == ("x", "a", "1")


def test_a_client_that_finds_no_gateway_at_the_beginning_is_told_at_once():
    with pytest.raises(Unreachable):
        next(followed(Gateway(Unreachable("nothing listens")).open))


def test_a_client_that_waits_too_long_is_told():
    gateway = Gateway("id: 1\ndata: a\n\n", Unreachable("away"))
    told = followed(gateway.open, patience_s=-1)
    next(told)
    with pytest.raises(Unreachable):
        next(told)


def test_a_refusal_ends_it_but_a_log_that_is_away_does_not():
    gateway = Gateway("data: a\n\n", ApiError(503, {"title": "not now"}), "data: b\n\n", ApiError(404, {}))
    told = followed(gateway.open)
    assert [next(told).data, next(told).data] == ["a", "b"]
    with pytest.raises(ApiError):
        next(told)


def test_lines_end_at_line_feeds_alone():
    text = json.dumps({"text": "a\u2028b\x85c"}, ensure_ascii=False).encode() + b"\n"
    whole = text * 3
    for size in (1, 7, len(whole)):
        chunks = [whole[start : start + size] for start in range(0, len(whole), size)]
        assert list(lines(chunks)) == [text] * 3
    assert list(lines([b"a\nb"])) == [b"a\n", b"b"]
