"""Where services reach this node's jobs: a small HTTP server that answers signed requests alone.

GET /list?job=…&attempt=…&path=…    {"folder": …, "items": […]}
GET /read?job=…&attempt=…&path=…    the content, or the range that is asked for
GET /stacks?job=…&attempt=…         {"items": […]}: what the processes of a running task do just now
GET /session?job=…&attempt=…&…      a WebSocket into the job (sessions/serving.py)

A part of at most `CHECKED_BYTES` carries the checksum of exactly what it carries (Content-Digest, RFC 9530), so that a
large file is fetched in parts, each of which is checked, and goes on where it was after a break. The ETag says which
content the parts belong to; If-Match refuses parts of another.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
import stat
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from libs.node.serving import Proof, is_signed
from libs.node.task import task_key
from torch_agent.files.looking import JobFiles, NoSuchFile
from torch_agent.folders import TaskFolder
from torch_agent.moving.sending import LOOPBACK
from torch_agent.sessions.entering import Entrance, NotEntered
from torch_agent.sessions.serving import serve
from torch_agent.stacks import stacks_of

log = logging.getLogger(__name__)

CHECKED_BYTES = 64 << 20
CHUNK = 1 << 20
IDLE_S = 60.0
RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Refused(Exception):
    """The request cannot be answered with what it asks for."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class FileServer:
    """Serves in threads of its own: reading from slow disks keeps nothing else waiting."""

    def __init__(self, state_dir: Path, node_id: str, proof: Proof, entrance: Entrance | None = None) -> None:
        """See `start`.

        Args:
            proof: what requests are to show.
            entrance: into the tasks of this node; None: files alone.
        """
        self._context = Context(state_dir, node_id, proof, entrance)
        self._server: ThreadingHTTPServer | None = None

    def start(self, address: str, port: int) -> int:
        """Listen where the gateway reaches this node, on this port if it is free. Returns the port."""
        host = "127.0.0.1" if address in LOOPBACK else "0.0.0.0"
        handler = type("Handler", (_Handler,), {"context": self._context})
        try:
            server = _Server((host, port), handler)
        except OSError:
            server = _Server((host, 0), handler)
        self._server = server
        threading.Thread(target=server.serve_forever, name="files", daemon=True).start()
        return int(server.server_address[1])

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class Context:
    """What every request is answered from."""

    def __init__(self, state_dir: Path, node_id: str, proof: Proof, entrance: Entrance | None) -> None:
        self.state_dir, self.node_id, self.proof, self.entrance = state_dir, node_id, proof, entrance


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A transfer that its receiver breaks off is no fault."""
        log.info("a transfer of files to %s broke off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    context: Context
    timeout = IDLE_S
    # HTTP/1.0, which is the class's own choice: a connection for each request, so that none outlives `close`.

    def do_GET(self) -> None:
        """Answer, once the sender has proven that it belongs to the cell."""
        if "Upgrade" in self.headers:
            self.protocol_version = "HTTP/1.1"  # also of refusals: a WebSocket's client understands no other
        try:
            known = self.context
            shown = self.headers.get(known.proof.header, "")
            if not is_signed(known.proof.key, known.node_id, self.path, shown, time.time()):
                raise Refused(401, "the request is not signed with the key of this cell")
            asked = urlsplit(self.path)
            if asked.path == "/session" and known.entrance is not None:
                serve(known.entrance, self.connection, self.path, self.headers.items())
                return
            if asked.path not in ("/list", "/read", "/stacks"):
                raise Refused(404, f"there is no {asked.path}")
            job_id, attempt, path = _fields(asked.query)
            files = JobFiles.of(known.state_dir, job_id, attempt)
            if asked.path == "/stacks":
                self._json(200, {"items": _stacks(known.state_dir, job_id, attempt)})
                return
            with files.opened(path) as descriptor:
                if asked.path == "/list":
                    self._json(200, {"folder": str(files.root), "items": files.listing(descriptor)})
                else:
                    self._send(descriptor, path)
        except NoSuchFile as error:
            self._json(404, {"detail": str(error)})
        except (Refused, NotEntered) as error:
            self._json(error.status, {"detail": str(error)})

    def _send(self, descriptor: int, path: str) -> None:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise Refused(404, f"{path!r} is no file")
        tag = f'"{seen.st_mtime_ns:x}-{seen.st_size:x}-{seen.st_ino:x}"'
        wanted = self.headers.get("If-Match")
        if wanted not in (None, "*", tag):
            raise Refused(412, f"{path!r} has changed since its first part was fetched")
        asked = self.headers.get("Range") if seen.st_size else None  # of nothing there is no part
        first, end = _range(asked, seen.st_size)
        self.send_response(200 if asked is None else 206)
        if asked is not None:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{seen.st_size}")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(end - first))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", tag)
        if end - first <= CHECKED_BYTES:
            self.send_header("Content-Digest", f"sha-256=:{_checksum(descriptor, first, end)}:")
        self.end_headers()
        at = first
        while at < end:
            chunk = os.pread(descriptor, min(CHUNK, end - at), at)
            if not chunk:  # it has become shorter: the receiver sees that bytes are missing
                self.close_connection = True
                return
            self.wfile.write(chunk)
            at += len(chunk)

    def _json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are logged by the gateway."""


def _stacks(state_dir: Path, job_id: str, attempt: int) -> list[dict[str, Any]]:
    found = stacks_of(TaskFolder(Path(state_dir) / "tasks" / task_key(job_id, attempt)))
    if not found:
        raise Refused(404, f"no process of attempt {attempt} of {job_id} that could say what it does runs here")
    return found


def _fields(query: str) -> tuple[str, int, str]:
    fields = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    try:
        return fields["job"], int(fields["attempt"]), fields.get("path", "")
    except (KeyError, ValueError):
        raise Refused(400, "expected job, attempt and path") from None


def _range(header: str | None, size: int) -> tuple[int, int]:
    """The first byte and the one behind the last.

    Raises:
        Refused: 416: not one range, or not within the file.
    """
    if header is None:
        return 0, size
    found = RANGE.fullmatch(header.strip())
    if found is None or found.groups() == ("", ""):
        raise Refused(416, f"{header!r} is not one range of bytes")
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    if int(first) >= size:
        raise Refused(416, f"the file has {size} bytes; there is none at {first}")
    return int(first), min(size, int(last) + 1) if last else size


def _checksum(descriptor: int, first: int, end: int) -> str:
    digest, at = hashlib.sha256(), first
    while at < end and (chunk := os.pread(descriptor, min(CHUNK, end - at), at)):
        digest.update(chunk)
        at += len(chunk)
    return base64.b64encode(digest.digest()).decode()
