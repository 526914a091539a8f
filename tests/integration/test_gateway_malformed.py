"""Whatever is sent: a problem document that names the place, nothing appended, and the gateway goes on."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from libs.testing.core_case import node
from tests.integration.gateway_cell import CONTROL, Cell, running_cell

MEGABYTE = 1024 * 1024


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path) as cell:
        await cell.say(node("n1", 4))
        yield cell


def deep(levels: int) -> bytes:
    return b'{"command":["x"],"labels":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


BODIES: list[tuple[str, Any, int, str]] = [
    ("no body", b"", 422, ""),
    ("null", b"null", 422, ""),
    ("a list", b"[]", 422, ""),
    ("nothing in it", b"{}", 422, "/command"),
    ("not JSON", b"{command: x}", 400, ""),
    ("cut off", b'{"command": ["x"', 400, ""),
    ("bad UTF-8", b'{"command": ["\xff\xfe"]}', 400, ""),
    ("UTF-16", '{"command": ["x"]}'.encode("utf-16"), 400, ""),
    ("NUL in a string", b'{"command": ["x\\u0000y"]}', 422, "/command/0"),
    ("NUL in a name", b'{"command": ["x"], "env": {"A\\u0000": "b"}}', 422, "/env/A\\0"),
    ("half a surrogate pair", b'{"command": ["x"], "labels": {"a": "\\ud800"}}', 422, "/labels/a"),
    ("NaN", b'{"command": ["x"], "deadline_s": NaN}', 400, ""),
    ("Infinity", b'{"command": ["x"], "deadline_s": -Infinity}', 400, ""),
    ("overflow to infinity", b'{"command": ["x"], "deadline_s": 1e999}', 422, "/deadline_s"),
    ("a number of 5000 digits", b'{"command": ["x"], "priority": ' + b"9" * 5000 + b"}", 400, ""),
    ("a number of 400 digits", b'{"command": ["x"], "deadline_s": ' + b"9" * 400 + b"}", 422, "/deadline_s"),
    ("a key twice", b'{"command": ["x"], "gpus": 1, "gpus": 2}', 400, "/gpus"),
    ("deep nesting", deep(100), 400, ""),
    ("very deep nesting", deep(100_000), 400, ""),
    ("unknown member", {"command": ["x"], "gpu": 1}, 422, "/gpu"),
    ("unknown member inside", {"command": ["x"], "gpus": {"cout": 1}}, 422, "/gpus/cout"),
    ("gpus 0", {"command": ["x"], "gpus": 0}, 422, "/gpus/count"),
    ("gpus -1", {"command": ["x"], "gpus": -1}, 422, "/gpus/count"),
    ("gpus 10^9", {"command": ["x"], "gpus": 10**9}, 422, "/gpus/count"),
    ("gpus true", {"command": ["x"], "gpus": True}, 422, "/gpus"),
    ("gpus 1.5", {"command": ["x"], "gpus": 1.5}, 422, "/gpus"),
    ("gpus null", {"command": ["x"], "gpus": None}, 422, "/gpus"),
    ("gpus of no sense", {"command": ["x"], "gpus": "many"}, 201, ""),
    ("gpus of less sense", {"command": ["x"], "gpus": "v100:many"}, 422, "/gpus"),
    ("no types are left", {"command": ["x"], "gpus": {"types": ["a"], "excluded_types": ["a"]}}, 422, "/gpus"),
    ("empty command", {"command": []}, 422, "/command"),
    ("blank command", {"command": "  "}, 422, "/command"),
    ("a number as command", {"command": 7}, 422, "/command"),
    ("a number as word", {"command": ["x", 7]}, 422, "/command/1"),
    ("a name with a slash", {"command": ["x"], "name": "a/b"}, 422, "/name"),
    ("a tenant in capitals", {"command": ["x"], "tenant": "Vision"}, 422, "/tenant"),
    ("a class of its own", {"command": ["x"], "class": "vip"}, 422, "/class"),
    ("a class in capitals", {"command": ["x"], "class": "Opportunistic"}, 422, "/class"),
    ("a priority beyond reason", {"command": ["x"], "priority": 2**70}, 422, "/priority"),
    ("a priority as text", {"command": ["x"], "priority": "5"}, 422, "/priority"),
    ("less than no retries", {"command": ["x"], "max_retries": -1}, 422, "/max_retries"),
    ("a variable with =", {"command": ["x"], "env": {"A=B": "c"}}, 422, "/env/A=B"),
    ("a number as value", {"command": ["x"], "env": {"A": 1}}, 422, "/env/A"),
    ("elastic around it", {"command": ["x"], "gpus": 1, "elastic": "2:8"}, 422, "/elastic"),
    ("elastic of no sense", {"command": ["x"], "elastic": "2-8"}, 422, "/elastic"),
    ("no time", {"command": ["x"], "time_limit_s": 0}, 422, "/time_limit_s"),
    ("a time of no sense", {"command": ["x"], "time_limit_s": "soon"}, 422, "/time_limit_s"),
    ("a launcher of its own", {"command": ["x"], "launcher": "mpirun"}, 422, "/launcher"),
    ("code that was never sent", {"command": ["x"], "code_id": "c-" + "a" * 32}, 422, "/code_id"),
    ("code of no sense", {"command": ["x"], "code_id": "../../etc/passwd"}, 422, "/code_id"),
    ("too many labels", {"command": ["x"], "labels": {f"l{n}": "x" for n in range(65)}}, 422, "/labels"),
]


@pytest.mark.parametrize(("body", "status", "pointer"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
async def test_a_malformed_job_is_refused_and_named(cell: Cell, body: Any, status: int, pointer: str) -> None:
    before = await cell.bus.end_offset(CONTROL)
    if isinstance(body, bytes):
        answer = await cell.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    else:
        answer = await cell.client.post("/v1/jobs", json=body)
    assert answer.status_code == status, answer.text
    if status == 201:
        return
    problem = is_problem(answer)
    if pointer:
        assert pointer in [error["pointer"] for error in problem["errors"]], problem
    assert await cell.bus.end_offset(CONTROL) == before
    assert await cell.submit()


def is_problem(answer: httpx2.Response) -> dict[str, Any]:
    """The problem document; every member that RFC 9457 names is there."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("/problems/")
    assert problem["title"] and problem["detail"] and problem["instance"] == answer.request.url.path
    return problem


