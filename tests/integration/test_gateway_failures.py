"""Failed attempts over HTTP, on both databases, and as `sanjaya failures` shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import (
    FailureClassified,
    InputQuarantined,
    InputReleased,
    JobAbandoned,
    RepeatNoticed,
)
from libs.contracts.placement import AttemptFailed, JobPlaced
from libs.contracts.reasons import Reason
from libs.testing.core_case import arrival, node
from services.gateway.adapters import notices
from tests.integration.gateway_cell import Cell, running_cell
from tests.unit.projection.story import grant

pytest_plugins = ["libs.testing.postgres"]
pytestmark = pytest.mark.usefixtures("dated_by_sources")

BEGIN_S = 1_700_000_000.0
"""What the cell is told is said one second later each time, from here on."""
WHY = Reason(code="Test", message="said by the test")
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}}'


@pytest.fixture(params=["sqlite", "postgresql"])
async def cell(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cell]:
    fields = {} if request.param == "sqlite" else {"database": request.getfixturevalue("postgres_url")}
    async with running_cell(tmp_path, **fields) as cell:
        await cell.say(node("n1", 8))
        await cell.say(*fails("a", 1, "import_error", "module_missing", user="ada", data=["/d/x", "/d/y"]))
        await cell.say(*fails("b", 2, "gpu_ecc_error", "ecc_remap", user="bob", of="n9", data=["/d/x"]))
        await cell.say(*fails("c", 8, "import_error", "name_missing", user="bob"))
        yield cell


def fails(job_id: str, gpus: int, reason: str, cause: str, *, of: str = "", **spec: Any) -> list[Event]:
    """Arrives, and fails 1 s after its placement."""
    gang = [TaskPlacement(node_id="n1", gpu_indices=list(range(gpus)), first_rank=0)]
    said = {"job_id": job_id, "attempt": 1}
    return [
        arrival(job_id, gpus, **spec),
        grant(job_id),
        JobPlaced(**said, gang=gang, reason=WHY),
        AttemptFailed(**said, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=WHY),
        FailureClassified(
            **said,
            failure=reason,
            category="user",
            retry_can_help=False,
            deciding_line="a line",
            cause=cause,
            node_id=of,
        ),
        JobAbandoned(**said, exit_code=1, signal=None, reason=WHY),
    ]


async def keys(cell: Cell, by: str) -> dict[str, int]:
    found = await cell.get("/v1/failures", by=by, until_s=BEGIN_S + 100)
    return {item["key"]: item["trials"] for item in found["items"]}


async def test_failed_attempts_are_put_together_by_what_is_asked_for(cell: Cell) -> None:
    assert await keys(cell, "reason") == {"import_error": 2, "gpu_ecc_error": 1}
    assert await keys(cell, "cause") == {"ecc_remap": 1, "module_missing": 1, "name_missing": 1}
    assert await keys(cell, "user") == {"bob": 2, "ada": 1}
    assert await keys(cell, "tenant") == {"default": 3}
    assert await keys(cell, "node") == {"n1": 2, "n9": 1}
    assert await keys(cell, "input") == {"/d/x": 2, "/d/y": 1}


async def test_a_group_has_the_columns_of_table_6(cell: Cell) -> None:
    found = await cell.get("/v1/failures", until_s=BEGIN_S + 100)
    first = found["items"][0]
    assert (first["jobs"], first["users"], first["p50_s"], first["p95_s"]) == (2, 2, 1.0, 1.0)
    assert (first["gpus_1"], first["gpus_2_to_4"], first["gpus_above_4"], first["gpu_s"]) == (1, 0, 1, 9.0)
    assert (found["trials"], found["gpu_s"]) == (3, 11.0)


async def test_only_what_failed_within_the_stretch_counts(cell: Cell) -> None:
    found = await cell.get("/v1/failures", since_s=BEGIN_S + 90, until_s=BEGIN_S + 100)
    assert (found["items"], found["trials"]) == ([], 0)
    refused = await cell.client.get("/v1/failures", params={"since_s": BEGIN_S + 2, "until_s": BEGIN_S + 1})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "since_s")


async def test_a_submission_warns_and_an_input_is_released(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    # No answer is given twice: that is in tests/unit/gateway/test_notices.py.
    monkeypatch.setattr(notices, "KNOWN_S", 0.0)
    job = {"command": ["true"], "user": "ada", "data": ["/d/x"], "data_schema": SCHEMA}
    first = await cell.client.post("/v1/jobs", json=job)
    assert first.status_code == 201, first.text
    assert first.json()["warnings"] == []
    await cell.say(
        RepeatNoticed(user="ada", cause="key_error", jobs=["a"], reason=WHY),
        InputQuarantined(input="/d/x", jobs=["a"], users=["ada"], causes=["json_broken"], reason=WHY),
    )
    await cell.get("/v1/failures")
    warned = (await cell.client.post("/v1/jobs", json=job)).json()["warnings"]
    assert warned[0] == f"input /d/x: {WHY.message}"
    unknown = await cell.client.post("/v1/failures/release", json={"input": "/d/y"})
    assert (unknown.status_code, "/d/x" in unknown.text) == (404, True)
    assert (await cell.client.post("/v1/failures/release", json={"input": "/d/x"})).status_code == 202
    await cell.say(InputReleased(input="/d/x", reason=WHY))
    await cell.get("/v1/failures")
    again = (await cell.client.post("/v1/jobs", json=job)).json()["warnings"]
    assert [warning for warning in again if warning.startswith("input")] == []
    assert (await cell.client.post("/v1/failures/release", json={"input": "/d/x"})).status_code == 404
