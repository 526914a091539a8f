"""The place that is shown and what placement does are of one queue: the first in it is the next that starts."""

from __future__ import annotations

from pathlib import Path

from libs.bus import codec
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import JobPlaced, TimeSliceStarted
from libs.testing.builders import Scenario
from services.roster import SERVICES
from tests.integration.gateway_cell import Cell, running_cell


def scenario() -> Scenario:
    """More jobs of one shape than GPUs: of several priorities, paused while they wait and while they run, limited.

    Under a policy with which no job passes another.
    """
    made = Scenario().servers(1, v100=2).plan(0.0, PolicyChanged(policy="strict_fifo", requested_by="op"))
    for number in range(8):
        tenant = "limited" if number in (2, 3) else "default"
        made.job(f"j{number}", at=float(number), runs_s=50 + number, priority=number % 3, tenant=tenant)
    made.tenant("limited", 1).pause("j0", at=20, until=90).pause("j5", at=15, until=200).cancel("j6", at=70)
    return made


async def test_the_next_job_that_starts_or_goes_on_has_the_first_place(tmp_path: Path) -> None:
    log = scenario().run(SERVICES).log.control
    begun = []
    async with running_cell(tmp_path) as cell:
        for record in log:
            event = record.event
            next_ones = [event.job_id] if isinstance(event, JobPlaced) else []
            if isinstance(event, TimeSliceStarted):
                next_ones = [resumed.job_id for resumed in event.resumed]
            for job_id in next_ones:
                assert await place(cell, job_id) == 1, f"{job_id} at offset {await end(cell)}"
                begun.append(job_id)
            await cell.bus.append([codec.outgoing(record)])
    assert len(set(begun)) == 7 and begun.count("j0") == 2


async def place(cell: Cell, job_id: str) -> int | None:
    found: int | None = (await cell.get(f"/v1/jobs/{job_id}"))["queue_position"]
    return found


async def end(cell: Cell) -> int:
    return int((await cell.client.get("/v1/status")).json()["next_offset"])
