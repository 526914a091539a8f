"""The log's clock over HTTP: a repair is taken where the services are ahead of it, and refused elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from libs.bus import codec
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import Reason
from libs.contracts.runtime import ClockRepaired
from tests.integration.gateway_cell import CONTROL, running_cell

REPAIR = {"reason": "node n9 had a clock in 2099"}
AHEAD_S = 73 * 365 * 86400.0


async def test_a_repair_without_need_is_refused_and_leaves_nothing_on_the_log(tmp_path: Path) -> None:
    async with running_cell(tmp_path) as cell:
        refused = await cell.client.post("/v1/clock/repair", json=REPAIR)
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
        assert "the services go by the log's clock" in refused.json()["detail"]
        assert await cell.bus.end_offset(CONTROL) == 0


async def test_services_that_are_ahead_of_the_log_are_sent_back_once(tmp_path: Path) -> None:
    async with running_cell(tmp_path) as cell:
        decision = JobQueued(job_id="j", attempt=1, reason=Reason(code="Test", message="said by the test"))
        late = Envelope(id="late", source="placement", time_s=time.time() + AHEAD_S, event=decision)
        await cell.bus.append([codec.outgoing(late)])
        assert (await cell.get("/v1/clock"))["ahead_s"] == pytest.approx(AHEAD_S, abs=60.0)
        asked = await cell.client.post("/v1/clock/repair", json=REPAIR)
        assert asked.status_code == 202, asked.text
        assert (await cell.get("/v1/clock"))["ahead_s"] == 0.0
        [repaired] = (await cell.get("/v1/events", type=ClockRepaired.wire_type))["items"]
        assert repaired["data"]["note"] == REPAIR["reason"]
        assert (await cell.client.post("/v1/clock/repair", json=REPAIR)).status_code == 409
