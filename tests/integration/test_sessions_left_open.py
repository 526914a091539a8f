"""Sessions whose gateway has ended, with a word or without, are closed by the next one: once, and no others."""

from __future__ import annotations

from pathlib import Path

from libs.contracts.gateway import JobSessionClosed, JobSessionOpened
from services.gateway.adapters.left_open import ENDED_WITH_IT
from tests.integration.gateway_cell import Cell, eventually, memory_bus, running_cell


def session(session_id: str) -> JobSessionOpened:
    return JobSessionOpened(
        job_id="j-1", session_id=session_id, kind="shell", opened_by="olga", attempt=1, node_id="n1", rank=0
    )


async def closed(cell: Cell) -> list[tuple[str, str]]:
    """(Session, note) of the ends on the log."""
    found = (await cell.get("/v1/events", type="job.session_closed.v1"))["items"]
    return [(event["data"]["session_id"], event["data"]["note"]) for event in found]


async def test_what_a_gateway_has_left_open_is_closed_by_the_next(tmp_path: Path) -> None:
    bus = await memory_bus()
    async with running_cell(tmp_path / "first", bus=bus) as cell:
        cell.gateway.sessions.here.update(("x-1", "x-2"))
        await cell.say(session("x-1"), session("x-2"), JobSessionClosed(job_id="j-1", session_id="x-2", exit_code=0))
    for folder in ("first", "second"):
        async with running_cell(tmp_path / folder, bus=bus) as cell:

            async def is_said(cell: Cell = cell) -> bool:
                return await closed(cell) == [("x-2", ""), ("x-1", ENDED_WITH_IT)]

            await eventually(is_said)


async def test_a_session_that_goes_on_is_not_closed_and_an_end_that_was_not_said_is_said_later(tmp_path: Path) -> None:
    async with running_cell(tmp_path) as cell:
        sessions = cell.gateway.sessions
        sessions.here.update(("x-1", "x-2"))
        await cell.say(session("x-1"), session("x-2"))
        sessions.ended("x-2", is_said=False)

        async def is_said() -> bool:
            return await closed(cell) == [("x-2", ENDED_WITH_IT)]

        await eventually(is_said)
