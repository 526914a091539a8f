"""Uploads on a node: fetched whole or not at all, by however many tasks at once."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from torch_agent.cell_gateway import CellGateway
from torch_agent.code import CodeUnavailable, unpack

from libs.kernel import ids

FETCHERS = 6
BIG_BYTES = 12_000_000


def packed(content: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=0) as tar:
        info = tarfile.TarInfo("data.bin")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return target.getvalue()


def code_id_of(content: bytes) -> str:
    return ids.code_id(hashlib.sha256(content).digest())


class Uploads(ThreadingHTTPServer):
    """A gateway that knows one upload."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        self.content, self.served = content, 0
        self.asked_with: list[str | None] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Uploads

    def do_GET(self) -> None:
        self.server.served += 1
        self.server.asked_with.append(self.headers["Authorization"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def serving(content: bytes) -> Iterator[Uploads]:
    server = Uploads(content)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_tasks_that_fetch_one_upload_at_once_all_get_it_whole_and_fetch_it_once(tmp_path: Path):
    data = os.urandom(BIG_BYTES)
    content = packed(data)
    code_id, together = code_id_of(content), threading.Barrier(FETCHERS)
    with serving(content) as gateway, ThreadPoolExecutor(FETCHERS) as tasks:

        def start(number: int) -> Path:
            together.wait()
            unpack(code_id, CellGateway(gateway.url), tmp_path / "cache", tmp_path / f"work-{number}")
            return tmp_path / f"work-{number}" / "data.bin"

        for path in tasks.map(start, range(FETCHERS)):
            assert path.read_bytes() == data
        assert gateway.served == 1
    assert [path.name for path in (tmp_path / "cache").glob("*.gz*")] == [f"{code_id}.tar.gz"]


def test_a_damaged_copy_on_the_node_is_fetched_anew(tmp_path: Path):
    content = packed(b"whole")
    code_id, cache = code_id_of(content), tmp_path / "cache"
    cache.mkdir()
    (cache / f"{code_id}.tar.gz").write_bytes(content[:100])
    with serving(content) as gateway:
        unpack(code_id, CellGateway(gateway.url), cache, tmp_path / "work")
    assert (tmp_path / "work" / "data.bin").read_bytes() == b"whole"


def test_what_is_not_the_upload_is_refused_and_leaves_nothing(tmp_path: Path):
    code_id = code_id_of(packed(b"asked for"))
    with serving(packed(b"sent")) as gateway, pytest.raises(CodeUnavailable, match="something else"):
        unpack(code_id, CellGateway(gateway.url), tmp_path / "cache", tmp_path / "work")
    assert list((tmp_path / "cache").glob("*.gz*")) == []


def test_an_upload_is_fetched_with_the_agents_token(tmp_path: Path):
    content = packed(b"whole")
    with serving(content) as gateway:
        unpack(code_id_of(content), CellGateway(gateway.url, "secret"), tmp_path / "cache", tmp_path / "work")
        assert gateway.asked_with == ["Bearer secret"]
