"""`sanjaya archive`, and the commands that read what it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from libs.bus.connect import connect
from libs.bus.naming import CONTROL
from libs.kernel.replica import Replica
from libs.runtime.snapshots import Snapshots
from services.roster import SERVICES
from tests.unit.inspect.archived_cell import filled
from tests.unit.inspect.small_cell import messages

END = sum(message.partition == CONTROL for message in messages())
LOG_ID = dict(messages()[0].headers)["ce_id"].decode()
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell's folder: its log, and the snapshots of its services at the end of it."""
    folder = tmp_path_factory.mktemp("made")

    async def fill() -> None:
        await (await filled(f"sqlite:///{folder / 'log.db'}")).close()

    asyncio.run(fill())
    database = f"sqlite:///{folder / 'read_models.db'}"
    snapshots = Snapshots(database, "lab")
    for service in SERVICES:
        replica = Replica(service)
        replica.next_offset = END
        snapshots.save(replica.snapshot(), LOG_ID, 0.0)
    snapshots.close()
    told(folder, "CREATE TABLE checkpoint (next_offset INTEGER, log_id TEXT)")
    told(folder, f"INSERT INTO checkpoint VALUES ({END}, '{LOG_ID}')")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cell"))


def told(folder: Path, statement: str) -> None:
    """Change the database."""
    engine = create_engine(f"sqlite:///{folder / 'read_models.db'}")
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def sanjaya(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANJAYA_")}
    return subprocess.run(
        [sys.executable, "-m", "libs.cli.main", *map(str, arguments)],
        cwd=ROOT,
        env={**kept, "SANJAYA_CELL": "lab", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def begin(folder: Path) -> int:
    """Where control begins."""

    async def look() -> int:
        bus = await connect(f"sqlite:///{folder / 'log.db'}", "lab")
        try:
            return await bus.begin_offset(CONTROL)
        finally:
            await bus.close()

    return asyncio.run(look())


def verification(*arguments: str | Path) -> dict[str, object]:
    done = sanjaya("replay", "--verify", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_log_is_archived_and_read_as_before(folder: Path):
    log, archive = folder / "log.db", folder / "archive"
    before = verification(log)
    done = sanjaya("archive", "--before", "40", archive, log)
    assert done.returncode == 0, done.stderr
    assert "control of cell lab begins at offset 40 now" in done.stdout
    assert begin(folder) == 40
    assert verification(log) == before
    assert verification(archive)["events"] == 40
    exported = sanjaya("export", "--out", folder / "out.jsonl", log)
    assert exported.stderr.strip() == f"{len(messages())} records"
    assert sanjaya("diff", log, folder / "out.jsonl").stdout.strip() == "0 differences"
    archive.rename(folder / "elsewhere")
    lost = sanjaya("replay", log)
    assert lost.returncode == 2
    assert lost.stderr.startswith("error: control/0@0-39 of cell lab are in the archive ")
    assert "--archive DIR" in lost.stderr
    assert verification("--archive", folder / "elsewhere", log) == before


def test_without_a_snapshot_nothing_is_removed(folder: Path):
    told(folder, "DELETE FROM core_snapshots WHERE service = 'quota'")
    told(folder, "UPDATE checkpoint SET next_offset = 39")
    done = sanjaya("archive", "--before", "40", folder / "archive", folder / "log.db")
    assert done.returncode == 1
    assert "quota is saved nowhere, read models is saved at offset 39" in done.stderr
    assert "nothing was removed from the log" in done.stderr
    assert begin(folder) == 0
    assert verification(folder / "archive")["events"] == 40


def test_a_log_can_be_archived_and_kept(folder: Path):
    (folder / "read_models.db").unlink()
    log = folder / "log.db"
    refused = sanjaya("archive", "--before", "40", folder / "archive", log)
    assert refused.returncode == 2
    assert "--keep to archive and remove nothing" in refused.stderr
    assert not (folder / "archive").exists()
    done = sanjaya("archive", "--before", "40", "--keep", folder / "archive", SANJAYA_BUS=f"sqlite:///{log}")
    assert done.returncode == 0, done.stderr
    assert begin(folder) == 0


def test_an_altered_archive_is_named(folder: Path):
    log, archive = folder / "log.db", folder / "archive"
    assert sanjaya("archive", "--before", "40", archive, log).returncode == 0
    (segment,) = archive.glob("control-*.jsonl.gz")
    segment.write_bytes(segment.read_bytes()[:-1])
    for done in (
        sanjaya("replay", log),
        sanjaya("replay", archive),
        sanjaya("archive", "--before", "50", archive, log),
    ):
        assert done.returncode == 2
        assert f"{segment}: segment control/0@0-39: " in done.stderr
        assert "bytes; expected" in done.stderr
    assert begin(folder) == 40


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--before", "40", "archive"), "no log is named"),
        (("--before", "40", "archive", "log.db", "--bus", "memory:"), "LOG and --bus name two logs"),
        (
            ("--before", "400", "archive", "log.db", "--keep"),
            f"offset 400 cannot be archived up to; expected 1 to its end, {END}",
        ),
        (("--before", "0", "archive", "log.db", "--keep"), "greater than or equal to 1"),
        (("--before", "40", "archive", "--keep", "--bus", "sqlite:///nowhere.db"), "nowhere.db: no such file"),
        (("--before", "40", "archive", "nowhere.db", "--keep"), "nowhere.db"),
    ],
)
def test_what_is_meant_must_be_clear(folder: Path, arguments: tuple[str, ...], what: str):
    named = [str(folder / a) if a in ("archive", "log.db") else a for a in arguments]
    done = sanjaya("archive", *named)
    assert done.returncode == 2
    assert what in done.stderr
    assert not (folder / "archive").exists()
