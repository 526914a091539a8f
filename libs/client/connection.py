"""A connection to a gateway, with the client's own errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import httpx2

from libs.client.errors import ApiError, Unreachable
from libs.client.streams import lines

Json = dict[str, Any]
TIMEOUT_S = 35.0
"""Longer than the silence between two heartbeats of a stream."""


class Connection:
    """What the client's methods have in common.

    All methods raise ApiError when the gateway refuses, and Unreachable when it does not answer.
    """

    def __init__(self, base_url: str, token: str | None = None) -> None:
        self.base_url, self.token = base_url, token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Without TLS there is no certificate to verify (redirects are not followed), and to read those of the
        # authorities takes 50 ms of each command.
        verify = not base_url.lower().startswith("http://")
        try:
            self._http = httpx2.Client(base_url=base_url, headers=headers, timeout=TIMEOUT_S, verify=verify)
        except httpx2.InvalidURL as error:
            raise Unreachable(f"{base_url!r} is no address of a gateway: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connection."""
        self._http.close()

    def _ask(self, method: str, path: str, **arguments: Any) -> Json:
        """The JSON that is answered."""
        try:
            answer: Json = self._send(method, path, **arguments).json()
        except ValueError as error:
            raise Unreachable(f"what answers at {self.base_url} is no gateway: {error}") from None
        return answer

    def _send(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        """The answer, unless it is an error."""
        if "params" in arguments:
            arguments["params"] = {k: v for k, v in arguments["params"].items() if v is not None}
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx2.TransportError as error:
            raise Unreachable(f"no gateway answers at {self.base_url}: {error}") from error
        _check(answer)
        return answer

    def _pages(self, path: str, filters: Json) -> Iterator[Json]:
        """The items of all pages."""
        cursor = None
        while True:
            page = self._ask("GET", path, params={**filters, "cursor": cursor})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _json_lines(self, path: str, filters: Json) -> Iterator[Json]:
        """Answered line by line."""
        with self._stream(path, filters) as answer:
            for line in lines(answer.iter_bytes()):
                yield json.loads(line)

    def _stream(self, path: str, filters: Json, last_event: str | None = None) -> _Streaming:
        """An answer that lasts: events with `follow`, else JSON lines.

        Args:
            last_event: id of the event to go on behind.
        """
        params = {name: value for name, value in filters.items() if value is not None}
        headers = {"Accept": "text/event-stream" if params.get("follow") else "application/x-ndjson"}
        if last_event is not None:
            headers["Last-Event-ID"] = last_event
        return _Streaming(self.base_url, self._http.stream("GET", path, params=params, headers=headers))


class _Streaming:
    """A response that lasts, with the client's own errors."""

    def __init__(self, base_url: str, opening: AbstractContextManager[httpx2.Response]) -> None:
        self._base_url, self._opening = base_url, opening

    def __enter__(self) -> httpx2.Response:
        try:
            answer = self._opening.__enter__()
        except httpx2.TransportError as error:
            raise Unreachable(f"no gateway answers at {self._base_url}: {error}") from error
        if answer.is_error:
            answer.read()
            self._opening.__exit__(None, None, None)
            _check(answer)
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opening.__exit__(kind, error, trace)
        if isinstance(error, httpx2.TransportError):
            raise Unreachable(f"the gateway at {self._base_url} broke off: {error}") from error


def _check(answer: httpx2.Response) -> None:
    if not answer.is_error:
        return
    try:
        document = answer.json()
    except ValueError:
        document = {"detail": answer.text[:500]}
    raise ApiError(answer.status_code, document if isinstance(document, dict) else {"detail": str(document)})
