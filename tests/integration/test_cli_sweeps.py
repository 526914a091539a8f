"""`sanjaya sweep` against a real gateway, with a sweeps service that is played."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.gateway import SweepArrived, SweepCancelRequested
from libs.contracts.sweeps import SweepEnded
from libs.kernel.ids import short_id
from tests.integration.gateway_cell import Cell, running_cell
from tests.unit.projection.sweep_story import because, pruned, report, sweep_arrived, trial, trial_ended

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
SWEEP = """
name: digits
trial: {command: "python train.py --lr {lr}", gpus: 1, user: ada}
space:
  lr: {type: float, low: 1e-4, high: 1, log: true}
objective: {metric: accuracy, direction: maximize, target: 0.95}
trials: 3
"""


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path / "cell", serve=True) as cell:
        yield cell


@pytest.fixture(autouse=True)
def in_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory of the trials."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path / "job")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    return str(path)


async def begun(cell: Cell, *arguments: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "SANJAYA_GATEWAY": str(cell.client.base_url)}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(SANJAYA, *arguments, env=environment, stdout=pipe, stderr=pipe)


async def sanjaya(cell: Cell, *arguments: str) -> tuple[int | None, str, str]:
    """Exit code, output, errors."""
    process = await begun(cell, *arguments)
    out, err = await asyncio.wait_for(process.communicate(), 300)
    return process.returncode, out.decode(), err.decode()


async def test_a_sweep_is_submitted_watched_and_ended(cell: Cell, file: str) -> None:
    process = await begun(cell, "sweep", "-f", file, "--wait", "--idempotency-key", "k", "--timeout", "60s")
    assert process.stdout is not None and process.stderr is not None
    sweep_id = (await process.stdout.readline()).decode().strip()
    assert sweep_id == short_id("s", "k")
    assert b"job: 1 file, 9 B, " in await process.stderr.readline()
    assert b"RUNNING: 0 of 3 trials: none yet" in await process.stderr.readline()
    outcome = SweepEnded(
        sweep_id=sweep_id,
        outcome="target_reached",
        best_trial=0,
        best_value=0.96,
        best_parameters={"lr": 0.1},
        reason=because("TargetReached", "trial 0 reached 0.96"),
    )
    await cell.say(*trial(0, sweep_id), outcome)
    rest, err = await asyncio.wait_for(process.communicate(), 300)
    assert (process.returncode, rest) == (0, b"")
    assert "TARGET_REACHED: trial 0 reached 0.96; 1 of 3 trials: 1 running; best 0.96 by trial 0 (lr=0.1)" in (
        err.decode()
    )
    assert (await sanjaya(cell, "sweep", "cancel", sweep_id))[0] == 1


async def test_a_sweep_is_shown_listed_and_drawn(cell: Cell, tmp_path: Path) -> None:
    await cell.say(sweep_arrived(), *trial(0), *trial(1), report(0, 1, 0.5), report(1, 1, 0.3), report(0, 2, 0.7))
    await cell.say(pruned(1), trial_ended(1, "pruned", 0.3, 1), trial_ended(0, "completed", 0.7, 2))
    await cell.get("/v1/sweeps/s")
    code, out, err = await sanjaya(cell, "sweeps")
    assert (code, err) == (0, "")
    heads, row = (line.split("\t") for line in out.splitlines())
    assert dict(zip(heads, row, strict=True)) | {"AGE": ""} == {
        "ID": "s",
        "NAME": "digits",
        "TENANT": "default",
        "STATE": "RUNNING",
        "TRIALS": "2/3",
        "RUNNING": "0",
        "METRIC": "accuracy",
        "BEST": "0.7",
        "PARAMETERS": "lr=0.1",
        "AGE": "",
    }
    code, out, err = await sanjaya(cell, "sweep", "show", "last", "--json")
    assert (code, [found["state"] for found in json.loads(out)["trials"]]) == (0, ["COMPLETED", "PRUNED"])
    out = (await sanjaya(cell, "sweep", "show", "digits"))[1]
    assert "looks for  most accuracy, at least 0.95" in out and "PRUNED\t1\t0.3\t0.3\tcomes to 0.5 ± 0.1" in out
    picture = tmp_path / "curves.svg"
    assert (await sanjaya(cell, "sweep", "plot", "s", "--out", str(picture)))[0] == 0
    assert picture.read_text().startswith("<?xml")


async def test_a_sweep_is_asked_to_end(cell: Cell, file: str) -> None:
    code, out, _ = await sanjaya(cell, "sweep", "-f", file, "-n", "other")
    sweep_id = out.strip()
    found = await cell.get("/v1/sweeps/other")
    assert code == 0 and found["id"] == sweep_id
    assert (await cell.client.get(f"/v1/code/{found['spec']['trial']['code_id']}")).status_code == 200
    assert (await sanjaya(cell, "sweep", "wait", "other", "--timeout", "0.1"))[0] == 124
    code, out, _ = await sanjaya(cell, "sweep", "cancel", "other", "--note", "wrong data")
    assert (code, out) == (0, f"{sweep_id} is asked to end\n")
    page = await cell.get("/v1/events")
    types = [event["type"] for event in page["items"]]
    assert types == [SweepArrived.wire_type, SweepCancelRequested.wire_type]
    assert page["items"][1]["data"]["note"] == "wrong data"


async def test_what_is_wrong_is_said_with_its_exit_code(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SWEEP.replace("type: float, ", "").replace("maximize", "most"))
    code, _, err = await sanjaya(cell, "sweep", "-f", str(path))
    assert code == 2
    assert "error: /space/lr: expected" in err and "error: /objective/direction: input should be 'maximize'" in err
    assert (await sanjaya(cell, "sweep", "show", "s-nothing"))[0] == 3
    assert (await sanjaya(cell, "sweep", "show", "last"))[0] == 3
