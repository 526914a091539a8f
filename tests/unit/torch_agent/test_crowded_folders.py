"""Folders that a task has filled, emptied or changed: agent and shim look at what they can, and wait for nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch_agent.folders import MOST_OUTPUTS, SHIM, TaskFolder
from torch_agent.harness.page import PageWriter
from torch_agent.pages import MOST_PAGES, Living, living, living_pages

from torch_agent import listing


def fill(folder: Path, names: list[str]) -> None:
    for name in names:
        os.close(os.open(folder / name, os.O_CREAT))


def test_pages_are_read_among_as_many_other_files_as_can_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "MOST_ENTRIES", 2000)
    PageWriter(str(tmp_path), 0, 1).write(1, 0.0, 0.1, 0.5, 0, 0)
    fill(tmp_path, [f"{number}.stacks" for number in range(1000)])
    assert [page.rank for page in living_pages(tmp_path)] == [0]
    fill(tmp_path, [f"{number}.stacks" for number in range(1000, 2000)])
    assert living(tmp_path) == Living([], unread=False)


def test_of_more_pages_than_a_task_has_processes_none_is_read(tmp_path: Path):
    PageWriter(str(tmp_path), 0, 1).write(1, 0.0, 0.1, 0.5, 0, 0)
    fill(tmp_path, [f"rank-{number}-2.page" for number in range(MOST_PAGES)])
    assert living_pages(tmp_path) == []


def test_of_more_outputs_than_a_task_has_ranks_none_is_read(tmp_path: Path):
    fill(tmp_path, [f"rank-{number}.out" for number in range(MOST_OUTPUTS)])
    assert len(TaskFolder(tmp_path).outputs()) == MOST_OUTPUTS
    fill(tmp_path, [f"rank-{MOST_OUTPUTS}.out"])
    assert TaskFolder(tmp_path).outputs() == []


def test_what_is_removed_keeps_no_agent_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, slow, gate = TaskFolder(tmp_path / "a.1"), tmp_path / "bin" / "rm", tmp_path / "gate"
    folder.make()
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nread line < {gate} && exec {shutil.which("rm")} "$@"\n')
    slow.chmod(0o700)
    os.mkfifo(gate)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    removal = folder.remove()
    gate.write_text("go on\n")
    assert removal.wait(60) == 0
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("change", "tail"),
    [
        ("os.remove('rank-0.err')", ""),
        ("os.remove('rank-0.err'); os.mkfifo('rank-0.err')", ""),
        ("os.remove('rank-0.err'); os.symlink('/dev/zero', 'rank-0.err')", ""),
        ("os.mkfifo('exit.new')", "said\n"),
        ("os.symlink('/dev/null', 'exit.new')", "said\n"),
        ("os.truncate('rank-0.err', 1 << 40)", "\ufffd" * 10),
        ("os.remove('rank-0.err'); os.mkdir('rank-0.err')", ""),
        ("os.mkdir('exit.new')", "said\n"),
        ("os.mkdir('exit.json')", "said\n"),
    ],
)
def test_a_shim_says_how_its_task_has_ended_whatever_that_has_left(tmp_path: Path, change: str, tail: str):
    command = [sys.executable, "-c", f"import os, sys; print('said', file=sys.stderr); {change}; sys.exit(3)"]
    limits = {"time_limit_s": None, "data_limit_bytes": 0, "nice": 0}
    spec = {"command": command, "cwd": str(tmp_path), "environments": [{"RANK": "0"}], "version": 2, **limits}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, "-I", "-S", str(SHIM), str(tmp_path)], check=True, timeout=60)
    left = json.loads((tmp_path / "exit.json").read_text())
    assert (left["exit_code"], left["outcome"]) == (3, "exited")
    assert left["stderr_tail"][-10:] == tail[-10:]


def test_a_result_counts_when_the_shim_has_ended(tmp_path: Path):
    folder = TaskFolder(tmp_path / "a.1")
    folder.refuse("written by the task itself", outcome="launch_failed")
    with (folder.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert folder.look(starting=False, started=False).ended is None
    ended = folder.look(starting=False, started=False).ended
    assert ended is not None and ended.outcome == "launch_failed"


def test_a_result_counts_whatever_process_holds_the_lock_when_the_shim_has_ended(tmp_path: Path):
    folder = TaskFolder(tmp_path / "a.1")
    folder.refuse("said", outcome="launch_failed")
    with subprocess.Popen(["true"]) as shim:
        pass
    (folder.path / "shim.json").write_text(json.dumps({"version": 2, "pid": shim.pid, "ranks": {}}))
    with (folder.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert folder.look(starting=False, started=True).ended is not None


def test_of_two_that_look_neither_takes_the_other_for_a_shim(tmp_path: Path):
    folder = TaskFolder(tmp_path / "a.1")
    folder.refuse("said", outcome="launch_failed")
    with (folder.path / "lock").open("w") as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        assert folder.look(starting=False, started=False).ended is not None


def test_a_process_that_ends_takes_its_file_for_stacks_along(tmp_path: Path):
    listen = "import os, sys; from torch_agent.harness.stacks import listen; listen(sys.argv[1])"
    code = f"{listen}; print(os.listdir(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
    assert ".stacks" in done.stdout
    assert list(tmp_path.iterdir()) == []
