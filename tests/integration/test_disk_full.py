"""A disk that is full refuses new work at once, loses nothing that was accepted, and takes work again afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import LogFull, Outgoing, Partition, TopicLayout
from libs.cli.doctor import Finding, disks_of
from libs.client import Client
from libs.contracts.base import Topic
from libs.testing.disks import fill
from tests.integration.gateway_cell import CONTROL, Cell, eventually, running_cell

RESERVE_BYTES = 2 << 20
SHOT = b"x" * 4096


async def jobs_on_log(cell: Cell) -> list[str]:
    """The ids of the jobs on the log, in order."""
    reader, found = await cell.bus.reader({CONTROL: 0}), []
    end = await cell.bus.end_offset(CONTROL)
    while len(found) < end:
        found += [codec.record(message).envelope.event.subject for message in await reader.next_batch(1000, 60.0)]
    await reader.close()
    return found


def doctor_says(url: str) -> list[Finding]:
    """What `sanjaya doctor` finds about the cell's disks."""
    with Client(url) as client:
        return list(disks_of(client.status()))


@asynccontextmanager
async def cell_on(disk: Path, elsewhere: Path, reserve_bytes: int, *, serve: bool = False) -> AsyncIterator[Cell]:
    """A cell with its log on the disk, and all else elsewhere."""
    bus = await connect(f"sqlite:///{disk / 'log.db'}", "lab")
    await bus.create_topics(TopicLayout())
    try:
        async with running_cell(elsewhere, bus=bus, serve=serve, disk_reserve_bytes=reserve_bytes) as cell:
            yield cell
    finally:
        await bus.close()


async def test_a_session_appends_nothing_to_a_full_disk_and_goes_on_afterwards(small_disk: Path) -> None:
    bus = await connect(f"sqlite:///{small_disk / 'log.db'}", "lab")
    await bus.create_topics(TopicLayout())
    session = await bus.open_session("placement")
    ballast = fill(small_disk, leave=64 << 10)
    taken, refused = [], 0
    for number in range(100):
        shot = Outgoing(Topic.CONTROL, "k", [("number", str(number).encode())], SHOT)
        try:
            await session.commit([shot])
        except LogFull:
            refused += 1
            if refused == 5:
                ballast.unlink()
        else:
            taken.append(number)
    assert refused >= 5 and taken[-1] == 99
    reader = await bus.reader({Partition(Topic.CONTROL, 0): 0})
    there: list[int] = []
    while len(there) < len(taken):
        there += [int(dict(message.headers)["number"]) for message in await reader.next_batch(1000, 60.0)]
    assert there == taken
    await reader.close()
    await session.close()
    await bus.close()


async def test_submissions_to_a_full_disk_are_refused_and_none_exists_without_an_answer(
    small_disk: Path, tmp_path: Path
) -> None:
    async with cell_on(small_disk, tmp_path / "state", 0) as cell:
        before = [await cell.submit() for _ in range(3)]
        ballast = fill(small_disk, leave=64 << 10)
        answers = await asyncio.gather(
            *(cell.client.post("/v1/jobs", json={"command": ["true"], "env": {"A": "x" * 8000}}) for _ in range(60))
        )
        assert {answer.status_code for answer in answers} <= {201, 507}
        accepted = [answer.json()["id"] for answer in answers if answer.status_code == 201]
        last = await cell.client.post("/v1/jobs", json={"command": ["true"], "env": {"A": "x" * 60_000}})
        assert last.status_code == 507 and "nothing was appended" in last.json()["detail"]
        ballast.unlink()
        after = await cell.submit()
        assert sorted(await jobs_on_log(cell)) == sorted([*before, *accepted, after])


async def test_a_disk_that_is_short_takes_what_ends_work_and_refuses_new_work(small_disk: Path, tmp_path: Path) -> None:
    async with cell_on(small_disk, tmp_path / "state", RESERVE_BYTES, serve=True) as cell:
        job_id = await cell.submit(key="before")
        ballast = fill(small_disk, leave=RESERVE_BYTES // 2)

        async def is_short() -> bool:
            return (await cell.client.get("/readyz")).status_code == 503

        await eventually(is_short)
        answer = await cell.client.post("/v1/jobs", json={"command": ["true"]})
        assert (answer.status_code, answer.json()["type"]) == (507, "/problems/disk-full")
        said = (await cell.get("/v1/status"))["shortage"]
        assert said.startswith(f"the disk of the cell's log ({small_disk}/log.db) has ")
        assert said in answer.json()["detail"] and (await cell.client.get("/readyz")).json()["checks"]["disks"] == said
        [log_disk, uploads] = await asyncio.to_thread(doctor_says, str(cell.client.base_url))
        assert (log_disk.what, log_disk.mark, uploads.what) == ("disk of the log", "BAD", "disk of the uploads")
        assert log_disk.detail.endswith(f" free at {small_disk}/log.db: new jobs are refused")
        assert await cell.submit(key="before") == job_id
        assert (await cell.client.delete(f"/v1/jobs/{job_id}")).status_code == 202
        ballast.unlink()

        async def is_ready() -> bool:
            return (await cell.client.get("/readyz")).status_code == 200

        await eventually(is_ready)
        assert await cell.submit()


async def test_an_upload_that_has_no_room_is_refused_and_leaves_nothing(small_disk: Path) -> None:
    async with running_cell(small_disk / "state", disk_reserve_bytes=0) as cell:
        fill(small_disk, leave=64 << 10)
        answer = await cell.client.post(
            "/v1/code", content=b"x" * (1 << 20), headers={"Content-Type": "application/gzip"}
        )
        assert (answer.status_code, answer.json()["type"]) == (507, "/problems/disk-full")
        assert "nothing was stored" in answer.json()["detail"]
        assert not list((small_disk / "state").glob("code/*"))
