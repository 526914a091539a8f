"""The web page: whole, small, and from here alone."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.gateway_cell import Cell, running_cell

SVG = "http://www.w3.org/2000/svg"


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path) as cell:
        yield cell


async def files(cell: Cell) -> dict[str, str]:
    """The page and everything that it leads to."""
    found: dict[str, str] = {}
    left = ["/"]
    while left:
        path = left.pop()
        if path in found:
            continue
        answer = await cell.client.get(path)
        assert answer.status_code == 200, path
        found[path] = answer.text
        left += re.findall(r"""["'(](/web/[a-z.]+)["')]""", answer.text)
    return found


async def test_everything_that_the_page_needs_is_here(cell: Cell) -> None:
    found = await files(cell)
    assert {
        "/",
        "/web/app.js",
        "/web/style.css",
        "/web/icon.svg",
        "/web/chart.js",
        "/web/drawing.js",
        "/web/failures.js",
        "/web/group.js",
        "/web/letters.js",
        "/web/shares.js",
    } <= set(found)
    for path, text in found.items():
        assert [link for link in re.findall(r"https?://[^\"'\s]+", text) if link != SVG] == [], path


async def test_nothing_is_inline_so_that_nothing_needs_to_be_allowed(cell: Cell) -> None:
    html = (await files(cell))["/"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", html)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", html)
    answer = await cell.client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    assert answer.headers["content-type"].startswith("text/html")


async def test_text_of_jobs_cannot_become_markup(cell: Cell) -> None:
    for path, text in (await files(cell)).items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), path


async def test_the_page_is_small(cell: Cell) -> None:
    packed = sum(len(gzip.compress(text.encode())) for text in (await files(cell)).values())
    assert packed < 100_000


async def test_there_is_no_other_file(cell: Cell) -> None:
    for path in ("/web/nope.js", "/web/..%2fapp.py", "/web/../door.py", "/web/"):
        assert (await cell.client.get(path)).status_code == 404
