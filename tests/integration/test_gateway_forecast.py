"""What would start a waiting job, asked of a gateway that follows the log of a cell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from libs.bus import codec
from libs.forecast.answer import forecast
from libs.forecast.branch import Branch
from libs.sim.simulation import Simulation
from services.gateway.adapters.cores import Cores, NotFollowed
from services.gateway.adapters.feed import Feed
from tests.integration.gateway_cell import CONTROL, Cell, eventually, memory_bus, running_cell
from tests.unit.forecast.crowded_cell import stopped_at


async def foreseen(cell: Cell, job_id: str) -> dict[str, Any]:
    """The answer, as soon as the states are read."""
    found: dict[str, Any] = {}

    async def is_known() -> bool:
        answer = await cell.client.get(f"/v1/jobs/{job_id}/forecast")
        assert answer.status_code in (200, 503), answer.text
        found.update(answer.json() if answer.status_code == 200 else {})
        return bool(found)

    await cell.get("/v1/jobs")
    await eventually(is_known)
    return found


def expected(simulation: Simulation, job_id: str) -> dict[str, Any]:
    """What the services' own cores say."""
    branched = forecast(lambda: Branch(simulation.replicas, simulation.now_s), job_id)
    return branched.document()


async def test_it_is_what_the_cores_of_the_services_say(tmp_path: Path) -> None:
    simulation, bus = stopped_at(60.0), await memory_bus()
    await bus.append([codec.outgoing(envelope) for envelope in simulation.log.control])
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        found = await foreseen(cell, "job-6")
        assert found == expected(simulation, "job-6")
        assert found["options"][0]["changes"][-1]["numbers"] == {"tenant": "research", "gpus": 5}

        # What happens afterwards is in the next answer.
        while simulation.now_s < 226.0 and simulation.advance():
            pass
        simulation.dispatcher.settle()
        behind = simulation.log.control[await bus.end_offset(CONTROL) :]
        await bus.append([codec.outgoing(envelope) for envelope in behind])
        again = await foreseen(cell, "job-7")
        assert {**again, "errors": {}} == {**expected(simulation, "job-7"), "errors": {}}
        assert again["errors"]["expectations"] == 1, "job-6 has started"
        assert len(simulation.log.control) == await bus.end_offset(CONTROL), "nothing is appended"


async def test_a_job_that_does_not_wait_has_no_forecast(tmp_path: Path) -> None:
    simulation, bus = stopped_at(60.0), await memory_bus()
    await bus.append([codec.outgoing(envelope) for envelope in simulation.log.control])
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        await cell.get("/v1/jobs")
        answer = await cell.client.get("/v1/jobs/job-3/forecast")
        assert (answer.status_code, answer.json()["detail"]) == (409, "job-3 does not wait: it is RUNNING")


async def test_an_answer_is_given_within_its_time(tmp_path: Path) -> None:
    simulation, bus = stopped_at(60.0), await memory_bus()
    await bus.append([codec.outgoing(envelope) for envelope in simulation.log.control])
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=1e-9) as cell:
        found = await foreseen(cell, "job-6")
    assert (found["is_complete"], found["options"]) == (False, [])
    assert (found["expected"]["how"], found["expected"]["steps"]) == ("pool", 0)


async def test_as_long_as_the_states_are_not_read_there_is_no_answer() -> None:
    bus = await memory_bus()
    cores = Cores(bus, Feed(bus, asyncio.Event()), "sqlite://", lambda: 0.0, 1.0)
    with pytest.raises(NotFollowed, match="up to offset 0 of 5"):
        await cores.forecast("job-6", 5, patience_s=0.01)
