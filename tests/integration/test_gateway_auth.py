"""Which caller may do what."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from services.gateway.adapters.tokens import Tokens
from tests.integration.gateway_cell import CONTROL, Cell, running_cell


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    file = tmp_path / "tokens.yaml"
    reader = hashlib.sha256(b"the-reader's-token").hexdigest()
    entries = [
        {"name": "rita", "sha256": reader, "scopes": ["read"]},
        {"name": "sam", "token": "the-submitter's-token", "scopes": ["read", "submit"]},
        {"name": "eve", "token": "another-submitter's-token", "scopes": ["read", "submit"]},
        {"name": "nina", "token": "the-linguist's-token", "scopes": ["read", "submit"], "tenants": ["nlp"]},
        {"name": "olga", "token": "the-operator's-token", "scopes": ["operate"]},
        {"name": "ada", "token": "the-admin's-token", "scopes": ["admin"]},
    ]
    file.write_text(yaml.safe_dump({"tokens": entries}))
    async with running_cell(tmp_path, tokens=Tokens.read(file)) as cell:
        yield cell


def bearer(caller: str) -> dict[str, str]:
    return {"Authorization": f"Bearer the-{caller}'s-token"}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic dXNlcjpwdw=="}])
async def test_requests_without_a_token_are_refused(cell: Cell, headers: dict[str, str]) -> None:
    answer = await cell.client.get("/v1/jobs", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    if "Bearer wrong" not in headers.values():
        assert "send `Authorization: Bearer TOKEN`" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/problems/invalid"])
async def test_probes_and_the_page_itself_are_open(cell: Cell, path: str) -> None:
    assert (await cell.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("caller", "method", "path", "body", "status"),
    [
        ("reader", "GET", "/v1/jobs", None, 200),
        ("reader", "POST", "/v1/jobs", {"command": ["x"]}, 403),
        ("submitter", "POST", "/v1/jobs", {"command": ["x"]}, 201),
        ("submitter", "POST", "/v1/nodes/n1/drain", {"reason": "r"}, 403),
        ("submitter", "PUT", "/v1/tenants/vision", {"gpu_limit": 1}, 403),
        ("operator", "POST", "/v1/nodes/n1/drain", {"reason": "r"}, 404),
        ("operator", "GET", "/v1/jobs", None, 403),
        ("operator", "PUT", "/v1/policy", {"policy": "strict_fifo"}, 403),
        ("admin", "PUT", "/v1/tenants/vision", {"gpu_limit": 1}, 202),
        ("admin", "POST", "/v1/jobs", {"command": ["x"]}, 201),
    ],
)
async def test_scopes(cell: Cell, caller: str, method: str, path: str, body: object, status: int) -> None:
    answer = await cell.client.request(method, path, json=body, headers=bearer(caller))
    assert answer.status_code == status, answer.text
    if status == 403:
        assert answer.json()["type"] == "/problems/forbidden"


async def test_a_token_for_some_tenants_is_for_their_jobs_alone(cell: Cell) -> None:
    nlp = {"command": ["x"], "tenant": "nlp"}
    own = (await cell.client.post("/v1/jobs", json=nlp, headers=bearer("linguist"))).json()["id"]
    for tenant in ({}, {"tenant": "vision"}):
        refused = await cell.client.post("/v1/jobs", json={"command": ["x"], **tenant}, headers=bearer("linguist"))
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/forbidden")
    assert "nina is not for tenant vision (it is for nlp)" in refused.json()["detail"]
    other = (await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=bearer("submitter"))).json()["id"]
    asked = [("GET", "logs"), ("GET", "files"), ("GET", "files/model.pt"), ("POST", "cancel"), ("POST", "pause")]
    for method, what in asked:
        answer = await cell.client.request(method, f"/v1/jobs/{other}/{what}", headers=bearer("linguist"))
        assert answer.status_code == 403, what
        answer = await cell.client.request(method, f"/v1/jobs/{own}/{what}", headers=bearer("linguist"))
        assert answer.status_code != 403, what
        answer = await cell.client.request(method, f"/v1/jobs/{own}/{what}", headers=bearer("admin"))
        assert answer.status_code != 403, what
    assert (await cell.client.get(f"/v1/jobs/{other}", headers=bearer("linguist"))).status_code == 200


async def test_a_token_for_some_tenants_is_for_their_sweeps_alone(cell: Cell) -> None:
    sweep = {
        "trial": {"command": ["x"], "tenant": "vision"},
        "space": {"lr": {"type": "float", "low": 0.1, "high": 1}},
        "objective": {"metric": "accuracy", "direction": "maximize"},
        "trials": 2,
    }
    assert (await cell.client.post("/v1/sweeps", json=sweep, headers=bearer("linguist"))).status_code == 403
    found = await cell.client.post("/v1/sweeps", json=sweep, headers=bearer("submitter"))
    assert found.status_code == 201, found.text
    path = f"/v1/sweeps/{found.json()['id']}/cancel"
    assert (await cell.client.post(path, headers=bearer("linguist"))).status_code == 403
    assert (await cell.client.post(path, headers=bearer("submitter"))).status_code == 202


async def test_a_token_for_some_tenants_is_for_their_arrays_and_dags_alone(cell: Cell) -> None:
    array = {"command": ["x"], "tenant": "vision", "array": "0-3"}
    dag = {"jobs": [{"name": "a", "command": ["x"], "tenant": "vision"}]}
    for path, body in (("/v1/jobs", array), ("/v1/dags", dag)):
        assert (await cell.client.post(path, json=body, headers=bearer("linguist"))).status_code == 403, path
        found = await cell.client.post(path, json=body, headers=bearer("submitter"))
        assert found.status_code == 201, found.text
        pause = f"{found.json()['url']}/pause"
        assert (await cell.client.post(pause, headers=bearer("linguist"))).status_code == 403, path


async def test_a_request_carries_the_name_of_its_user(cell: Cell) -> None:
    answer = await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=bearer("submitter"))
    job = await cell.client.get(answer.json()["url"], headers=bearer("reader"))
    assert (job.json()["user"], job.json()["submitted_by"]) == ("sam", "sam")


async def test_keys_belong_to_their_sender(cell: Cell) -> None:
    key = {"Idempotency-Key": "1"}
    first = await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=key | bearer("submitter"))
    other = {"Authorization": "Bearer another-submitter's-token"}
    second = await cell.client.post("/v1/jobs", json={"command": ["y"]}, headers=key | other)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


async def test_strangers_append_nothing(cell: Cell) -> None:
    await cell.client.post("/v1/jobs", json={"command": ["x"]})
    await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=bearer("reader"))
    assert await cell.bus.end_offset(CONTROL) == 0


async def test_without_tokens_only_this_machine_is_served(tmp_path: Path) -> None:
    async with running_cell(tmp_path) as cell:
        answer = await cell.client.get("/v1/jobs", headers={"Host": "evil.example:8420"})
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")
        for host in ("localhost:8420", "127.0.0.1", "[::1]:8420"):
            assert (await cell.client.get("/v1/jobs", headers={"Host": host})).status_code == 200
        posted = await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers={"Sec-Fetch-Site": "cross-site"})
        assert posted.status_code == 403


async def test_a_link_lets_one_browser_in_with_the_rights_of_its_token(cell: Cell) -> None:
    assert (await cell.client.post("/v1/browser-logins")).status_code == 401
    made = await cell.client.post("/v1/browser-logins", headers=bearer("submitter"))
    assert made.status_code == 201
    link = made.json()["path"]
    entered = await cell.client.get(link)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    said = entered.headers["set-cookie"]
    assert "HttpOnly" in said and "SameSite=strict" in said and "the-submitter" not in said
    assert (await cell.client.get("/v1/jobs")).status_code == 200, "the client keeps the cookie, as a browser does"
    page = {"Origin": "http://localhost"}
    assert (await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=page)).status_code == 201
    assert (await cell.client.put("/v1/tenants/vision", json={"gpu_limit": 1}, headers=page)).status_code == 403
    cell.client.cookies.clear()
    again = await cell.client.get(link)
    assert again.status_code == 401 and "sanjaya page" in again.text
    assert (await cell.client.get("/v1/jobs")).status_code == 401


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://localhost:9999"}, {"Origin": "null"}])
async def test_other_pages_change_nothing_with_the_cookie(cell: Cell, headers: dict[str, str]) -> None:
    made = await cell.client.post("/v1/browser-logins", headers=bearer("admin"))
    await cell.client.get(made.json()["path"])
    answer = await cell.client.post("/v1/jobs", json={"command": ["x"]}, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")
    assert await cell.bus.end_offset(CONTROL) == 0


async def test_without_tokens_a_link_needs_no_code(tmp_path: Path) -> None:
    async with running_cell(tmp_path) as cell:
        assert (await cell.client.post("/v1/browser-logins")).json() == {"path": "/", "valid_s": 0.0}
