"""Archives that cannot be unpacked are the job's result, of the right class, and never the agent's end."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from torch_agent.cell_gateway import CellGateway
from torch_agent.code import CodeBroken, CodeUnavailable, unpack
from torch_agent.folders import TaskFolder

from libs.kernel import ids

NOWHERE = CellGateway("http://127.0.0.1:9")


def nested(depth: int) -> bytes:
    """An archive with a folder in a folder, and so on; each is a member of its own, as tar writes them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for number in range(1, depth + 1):
            info = tarfile.TarInfo("/".join(["d"] * number))
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
    return content.getvalue()


def stored(cache: Path, content: bytes) -> str:
    cache.mkdir(exist_ok=True)
    code_id = ids.code_id(hashlib.sha256(content).digest())
    (cache / f"{code_id}.tar.gz").write_bytes(content)
    return code_id


def test_folders_in_folders_are_unpacked_as_deep_as_projects_are(tmp_path: Path):
    code_id = stored(tmp_path / "code", nested(150))
    unpack(code_id, NOWHERE, tmp_path / "code", tmp_path / "work")
    assert (tmp_path / "work" / "/".join(["d"] * 150)).is_dir()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (nested(2000), "it has 2000 folders in each other; expected at most 200"),
        (b"no archive", "cannot be unpacked"),
        (nested(3)[:-20], "cannot be unpacked"),
    ],
    ids=["nested", "no archive", "cut off"],
)
def test_an_archive_that_no_node_can_unpack_is_named(tmp_path: Path, content: bytes, why: str):
    code_id = stored(tmp_path / "code", content)
    with pytest.raises(CodeBroken, match=why):
        unpack(code_id, NOWHERE, tmp_path / "code", tmp_path / "work")
    assert not (tmp_path / "work").exists() or not list((tmp_path / "work").iterdir())


def test_code_that_cannot_be_fetched_is_no_fault_of_the_code(tmp_path: Path):
    with pytest.raises(CodeUnavailable, match="cannot be fetched from"):
        unpack("c-" + "a" * 32, NOWHERE, tmp_path / "code", tmp_path / "work")


def test_a_folder_is_removed_however_deep_its_task_has_made_it(tmp_path: Path):
    folder = TaskFolder(tmp_path / "a.1")
    folder.make()
    tree = io.BytesIO(nested(1500))
    # tar itself goes down one step after the other, where Python's makedirs would not come to the end.
    archive = tmp_path / "deep.tar.gz"
    archive.write_bytes(tree.getvalue())

    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder.work)], check=True)
    folder.remove().wait()
    assert not folder.path.exists()
