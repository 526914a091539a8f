"""What surrounds every request: the hosts it may be addressed to, headers for browsers, measurements."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from services.gateway.door import Gateway
from services.gateway.problems import Problem, shown

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


_BY_TLS = "sanjaya.by_tls"


class ByTls:
    """ASGI middleware of the address for other machines (`GatewaySettings.secure_listen`)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. A mark of our own: a proxy's headers may say `https` of any."""
        await self._app({**scope, _BY_TLS: True}, receive, send)


def came_by_tls(scope: Scope) -> bool:
    """Whether a request came in by the address for other machines."""
    return bool(scope.get(_BY_TLS, False))


class Guard:
    """ASGI middleware.

    Where no tokens are configured and only this machine is served, a request must be addressed to this machine
    by name: else any web page could have a browser here send requests, under a name of its own that leads here.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = app, gateway
        self._local_only = gateway.tokens is None and not gateway.settings.anonymous

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        refusal = self._refusal(Request(scope)) if self._is_local_only(scope) else None
        try:
            if refusal is not None:
                await refusal.response(scope["path"])(scope, receive, measured)
            else:
                await self._app(scope, receive, measured)
        finally:
            self._measure(scope, status, time.perf_counter() - started)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A browser lets any page open WebSockets to anywhere; it names the page's site in `Origin`."""
        socket = WebSocket(scope, receive, send)
        refusal = self._refusal(socket) if self._is_local_only(scope) else None
        origin = socket.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != socket.headers.get("host"):
            refusal = Problem("forbidden", "the request comes from a page of another site")
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await socket.send_denial_response(refusal.response(scope["path"]))

    def _is_local_only(self, scope: Scope) -> bool:
        """By TLS every request needs a token, which no web page makes a browser send."""
        return self._local_only and not came_by_tls(scope)

    def _refusal(self, request: HTTPConnection) -> Problem | None:
        host = request.headers.get("host", "")
        name = host[: host.rindex(":")] if ":" in host and not host.endswith("]") else host
        if name.lower() not in _LOCAL_NAMES:
            return Problem(
                "forbidden",
                f'without tokens the gateway answers requests to localhost only, this one is for "{shown(name)}"',
            )
        if request.scope.get("method") not in ("GET", "HEAD", "OPTIONS", None) and request.headers.get(
            "sec-fetch-site"
        ) in (
            "cross-site",
            "same-site",
        ):
            return Problem("forbidden", "the request comes from a page of another site")
        return None

    def _measure(self, scope: Scope, status: int, took_s: float) -> None:
        operation = getattr(scope.get("route"), "operation_id", None) or "other"
        metrics = self._gateway.metrics
        metrics.requests.labels(operation, scope["method"] if operation != "other" else "any", str(status)).inc()
        if operation not in ("readEvents", "readJobLogs", "readJobFile", "exportLog", "readBus"):
            metrics.request_seconds.labels(operation).observe(took_s)
