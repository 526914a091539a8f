"""Files of jobs through a real gateway, from the file server of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from torch_agent.files.server import FileServer

from libs.contracts.agent import NodeLeft
from libs.contracts.gateway import JobCodeChanged
from libs.node.serving import Proof
from libs.runtime.cell_key import ensure_key, read_key
from libs.testing.core_case import node
from tests.integration.gateway_cell import Cell, running_cell
from tests.integration.test_gateway_code import packed
from tests.unit.projection.story import grant, placed


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    key = tmp_path / "cell.key"
    ensure_key(key)
    async with running_cell(tmp_path / "cell", serve=True, cell_key_file=key) as cell:
        yield cell


async def job_on(cell: Cell, folder: Path, port: int) -> str:
    """A job of two GPUs, one on each of two nodes with agents that serve files on this port."""
    for node_id in ("n1", "n2"):
        joined = node(node_id, 4)
        await cell.say(msgspec.structs.replace(joined, address="127.0.0.1", files_port=port, state_dir=str(folder)))
    job = await cell.submit(name="mine", gpus=2, output_dir="runs")
    await cell.say(grant(job), placed(job))
    await cell.get("/v1/jobs/mine")
    work = folder / "tasks" / f"{job}.1" / "work"
    work.mkdir(parents=True)
    (work / "a b#?.txt").write_text("0123456789")
    return job


async def test_files_come_through_the_gateway(cell: Cell, tmp_path: Path) -> None:
    agent = FileServer(tmp_path / "n1", "n1", Proof(read_key(tmp_path / "cell.key")))
    port = agent.start("127.0.0.1", 0)
    try:
        job = await job_on(cell, tmp_path / "n1", port)
        listing = (await cell.client.get("/v1/jobs/mine/files")).json()
        assert [(item["name"], item["kind"], item["bytes"]) for item in listing["items"]] == [("a b#?.txt", "file", 10)]
        assert (listing["job_id"], listing["attempt"], listing["node_id"]) == (job, 1, "n1")
        path = "/v1/jobs/mine/files/a%20b%23%3F.txt"
        whole = await cell.client.get(path)
        assert (whole.status_code, whole.content) == (200, b"0123456789")
        assert whole.headers["Content-Digest"].startswith("sha-256=:")
        tag = {"If-Match": whole.headers["ETag"], "Range": "bytes=7-"}
        part = await cell.client.get(path, headers=tag)
        assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"789", "bytes 7-9/10")
        assert (await cell.client.get(path, headers={"If-Match": '"x"'})).json()["type"] == "/problems/changed"
        assert (await cell.client.get(path, headers={"Range": "bytes=99-"})).json()["type"] == "/problems/range"
        shown = await cell.get(f"/v1/jobs/{job}")
        assert shown["folder"] == f"{tmp_path}/n1/tasks/{job}.1/work"
        assert shown["output_folder"] == f"{tmp_path}/n1/outputs/{job}/runs"
    finally:
        agent.close()


async def refused(cell: Cell, path: str) -> tuple[int, str]:
    answer = await cell.client.get(path)
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["detail"]


async def test_what_cannot_be_had_is_said(cell: Cell, tmp_path: Path) -> None:
    agent = FileServer(tmp_path / "n1", "n1", Proof(read_key(tmp_path / "cell.key")))
    port = agent.start("127.0.0.1", 0)
    try:
        job = await job_on(cell, tmp_path / "n1", port)
        assert await refused(cell, "/v1/jobs/no-such-job/files") == (404, 'there is no job "no-such-job"')
        waiting = await cell.submit(name="waits")
        assert (await refused(cell, f"/v1/jobs/{waiting}/files"))[0] == 409
        status, detail = await refused(cell, f"/v1/jobs/{job}/files/missing.pt")
        assert status == 404 and "no such file or directory" in detail and "on node n1" in detail
        for path in ("files?path=../spec.json", "files?path=/etc", "files/%2e%2e/spec.json", "files//etc/passwd"):
            status, detail = await refused(cell, f"/v1/jobs/{job}/{path}")
            assert status == 404 and ("leads out" in detail or "no such file" in detail), path
        assert (await refused(cell, f"/v1/jobs/{job}/files?rank=7"))[0] == 422
        status, detail = await refused(cell, f"/v1/jobs/{job}/files?rank=1")
        assert status == 503 and "not signed" in detail, "n2's agent is played by n1's: it has no business with it"
        (tmp_path / "n1" / "tasks" / f"{job}.1").rename(tmp_path / "removed")
        status, detail = await refused(cell, f"/v1/jobs/{job}/files")
        assert status == 404 and "an hour; --output DIR is kept longer" in detail
    finally:
        agent.close()
    status, detail = await refused(cell, f"/v1/jobs/{job}/files")
    assert status == 503 and f"does not answer at 127.0.0.1:{port}" in detail
    await cell.say(NodeLeft(node_id="n1", incarnation=1))
    await cell.get("/v1/nodes")
    status, detail = await refused(cell, f"/v1/jobs/{job}/files")
    assert status == 503 and "on node n1, which is LEFT" in detail


async def test_files_are_added_until_a_job_is_placed(cell: Cell, tmp_path: Path) -> None:
    job = await job_on(cell, tmp_path / "n1", 0)
    waits, fixed = await cell.submit(name="waits"), await cell.submit(name="fixed", working_dir="/data")
    gzip = {"Content-Type": "application/gzip"}
    code = (await cell.client.post("/v1/code", content=packed(("conf.yaml", b"1")), headers=gzip)).json()
    changed = await cell.client.put(f"/v1/jobs/{waits}/code", json={"code_id": code["code_id"]})
    assert changed.status_code == 200 and changed.json()["spec"]["code_id"] == code["code_id"]
    assert (await cell.get(f"/v1/events?job={waits}"))["items"][-1]["type"] == JobCodeChanged.wire_type
    for other, says in ((job, "was placed before"), (fixed, "runs in /data")):
        refused = await cell.client.put(f"/v1/jobs/{other}/code", json={"code_id": code["code_id"]})
        assert refused.status_code == 409 and says in refused.json()["detail"]
    unknown = await cell.client.put(f"/v1/jobs/{waits}/code", json={"code_id": "c-" + "a" * 32})
    assert unknown.status_code == 422


async def test_an_agent_without_the_cells_key_serves_nothing(cell: Cell, tmp_path: Path) -> None:
    job = await job_on(cell, tmp_path / "n1", 0)
    status, detail = await refused(cell, f"/v1/jobs/{job}/files")
    assert status == 409 and "SANJAYA_CELL_KEY_FILE" in detail


async def test_a_break_of_the_agent_is_a_break_of_the_answer(cell: Cell, tmp_path: Path) -> None:
    agent = FileServer(tmp_path / "n1", "n1", Proof(read_key(tmp_path / "cell.key")))
    port = agent.start("127.0.0.1", 0)
    try:
        job = await job_on(cell, tmp_path / "n1", port)
        big = tmp_path / "n1" / "tasks" / f"{job}.1" / "work" / "big"
        with big.open("wb") as file:
            file.truncate(200 << 20)
        async with cell.client.stream("GET", f"/v1/jobs/{job}/files/big") as answer:
            assert answer.headers["Content-Length"] == str(200 << 20) and "Content-Digest" not in answer.headers
            with pytest.raises(httpx2.RemoteProtocolError):
                async for _ in answer.aiter_raw():
                    big.write_bytes(b"")
    finally:
        agent.close()
