"""A server that plays stores and hubs: the first part of a path says how it answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_S = 20.0
S3_CODES = {403: "AccessDenied", 404: "NoSuchKey", 429: "SlowDown", 503: "ServiceUnavailable"}
TIMES_OUT_AT_ONCE = struct.pack("ii", 1, 0)
"""The option with which closing a socket resets the connection."""


class _Answers(BaseHTTPRequestHandler):
    def answer(self) -> None:
        """As the first part of the path says."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        how = self.path.split("/")[1].partition("?")[0]
        if how.startswith("status-"):
            self._refuse(int(how.removeprefix("status-")))
        elif how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, TIMES_OUT_AT_ONCE)
            self.connection.close()
        elif how == "slow":
            time.sleep(SLOW_S)
        elif how == "truncated":
            self._send(200, "application/octet-stream", bytes(20_000), length=1_000_000)
        elif how == "html":
            self._send(200, "text/html", b"<!doctype html><title>Sign in</title><form></form>")
        else:
            self._send(200, "application/octet-stream", b"0123456789" * 20)

    do_GET = do_HEAD = do_PUT = do_POST = answer

    def _refuse(self, status: int) -> None:
        said = HTTPStatus(status).phrase
        if "aws" in self.headers.get("User-Agent", "").lower():
            body = f"<?xml version='1.0'?><Error><Code>{S3_CODES[status]}</Code><Message>{said}</Message></Error>"
            self._send(status, "application/xml", body.encode())
        else:
            self._send(status, "application/json", json.dumps({"error": said}).encode())

    def _send(self, status: int, kind: str, body: bytes, *, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that fail leave; that is what they are for."""


@contextmanager
def store() -> Iterator[str]:
    """The URL of a server, while it runs."""
    server = _Server(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
