"""Streams of a gateway: lines as they are, and events that outlive a restart of the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import httpx2

from libs.client.errors import ApiError, Unreachable

PATIENCE_S = 60.0
"""How long a gateway may be away before its followers give up."""
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0
NOT_NOW = 503

Opening = Callable[[str | None], AbstractContextManager[httpx2.Response]]
"""Opens the stream behind the event with this id; None: at its start."""


def followed(opening: Opening, patience_s: float = PATIENCE_S) -> Iterator[httpx2.ServerSentEvent]:
    """Events without end: when the stream ends or breaks, it is opened again where it was. The reader has to stop.

    Raises:
        Unreachable: no gateway answered at the beginning, or for `patience_s` later on.
        ApiError: the gateway refuses.
    """
    last: str | None = None
    heard_s: float | None = None
    wait_s = SHORTEST_WAIT_S
    while True:
        try:
            with opening(last) as answer:
                heard_s, wait_s = time.monotonic(), SHORTEST_WAIT_S
                for sent in httpx2.EventSource(answer, max_event_size=None):
                    last = sent.id or last
                    if sent.data:
                        yield sent
                    heard_s = time.monotonic()
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status != NOT_NOW:
                raise
            if heard_s is None or time.monotonic() - heard_s > patience_s:
                raise
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines, each with its line feed, and at nothing but line feeds: JSON strings may hold other separators raw."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