async def test_what_was_probably_meant_is_said(cell: Cell) -> None:
    answer = await cell.client.post("/v1/jobs", json={"command": ["x"], "max_retry": 1})
    problem = is_problem(answer)
    assert problem["did_you_mean"] == "max_retries"
    assert 'did you mean "max_retries"?' in problem["detail"]


async def test_all_errors_are_named_at_once(cell: Cell) -> None:
    answer = await cell.client.post("/v1/jobs", json={"comand": "x", "gpus": 0, "priority": "high"})
    errors = {error["pointer"]: error for error in is_problem(answer)["errors"]}
    assert set(errors) == {"/command", "/comand", "/gpus/count", "/priority"}
    assert (errors["/gpus/count"]["value"], errors["/comand"]["did_you_mean"]) == (0, "command")


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
async def test_a_body_of_100_megabytes_is_refused_without_being_kept(tmp_path: Path, declared: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"command": ["'
        for _ in range(100):
            yield b"x" * MEGABYTE

    async with running_cell(tmp_path, serve=True) as cell:
        headers = {"Content-Type": "application/json"} | (
            {"Content-Length": str(100 * MEGABYTE + 14)} if declared else {}
        )
        tracemalloc.start()
        try:
            answer = await cell.client.post("/v1/jobs", content=chunks(), headers=headers)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (answer.status_code, is_problem(answer)["type"]) == (413, "/problems/too-large")
        assert peak < 20 * MEGABYTE
        assert await cell.bus.end_offset(CONTROL) == 0
        assert await cell.submit()


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
async def test_another_media_type_is_refused(cell: Cell, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    answer = await cell.client.post("/v1/jobs", content=b'{"command": ["x"]}', headers=headers)
    assert (answer.status_code, is_problem(answer)["type"]) == (415, "/problems/media-type")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/jobs/", 404),
        ("GET", "/v1/jobs/j-nope", 404),
        ("GET", "/v1/jobs/j-nope/why", 404),
        ("GET", "/v1/jobs/%00", 422),
        ("GET", "/v1/jobs/a%2Fb", 404),
        ("GET", "/v1/jobs/" + "x" * 300, 422),
        ("PUT", "/v1/jobs", 405),
        ("DELETE", "/v1/nodes", 405),
        ("POST", "/v1/nodes/n9/drain", 422),
        ("POST", "/v1/nodes/n9/undrain", 404),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?limit=1001", 422),
        ("GET", "/v1/jobs?limit=x", 422),
        ("GET", "/v1/jobs?state=WAITING", 422),
        ("GET", "/v1/jobs?cursor=../etc", 422),
        ("GET", "/v1/jobs?label=novalue", 422),
        ("GET", "/v1/jobs?tenant=a%00b", 422),
        ("GET", "/v1/jobs?at_least_offset=-1", 422),
        ("GET", "/v1/jobs?tenat=vision", 422),
        ("POST", "/v1/jobs?dryrun=1", 422),
        ("GET", "/v1/events?type=job.plced.v1", 422),
        ("GET", "/v1/log/export?topic=secrets", 422),
        ("GET", "/v1/code/c-" + "a" * 32, 404),
        ("GET", "/problems/nope", 404),
    ],
)
async def test_errors_of_the_address_are_problems_too(cell: Cell, method: str, path: str, status: int) -> None:
    answer = await cell.client.request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_wrong_method_is_told_the_right_ones(cell: Cell) -> None:
    answer = await cell.client.put("/v1/jobs")
    assert (answer.headers["allow"], is_problem(answer)["status"]) == ("GET, POST", 405)


async def test_a_drain_needs_a_reason(cell: Cell) -> None:
    answer = await cell.client.post("/v1/nodes/n1/drain", json={"reason": ""})
    assert (answer.status_code, is_problem(answer)["errors"][0]["pointer"]) == (422, "/reason")


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "ümlaut"])
async def test_a_key_of_no_sense_is_refused(cell: Cell, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode()}
    answer = await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=headers)
    assert (answer.status_code, is_problem(answer)["errors"][0]["in"]) == (422, "header")


async def test_a_fault_is_a_problem_and_no_end(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(query: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(cell.gateway.database, "read", fail)
        answer = await cell.client.get("/v1/nodes")
        assert (answer.status_code, is_problem(answer)["type"]) == (500, "/problems/internal")
    assert (await cell.client.get("/v1/nodes")).status_code == 200


async def test_the_type_of_a_problem_leads_to_its_meaning(cell: Cell) -> None:
    problem = is_problem(await cell.client.post("/v1/jobs", json={}))
    page = await cell.client.get(problem["type"])
    assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, "text/plain")
