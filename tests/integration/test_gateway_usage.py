"""GPU hours and ended jobs over HTTP, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.base import Event
from libs.contracts.placement import JobSucceeded
from libs.testing.core_case import arrival, node
from tests.integration.gateway_cell import Cell, running_cell
from tests.unit.projection.story import exited, grant, placed, started

pytest_plugins = ["libs.testing.postgres"]
pytestmark = pytest.mark.usefixtures("dated_by_sources")

BEGIN_S = 1_700_000_000.0
"""What the cell is told is said one second later each time, from here on."""


@pytest.fixture(params=["sqlite", "postgresql"])
async def cell(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cell]:
    fields = {} if request.param == "sqlite" else {"database": request.getfixturevalue("postgres_url")}
    async with running_cell(tmp_path, **fields) as cell:
        await cell.say(node("n1", 2), node("n2", 2))  # 1, 2
        await cell.say(*runs("a", tenant="vision", user="bob"), JobSucceeded(job_id="a", attempt=1))  # 3-9
        await cell.say(*runs("b", tenant="speech", user="bob")[:4])  # 10-13: runs on
        await cell.say(arrival("c", 2, tenant="speech", user="eve"))  # 14: waits
        yield cell


def runs(job_id: str, *, tenant: str, user: str) -> list[Event]:
    """Arrives, is placed 2 s later on 2 GPUs, has started after 4 s and ended after 6 s; 7 s with its verdict."""
    nodes = ("n1", "n2")
    return [
        arrival(job_id, 2, tenant=tenant, user=user),
        grant(job_id),
        placed(job_id),
        started("n1", job_id=job_id),
        started("n2", job_id=job_id),
        *(exited(name, job_id=job_id) for name in nodes),
    ]


async def used(cell: Cell, by: str, until: int = 20, since: int = 0) -> dict[str, tuple[float, float | None]]:
    """{key: (GPU seconds, seconds waited)}, as of a second of the story."""
    found = await cell.get("/v1/usage", by=by, since_s=BEGIN_S + since, until_s=BEGIN_S + until)
    return {item["key"]: (item["gpu_s"], item["wait_s"]) for item in found["items"]}


async def test_gpu_time_is_summed_over_what_is_asked_for(cell: Cell) -> None:
    # a holds 2 GPUs from 5 to 9, b from 13 on; a waits from 3 to 7, b from 11 on and c from 15 on.
    assert await used(cell, "job") == {"b": (14.0, 9.0), "a": (8.0, 4.0), "c": (0.0, 5.0)}
    assert await used(cell, "tenant") == {"speech": (14.0, 14.0), "vision": (8.0, 4.0)}
    assert await used(cell, "user") == {"bob": (22.0, 13.0), "eve": (0.0, 5.0)}
    assert await used(cell, "gpu-type") == {"v100": (22.0, None)}
    found = await cell.get("/v1/usage", until_s=BEGIN_S + 20)
    assert [item["by_state"] for item in found["items"]] == [{"STARTING": 14.0}, {"SUCCEEDED": 8.0}]
    assert [item["jobs"] for item in found["items"]] == [2, 1]


async def test_only_what_lies_within_the_stretch_counts(cell: Cell) -> None:
    assert await used(cell, "tenant", since=6, until=15) == {"speech": (4.0, 4.0), "vision": (6.0, 1.0)}
    assert await used(cell, "tenant", until=2) == {}
    refused = await cell.client.get("/v1/usage", params={"since_s": BEGIN_S + 2, "until_s": BEGIN_S + 1})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "since_s")


async def test_ended_jobs_are_found_by_the_time_of_their_end(cell: Cell) -> None:
    ended = (await cell.get("/v1/jobs", ended_after_s=BEGIN_S))["items"]
    assert [(job["id"], job["gpu_s"], job["finished_s"]) for job in ended] == [("a", 8.0, BEGIN_S + 10)]
    assert (await cell.get("/v1/jobs", ended_before_s=BEGIN_S + 10))["items"] == []
