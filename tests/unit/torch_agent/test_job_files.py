"""Files of a node's jobs: what is served of them, and what is kept for how long."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from torch_agent.files.looking import JobFiles, NoSuchFile
from torch_agent.files.outputs import Outputs
from torch_agent.files.server import FileServer

from libs.node.serving import SIGNED, VALID_S, Proof, is_signed, signed

KEY = b"a key of the cell, long enough for it"
DAY_S = 86_400.0


class Node:
    """A node with one job, and what the gateway would ask of it."""

    def __init__(self, state_dir: Path, url: str) -> None:
        self.state_dir, self.url = state_dir, url
        self.work = state_dir / "tasks" / "j-1.1" / "work"
        self.kept = state_dir / "outputs" / "j-1"

    def get(self, what: str, path: str = "", job: str = "j-1", **headers: str) -> httpx2.Response:
        target = f"/{what}?{urlencode({'job': job, 'attempt': 1, 'path': path})}"
        proof = {SIGNED: signed(KEY, "n1", target, time.time())}
        return httpx2.get(f"{self.url}{target}", headers={**proof, **headers}, trust_env=False)

    def names(self, path: str = "") -> dict[str, str]:
        return {item["name"]: item["kind"] for item in self.get("list", path).json()["items"]}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    server = FileServer(tmp_path, "n1", Proof(KEY))
    node = Node(tmp_path, f"http://127.0.0.1:{server.start('127.0.0.1', 0)}")
    (node.work / "logs").mkdir(parents=True)
    (node.work / "train.py").write_text("print(1)")
    (node.work / "logs" / "a.txt").write_text("0123456789")
    (tmp_path / "journal.db").write_text("the agent's own")
    (tmp_path / "tasks" / "j-1.1" / "spec.json").write_text("its environment")
    yield node
    server.close()


def test_folders_are_listed_and_files_come_with_their_checksums(node: Node):
    assert node.names() == {"logs": "folder", "train.py": "file"}
    assert node.names("logs") == {"a.txt": "file"}
    assert node.names("logs/a.txt") == {"": "file"}
    answer = node.get("read", "logs/a.txt")
    digest = base64.b64encode(hashlib.sha256(b"0123456789").digest()).decode()
    assert (answer.status_code, answer.content) == (200, b"0123456789")
    assert answer.headers["Content-Digest"] == f"sha-256=:{digest}:"


def test_a_part_belongs_to_the_content_that_its_etag_names(node: Node):
    part = node.get("read", "logs/a.txt", Range="bytes=2-4")
    assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    assert base64.b64encode(hashlib.sha256(b"234").digest()).decode() in part.headers["Content-Digest"]
    assert node.get("read", "logs/a.txt", Range="bytes=-3").content == b"789"
    assert node.get("read", "logs/a.txt", Range="bytes=8-99").content == b"89"
    assert node.get("read", "logs/a.txt", Range="bytes=10-").status_code == 416
    assert node.get("read", "logs/a.txt", Range="lines=1-2").status_code == 416
    tag = {"If-Match": part.headers["ETag"]}
    assert node.get("read", "logs/a.txt", Range="bytes=5-", **tag).content == b"56789"
    (node.work / "logs" / "a.txt").write_text("another content")
    assert node.get("read", "logs/a.txt", Range="bytes=5-", **tag).status_code == 412
    (node.work / "empty").touch()
    assert node.get("read", "empty", Range="bytes=0-9").content == b""


@pytest.mark.parametrize(
    "path", ["../spec.json", "..", "logs/../../spec.json", "/etc/passwd", "out", "out/passwd", "up/spec.json", "a\0b"]
)
def test_no_path_leads_out_of_the_jobs_folder(node: Node, path: str):
    (node.work / "out").symlink_to("/etc")
    (node.work / "up").symlink_to("..")
    for what in ("read", "list"):
        answer = node.get(what, path)
        assert answer.status_code == 404 and "leads out" in answer.json()["detail"]


@pytest.mark.parametrize("job", ["..", ".", "", "../../tasks/j-1", "j-2", "j-1.1/work/../../j-1"])
def test_no_job_id_leads_elsewhere(node: Node, job: str):
    assert node.get("list", "", job=job).status_code == 404


def test_what_leads_out_is_listed_as_a_link_and_what_is_no_file_is_not_waited_for(node: Node):
    (node.work / "etc").symlink_to("/etc")
    (node.work / "gone").symlink_to("nowhere")
    (node.work / "again").symlink_to("logs")
    (node.work / "copy.py").symlink_to("train.py")
    os.mkfifo(node.work / "pipe")
    kinds = node.names()
    assert {name: kinds[name] for name in ("etc", "gone", "again", "copy.py", "pipe")} == {
        "etc": "link",
        "gone": "link",
        "again": "link",
        "copy.py": "file",
        "pipe": "other",
    }
    assert node.get("read", "pipe").status_code == 404


def test_a_folder_that_becomes_a_link_while_it_is_looked_at_leads_nowhere(tmp_path: Path, monkeypatch):
    files = JobFiles.of(tmp_path, "j-1", 1)
    (files.work / "sub").mkdir(parents=True)
    (files.work / "sub" / "passwd").write_text("own")
    true_open = os.open

    def exchanged(path: str, flags: int) -> int:
        (files.work / "sub").rename(files.work / "was")
        (files.work / "sub").symlink_to("/etc")
        return true_open(path, flags)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(NoSuchFile, match="leads out"), files.opened("sub/passwd"):
        pass


def test_requests_are_answered_that_were_signed_for_this_node_just_now(node: Node):
    target = f"/list?{urlencode({'job': 'j-1', 'attempt': 1, 'path': ''})}"
    for proof in ("", "x", f"{int(time.time())}:0", signed(b"another key", "n1", target, time.time())):
        answer = httpx2.get(f"{node.url}{target}", headers={SIGNED: proof}, trust_env=False)
        assert answer.status_code == 401
    good = signed(KEY, "n1", target, 1000.0)
    assert is_signed(KEY, "n1", target, good, 1000.0 + VALID_S)
    assert not is_signed(KEY, "n1", target, good, 1001.0 + VALID_S)
    assert not is_signed(KEY, "n2", target, good, 1000.0)
    assert not is_signed(KEY, "n1", f"{target}&path=x", good, 1000.0)
    assert not is_signed(KEY, "n1", target, signed(KEY, "n1", target, 1000.0 + DAY_S), 1000.0)


def outputs(folder: Path, most_bytes: int = 1000) -> Outputs:
    return Outputs(folder / "outputs", most_bytes, 14 * DAY_S)


def test_what_is_kept_outlives_the_working_directory_under_the_same_path(node: Node):
    (node.work / "runs" / "best").mkdir(parents=True)
    (node.work / "runs" / "best" / "uploaded.txt").write_text("1")
    kept = outputs(node.state_dir).link("j-1", "runs/best", node.work)
    (node.work / "runs" / "best" / "model.pt").write_text("2")
    assert kept == node.kept / "runs" / "best" and sorted(os.listdir(kept)) == ["model.pt", "uploaded.txt"]
    assert node.names("runs") == {"best": "folder"}
    assert node.names("runs/best") == {"model.pt": "file", "uploaded.txt": "file"}
    assert outputs(node.state_dir).link("j-1", "runs/best", node.work) == kept, "started again"
    (node.work / "logs").rename(node.state_dir / "gone")
    for path in (node.work / "train.py", node.work / "runs" / "best"):
        path.unlink()
    (node.work / "runs").rmdir()
    node.work.rmdir()
    assert node.names() == {"runs": "folder"}
    assert node.get("read", "runs/best/model.pt").content == b"2"


def test_what_is_kept_goes_when_it_is_too_old_or_too_much_but_never_of_a_job_that_runs(tmp_path: Path):
    for number, (job, size) in enumerate([("old", 10), ("first", 600), ("second", 500), ("active", 5000)]):
        folder = tmp_path / "outputs" / job / "runs"
        folder.mkdir(parents=True)
        (folder / "model").write_bytes(b"\0" * size)
        for path in (folder / "model", folder, folder.parent):
            os.utime(path, (100 * DAY_S + number, 100 * DAY_S + number) if number else (80 * DAY_S, 80 * DAY_S))
    kept = outputs(tmp_path)
    assert kept.clear({"active"}, 101 * DAY_S) == ["old", "first"]
    assert sorted(os.listdir(tmp_path / "outputs")) == ["active", "second"]
    assert kept.clear(set(), 101 * DAY_S) == ["second", "active"]
