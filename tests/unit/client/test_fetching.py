"""Fetching files in parts: breaks, damage, changes."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from libs.client import ApiError, Client, Unreachable, fetching
from libs.client.fetching import Damaged, fetch_file, walked

CONTENT = os.urandom(1000)


class Gateway:
    """Answers for a job with one file; `before` is asked first and may answer otherwise."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content, self.tag = content, '"1"'
        self.asked: list[int] = []
        self.before: Callable[[int], httpx2.Response | None] = lambda number: None
        self.client = Client("http://gateway")
        self.client._http = httpx2.Client(base_url="http://gateway", transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        self.asked.append(first)
        if (other := self.before(len(self.asked))) is not None:
            return other
        if request.headers.get("If-Match", self.tag) != self.tag:
            return httpx2.Response(412, json={"title": "It has changed meanwhile"})
        return self.part(self.content[first : last + 1], first)

    def part(self, content: bytes, first: int, sent: bytes | None = None) -> httpx2.Response:
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        headers = {"ETag": self.tag, "Content-Digest": f"sha-256=:{digest}:"}
        headers["Content-Range"] = f"bytes {first}-{first + len(content) - 1}/{len(self.content)}"
        return httpx2.Response(206, content=content if sent is None else sent, headers=headers)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 300)
    monkeypatch.setattr(fetching, "SHORTEST_WAIT_S", 0.001)


def test_a_file_comes_in_parts_and_appears_whole(tmp_path: Path):
    gateway, told = Gateway(), []
    fetch_file(gateway.client, "j-1", "runs/model.pt", tmp_path / "model.pt", on_bytes=told.append)
    assert (tmp_path / "model.pt").read_bytes() == CONTENT
    assert (gateway.asked, sum(told), os.listdir(tmp_path)) == ([0, 300, 600, 900], 1000, ["model.pt"])
    fetch_file(Gateway(b"").client, "j-1", "empty", tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_break_is_waited_for_in_the_middle_and_gone_on_from_later(tmp_path: Path):
    gateway = Gateway()

    def away(number: int) -> httpx2.Response | None:
        if number == 2:
            return httpx2.Response(503, json={"title": "Not now"})
        if number == 4:
            raise httpx2.ConnectError("refused")
        return None

    gateway.before = away
    fetch_file(gateway.client, "j-1", "model.pt", tmp_path / "model.pt")
    assert gateway.asked == [0, 300, 300, 600, 600, 900]
    broken = Gateway()

    def gone(number: int) -> httpx2.Response | None:
        if number > 3:
            raise httpx2.ConnectError("refused")
        return None

    broken.before = gone
    with pytest.raises(Unreachable):
        fetch_file(broken.client, "j-1", "other.pt", tmp_path / "other.pt", patience_s=0.0)
    assert not (tmp_path / "other.pt").exists()
    (part,) = tmp_path.glob(".other.pt.*")
    with part.open("ab") as file:
        file.write(b"half a part")
    again = Gateway()
    fetch_file(again.client, "j-1", "other.pt", tmp_path / "other.pt")
    assert again.asked == [0, 900] and (tmp_path / "other.pt").read_bytes() == CONTENT
    assert sorted(os.listdir(tmp_path)) == ["model.pt", "other.pt"]


def test_a_damaged_part_is_fetched_again_but_not_for_ever(tmp_path: Path):
    gateway = Gateway()
    gateway.before = lambda number: gateway.part(CONTENT[:300], 0, sent=b"x" * 300) if number == 1 else None
    fetch_file(gateway.client, "j-1", "model.pt", tmp_path / "model.pt")
    assert gateway.asked[:2] == [0, 0] and (tmp_path / "model.pt").read_bytes() == CONTENT
    gateway.before = lambda number: gateway.part(CONTENT[:300], 0, sent=b"x" * 300)
    with pytest.raises(Damaged, match="j-1:bad: the part at byte 0"):
        fetch_file(gateway.client, "j-1", "bad", tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_parts_of_another_content_are_not_mixed(tmp_path: Path):
    gateway = Gateway()

    def changed(number: int) -> httpx2.Response | None:
        gateway.tag = '"2"' if number > 1 else '"1"'
        return None

    gateway.before = changed
    with pytest.raises(ApiError) as refused:
        fetch_file(gateway.client, "j-1", "model.pt", tmp_path / "model.pt")
    assert refused.value.status == 412 and not (tmp_path / "model.pt").exists()


@pytest.mark.parametrize("name", ["..", "a/b", "/etc/passwd", "."])
def test_a_name_that_leads_elsewhere_is_refused(name: str):
    class Listing:
        def job_files(self, job: str, path: str, *, rank: int) -> dict[str, Any]:
            return {"items": [{"name": name, "kind": "file"}]}

    with pytest.raises(Damaged, match="no name of a file"):
        list(walked(Listing(), "j-1", ""))  # type: ignore[arg-type]
