"""Environments that jobs set up: what names them, and how making them ends badly."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_agent.environments.activation import Activation
from torch_agent.environments.commands import Commands, SetupFailed
from torch_agent.environments.setups import MARK, Setups, Wanted
from torch_agent.membership import kill_marked
from torch_agent.processes import lives

from libs.testing.cancelling import cancelled_after


def wanted(folder: Path, command: str, **changes: Any) -> Wanted:
    fields: dict[str, Any] = {
        "command": command,
        "content": "c-1",
        "base": Activation(sys.executable),
        "cwd": folder,
        "environment": dict(os.environ),
        "limit_s": 600.0,
    }
    return Wanted(**{**fields, **changes})


@pytest.fixture
def setups(tmp_path: Path) -> Setups:
    return Setups(tmp_path / "setups", 1 << 30, 1000.0)


async def test_command_content_and_interpreter_name_an_environment(setups: Setups, tmp_path: Path):
    usual = wanted(tmp_path, "true")
    keys = [
        (await setups.key_of(each))[0]
        for each in (
            usual,
            wanted(tmp_path, "true", environment={}, limit_s=1.0),
            wanted(tmp_path, "false"),
            wanted(tmp_path, "true", content="c-2"),
            wanted(tmp_path, "true", base=Activation("/usr/bin/python3")),
        )
    ]
    assert keys[0] == keys[1] and len(set(keys)) == 4


async def test_an_interpreter_that_does_not_run_is_said(setups: Setups, tmp_path: Path):
    for python in ("/bin/false", "/nowhere/python"):
        with pytest.raises(SetupFailed, match=f"{python} does not run"):
            await setups.key_of(wanted(tmp_path, "true", base=Activation(python)))


async def test_a_setup_that_takes_too_long_is_ended_with_all_its_processes(setups: Setups, tmp_path: Path):
    want = wanted(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/sleeper; wait", limit_s=600.0)
    key, interpreter = await setups.key_of(want)
    for limit_s in (0.001, 0.5):
        late = wanted(tmp_path, want.command, limit_s=limit_s)
        with pytest.raises(SetupFailed, match=f"not done within {limit_s:g} s"):
            await setups.prepared(key, interpreter, late, tmp_path / "out")
    assert not setups.is_ready(key)
    sleeper = (tmp_path / "sleeper").read_text().strip() if (tmp_path / "sleeper").exists() else ""
    assert not sleeper or not lives(int(sleeper))


async def test_a_process_that_a_setup_leaves_behind_is_ended_and_holds_nothing_up(setups: Setups, tmp_path: Path):
    want = wanted(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/sleeper; echo done")
    key, interpreter = await setups.key_of(want)
    await setups.prepared(key, interpreter, want, tmp_path / "out")
    assert setups.is_ready(key) and (tmp_path / "out").read_text().endswith("[setup] done\n")
    assert not lives(int((tmp_path / "sleeper").read_text()))


@pytest.mark.parametrize("turns", range(12))
async def test_a_command_ends_wherever_it_is_cancelled(tmp_path: Path, turns: int):
    mark = str(tmp_path)
    commands = Commands(tmp_path, mark, tmp_path / "out")
    await cancelled_after(turns, commands.run(["sh", "-c", "sleep 1000; true"], os.environ))
    kill_marked(mark)


async def test_one_without_its_mark_is_made_anew(setups: Setups, tmp_path: Path):
    want = wanted(tmp_path, "echo done")
    key, interpreter = await setups.key_of(want)
    (setups.folder / key / "half").mkdir(parents=True)
    active = await setups.prepared(key, interpreter, want, tmp_path / "out")
    assert setups.is_ready(key) and not (setups.folder / key / "half").exists()
    assert active.variables["VIRTUAL_ENV"] == str(setups.folder / key)
    assert (tmp_path / "out").read_text() == "[setup] echo done\n[setup] done\n"
    os.utime(setups.folder / key / MARK, (1.0, 1.0))
    await setups.prepared(key, interpreter, want, tmp_path / "out")
    assert (setups.folder / key / MARK).stat().st_mtime > 1.0, "its age counts from its last use"
