"""The demonstration (on both logs, if thorough): real training, the same ends, a log that replays and shows changes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import JobArrived
from libs.inspect.sources import open_log
from libs.testing import quick_torch
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import SANJAYA, replay

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]  # on both logs in one run, to compare their ends


@pytest.fixture(scope="module", params=cases("embedded", thorough=("kafka",)))
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, str]:
    """(bus, exported log, what it printed) of one run."""
    folder = tmp_path_factory.mktemp(f"demo-{request.param}")
    environment = {k: v for k, v in os.environ.items() if k != "KAFKA_BOOTSTRAP_SERVERS"} | quick_torch.environment()
    with (folder / "printed").open("wb") as out:
        status = subprocess.run(
            [SANJAYA, "demo", "--bus", request.param, "--steps", "20", "--keep", str(folder / "state")],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=800,
            check=False,
        ).returncode
    printed = (folder / "printed").read_text()
    assert status == 0, printed[-4000:]
    assert nothing_left_of(folder) == []
    return request.param, folder / "state" / "log.jsonl", printed


ENDS: dict[str, dict[str, str]] = {}


def events(log: Path) -> list[Event]:
    with open_log(str(log), cell="demo") as found:
        return [record.envelope.event for record in found.control()]


def ends(log: Path) -> dict[str, str]:
    """{job name: type of its last word}; fails when a job has not exactly one."""
    names, found = {}, {}
    for event in events(log):
        if isinstance(event, JobArrived):
            names[event.job_id] = event.spec.name
        elif isinstance(event, TERMINAL):
            assert names[event.job_id] not in found, f"{names[event.job_id]} ended twice"
            found[names[event.job_id]] = type(event).__name__
    assert set(found) == set(names.values())
    return found


def test_every_job_ends_once_and_as_on_the_other_log(demo: tuple[str, Path, str]):
    bus, log, printed = demo
    ENDS[bus] = ends(log)
    assert len(ENDS[bus]) >= 12
    assert "0 differences" in printed
    assert "Unable connect" not in printed  # as the Kafka client would say of every call before the broker serves
    for other in ENDS.values():
        assert other == ENDS[bus]


def test_the_log_replays_in_another_process_under_any_hash_seed(demo: tuple[str, Path, str]):
    _, log, _ = demo
    first, second = replay(log, "1"), replay(log, "4711")
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert "0 differences" in first.stdout
    assert first.stdout.split("\n", 1)[1] == second.stdout.split("\n", 1)[1]  # the states' hashes


def test_an_altered_event_is_caught_and_its_place_named(demo: tuple[str, Path, str], tmp_path: Path):
    _, log, _ = demo
    lines = log.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"job.exited.v1"' in line)
    record = json.loads(lines[place])
    record["data"]["exit_code"] = 77
    lines[place] = json.dumps(record)
    altered = tmp_path / "altered.jsonl"
    altered.write_text("\n".join(lines) + "\n")
    found = replay(altered)
    assert found.returncode == 1
    assert str(record["offset"]) in found.stdout


STUDIED = {"Table 5", "Table 6", "Figure 3", "Figure 4", "Figure 8", "Figure 10", "Section 3.2"}
"""Tables and figures of the Philly study that the log has."""
MISSING = {
    "Table 4": "jobs with 16 GPUs (there is none)",
    "Figure 5": "jobs with more than 4 GPUs that began (there is none)",
    "Figure 9": "losses per epoch (nothing of it was recorded)",
    "Section 3.2": "before which waiting jobs others were placed (nothing of it was recorded)",
}
"""{others, and one that lacks a part: what is said to be missing}."""
BY_SPEED = {
    "Table 1": "jobs that waited and ran for a minute (there is none)",
    "Table 2": "how busy GPUs were, per job (nothing of it was recorded)",
}
"""{what is there if the jobs run for long, or are measured before they end: what else is said to be missing}."""


def test_the_study_of_the_log_has_every_table_and_figure_or_names_what_is_missing(
    demo: tuple[str, Path, str], tmp_path: Path
):
    _, log, _ = demo
    out = tmp_path / "report.html"
    done = subprocess.run(
        [SANJAYA, "analyze", str(log), "--out", str(out), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    missing = {row["where"]: row["shown"].removeprefix("missing: ") for row in rows if row["value"] is None}
    held = {row["where"] for row in rows if row["value"] is not None}
    assert held - set(BY_SPEED) == STUDIED
    assert missing == MISSING | {where: what for where, what in BY_SPEED.items() if where not in held}
    page = out.read_text()
    assert all(f"{where}: " in page for where in (*STUDIED, *MISSING, *BY_SPEED))
