"""Processes that are asked something have answered when they end, and can be ended at any time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from torch_agent.asking import Said, said_by
from torch_agent.membership import TASK_VARIABLE, kill_marked

from libs.testing.cancelling import cancelled_after


async def test_what_a_process_answers_is_known_whole(tmp_path: Path):
    script = "import os, sys; print(os.getcwd(), os.environ['X'], len(sys.stdin.read())); sys.exit('wrong\\n')"
    said = await said_by(
        sys.executable, "-c", script, given=b"x" * 300_000, cwd=tmp_path, environment={**os.environ, "X": "y"}
    )
    assert said == Said(1, f"{tmp_path} y 300000\n".encode(), b"wrong\n\n")
    assert said.last_line == "wrong"


async def test_a_process_without_an_answer_says_nothing():
    said = await said_by("sh", "-c", "kill -9 $$")
    assert said == Said(-9, b"", b"") and said.last_line == ""


async def test_a_process_that_it_leaves_behind_holds_nothing_up():
    said = await said_by("sh", "-c", "sleep 1000 & echo $!")
    os.kill(int(said.out), 9)


async def test_a_command_that_is_not_there_is_told():
    with pytest.raises(FileNotFoundError, match="no-such-command"):
        await said_by("no-such-command")


@pytest.mark.parametrize("turns", range(12))
async def test_it_ends_wherever_it_is_cancelled(tmp_path: Path, turns: int):
    mark = str(tmp_path)
    command = ("sh", "-c", "sleep 1000; true")  # a shell with a process below it, which is not killed with the shell
    await cancelled_after(turns, said_by(*command, environment={**os.environ, TASK_VARIABLE: mark}))
    kill_marked(mark)
