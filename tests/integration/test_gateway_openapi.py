"""The document says what the gateway does: checked by requests that are made of it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from libs.bus.http.protocol import ROOT
from libs.contracts.placement import JobSucceeded
from libs.testing.core_case import node
from libs.testing.effort import searching
from libs.testing.thorough import THOROUGH
from services.gateway.adapters.tokens import Tokens
from services.gateway.app import openapi_document
from tests.integration.gateway_cell import CONTROL, Cell, running_cell
from tests.unit.projection.story import grant, placed, started
from tests.unit.projection.sweep_story import report, sweep_arrived, trial

TOKEN = "the-admin's-token"


class ServedCell:
    """A cell on a socket, in a thread with an event loop of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._closing = AsyncExitStack()
        self.cell: Cell
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)

    async def _open(self) -> None:
        file = self._folder / "tokens.yaml"
        file.write_text(yaml.safe_dump({"tokens": [{"name": "ada", "token": TOKEN, "scopes": ["admin"]}]}))
        running = running_cell(self._folder, serve=True, tokens=Tokens.read(file))
        self.cell = await self._closing.enter_async_context(running)
        self.cell.client.headers["Authorization"] = f"Bearer {TOKEN}"
        self.url = str(self.cell.client.base_url)
        await self.cell.say(node("n1", 4), node("n2", 4))
        done, runs = await self.cell.submit(name="done"), await self.cell.submit(name="runs", gpus=2)
        await self.cell.submit(name="waits")
        await self.cell.say(JobSucceeded(job_id=done, attempt=1), grant(runs), placed(runs))
        await self.cell.say(started("n1", job_id=runs), started("n2", job_id=runs))
        await self.cell.say(sweep_arrived(), *trial(0), report(0, 1, 0.5), report(0, 2, 0.6))
        await self.cell.get("/v1/jobs")

    def end_offset(self) -> int:
        return asyncio.run_coroutine_threadsafe(self.cell.bus.end_offset(CONTROL), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._closing.aclose(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCell]:
    served = ServedCell(tmp_path_factory.mktemp("cell"))
    served.start()
    yield served
    served.stop()


def document() -> dict[str, Any]:
    """The document; it needs no running gateway."""

    return openapi_document()


def without_security() -> dict[str, Any]:
    """The document as for a cell without tokens: every request below carries one anyway."""
    whole = document()
    for operations in whole["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return whole


schema = (
    schemathesis.openapi.from_dict(without_security())
    .exclude(operation_id="uploadCode")
    .exclude(path_regex=f"^{ROOT}/")
)
"""Uploads and what agents ask are not JSON, and have tests of their own."""
# Cases at the edges of what the document allows are made when tests are collected, by each process of a run.
schema.config.phases.coverage.enabled = THOROUGH


@schema.parametrize()
@settings(
    searching(by_default=6, thorough=60),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_requests_made_of_the_document_are_answered_as_it_says(case: Any, served: ServedCell) -> None:
    before = served.end_offset()
    response = case.call(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120)
    # A request may be of the right form and still mean nothing here: a job that is not there, a tenant's limit.
    excluded = [positive_data_acceptance] + ([negative_data_rejection] if response.status_code == 413 else [])
    case.validate_response(response, excluded_checks=excluded)
    if 400 <= response.status_code < 500:
        assert response.headers["content-type"] == ["application/problem+json"]
        assert served.end_offset() == before, "a refused request has appended something"


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [op["operationId"] for path in document()["paths"].values() for op in path.values()]
    assert len(names) == len(set(names)) > 25
    assert all(re.fullmatch(r"[a-z]+[A-Za-z]*", name) for name in names)


def test_every_operation_says_what_it_does_and_how_it_fails() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            assert operation["description"], f"{method} {path}"
            if path.startswith("/v1/"):
                assert {"401", "403", "422", "503"} <= set(operation["responses"]), f"{method} {path}"


def test_every_body_has_an_example() -> None:
    components = document()["components"]["schemas"]
    names = ("JobRequest", "CancelRequest", "JobPatch", "DrainRequest", "TenantRequest", "PolicyRequest")
    for name in (*names, "SweepRequest", "CancelSweepRequest"):
        assert components[name]["examples"], name


def test_every_reference_leads_somewhere() -> None:
    whole = document()
    found = set(re.findall(r"'\$ref': '#/components/schemas/([A-Za-z0-9_-]+)'", str(whole)))
    assert found <= set(whole["components"]["schemas"])
    assert whole["openapi"].startswith("3.1")
