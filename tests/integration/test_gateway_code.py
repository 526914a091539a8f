"""Uploads of working directories."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.integration.gateway_cell import Cell, running_cell

GZIP = {"Content-Type": "application/gzip"}


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path, max_code_bytes=100_000, max_unpacked_code_bytes=1_000_000) as cell:
        yield cell


def packed(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return target.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


async def upload(cell: Cell, body: bytes, headers: dict[str, str] = GZIP) -> httpx2.Response:
    return await cell.client.post("/v1/code", content=body, headers=headers)


def stored_files(cell: Cell) -> list[str]:
    return sorted(path.name for path in (cell.gateway.settings.state_dir / "code").iterdir())


async def test_an_upload_is_named_by_its_content_and_comes_back_as_it_was(cell: Cell) -> None:
    body = packed(("train.py", b"print(1)"), ("data/x", b"1"))
    first = await upload(cell, body)
    assert (first.status_code, first.json()["files"], first.json()["bytes"]) == (201, 2, len(body))
    code_id = first.json()["code_id"]
    again = await upload(cell, body)
    assert (again.status_code, again.json()) == (200, first.json())
    back = await cell.client.get(f"/v1/code/{code_id}")
    assert (back.content, back.headers["content-type"]) == (body, "application/gzip")
    assert await cell.submit(code_id=code_id)
    assert stored_files(cell) == [f"{code_id}.tar.gz"]


async def test_what_is_there_need_not_be_sent_again(cell: Cell) -> None:
    limits = (await cell.client.get("/v1/code")).json()
    assert limits == {"files": 100_000, "unpacked_bytes": 1_000_000, "packed_bytes": 100_000}
    code_id = (await upload(cell, packed(("train.py", b"print(1)")))).json()["code_id"]
    assert (await cell.client.head(f"/v1/code/{code_id}")).status_code == 200
    assert (await cell.client.head(f"/v1/code/c-{'a' * 32}")).status_code == 404


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("no archive", b"hello"),
        ("nothing", b""),
        ("cut off", packed(("a", b"x" * 50_000))[:-20]),
        ("out of the directory", packed(("../a", b"x"))),
        ("absolute", packed(("/etc/passwd", b"x"))),
        ("a link out", packed(special("a", tarfile.SYMTYPE, "../../etc/passwd"))),
        ("a hard link out", packed(special("a", tarfile.LNKTYPE, "/etc/passwd"))),
        ("a device", packed(special("a", tarfile.CHRTYPE))),
        ("a bomb", packed(("a", b"\0" * 2_000_000))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # packed bytes say when they were made
)
async def test_what_must_not_be_unpacked_is_refused(cell: Cell, name: str, body: bytes) -> None:
    answer = await upload(cell, body)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid"), name
    assert stored_files(cell) == []


async def test_links_within_the_directory_are_accepted(cell: Cell) -> None:
    body = packed(
        ("data/x", b"1"), special("link", tarfile.SYMTYPE, "data/x"), special("data/up", tarfile.SYMTYPE, "../data")
    )
    assert (await upload(cell, body)).status_code == 201


async def test_an_upload_over_the_limit_is_refused(cell: Cell) -> None:
    answer = await upload(cell, b"x" * 100_001)
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")
    assert not (cell.gateway.settings.state_dir / "code").exists() or stored_files(cell) == []


async def test_another_media_type_is_refused(cell: Cell) -> None:
    answer = await upload(cell, packed(), {"Content-Type": "application/zip"})
    assert (answer.status_code, answer.json()["type"]) == (415, "/problems/media-type")
