"""The web page: whole, small, and from here alone."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.features import TRIALS, pool
from libs.testing.core_case import node
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


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed here")
async def test_a_browser_draws_the_nodes_and_says_which_are_set_apart(tmp_path: Path) -> None:
    async with running_cell(tmp_path / "cell", serve=True) as cell:
        await cell.say(node("n1", 4), node("p1", 2, features=[pool(TRIALS)]))
        await cell.get("/v1/nodes")
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
        command = [*browser, "--virtual-time-budget=8000", "--dump-dom", str(cell.client.base_url)]
        cards: dict[str, str] = {}
        async with asyncio.timeout(120.0):
            while cards.keys() != {"n1", "p1"}:  # what is written is the page as it is when its time is over
                process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
                drawn = (await process.communicate())[0].decode()
                cards = {
                    found[1]: found[0] for found in re.finditer(r'<div class="title"><b>(\w+)</b>.*?</div>', drawn)
                }
    assert "4 of 4 free" in cards["n1"] and "chip" not in cards["n1"]
    assert re.search(r'<span class="chip" title="set apart[^"]*">pool trial</span>', cards["p1"])


async def test_there_is_no_other_file(cell: Cell) -> None:
    for path in ("/web/nope.js", "/web/..%2fapp.py", "/web/../door.py", "/web/"):
        assert (await cell.client.get(path)).status_code == 404
