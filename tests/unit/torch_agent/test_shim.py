"""What a shim leaves is for the agent that started it, of whatever version that was."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch_agent.folders import SHIM, TaskFolder
from torch_agent.processes import began
from torch_agent.records import Exit, Shim, read_record
from torch_agent.room import allocate

from libs.testing.disks import fill
from torch_agent import shim


def spec(folder: Path, **changes: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    environments = [{"RANK": "0"}]
    limits = {"time_limit_s": None, "data_limit_bytes": 0, "nice": 0}
    return {"command": command, "cwd": str(folder), "environments": environments, **limits, **changes}


def left_by(folder: Path, content: str) -> dict[str, Any]:
    (folder / "spec.json").write_text(content)
    subprocess.run([sys.executable, "-I", "-S", str(SHIM), str(folder)], check=True, timeout=60)
    return dict(json.loads((folder / "exit.json").read_text()))


@pytest.mark.parametrize("version", [1, 2])
def test_the_records_are_of_the_version_of_the_spec(tmp_path: Path, version: int):
    stated = {} if version == 1 else {"version": version}
    left = left_by(tmp_path, json.dumps(spec(tmp_path, **stated)))
    assert {key: left.get(key) for key in ("version", "exit_code", "outcome")} == {
        "version": stated.get("version"),
        "exit_code": 3,
        "outcome": "exited",
    }
    begun, ended = read_record(tmp_path / "shim.json", Shim), read_record(tmp_path / "exit.json", Exit)
    assert begun is not None and ended is not None and (begun.version, ended.version) == (version, version)


SAVES = """
import pathlib, signal, sys
def save(*_):
    pathlib.Path("saved").touch()
    sys.exit({status})
signal.signal(signal.SIGTERM, save)
pathlib.Path("up").touch()
signal.pause()
"""


@pytest.mark.parametrize(("status", "result"), [(143, None), (0, 0)])
def test_told_to_end_it_lets_the_ranks_save_and_leaves_a_result_only_of_work_that_is_done(
    tmp_path: Path, status: int, result: int | None
):
    command = [sys.executable, "-c", SAVES.format(status=status)]
    (tmp_path / "spec.json").write_text(json.dumps(spec(tmp_path, command=command, version=2)))
    with subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), str(tmp_path)]) as process:
        while not (tmp_path / "up").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
    left = read_record(tmp_path / "exit.json", Exit)
    assert (tmp_path / "saved").exists() and (None if left is None else left.exit_code) == result
    assert TaskFolder(tmp_path).is_deserted(started=True) is (left is None)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"command": [', "spec.json: expected what to start, in JSON"),
        ("[]", "spec.json: expected what to start, in JSON"),
        ('{"version": 99}', "spec.json: what to start is of version 99; this code knows version 1, 2"),
    ],
)
def test_a_spec_that_cannot_be_read_is_the_tasks_result(tmp_path: Path, content: str, why: str):
    left = left_by(tmp_path, content)
    assert left["outcome"] == "launch_failed" and why in left["stderr_tail"]
    ended = TaskFolder(tmp_path).look(starting=False, started=False).ended
    assert ended is not None and ended.outcome == "launch_failed"


COUNTS = """
import signal, sys
from pathlib import Path
from torch_agent import shim
folder, before, after = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
shim._kills_for_memory = lambda: after if (folder / "ended").exists() else before
sys.exit(shim.main(folder))
"""


@pytest.mark.parametrize(("killed", "signs"), [((4, 4), False), ((4, 5), True), ((0, 0), False)])
def test_a_kill_is_told_with_what_the_kernel_has_counted_meanwhile(
    killed: tuple[int, int], signs: bool, tmp_path: Path
):
    """The counter of processes that were killed for memory: before the rank is killed, and as its end is seen."""
    (tmp_path / "spec.json").write_text(json.dumps(spec(tmp_path, command=["sleep", "600"], version=2)))
    with subprocess.Popen([sys.executable, "-c", COUNTS, str(tmp_path), *map(str, killed)]) as running:
        while not (tmp_path / "shim.json").exists():
            assert running.poll() is None
            time.sleep(0.01)
        found = read_record(tmp_path / "shim.json", Shim)
        assert found is not None
        (tmp_path / "ended").touch()
        os.kill(found.ranks["0"], signal.SIGKILL)
    assert running.returncode == 0
    left = read_record(tmp_path / "exit.json", Exit)
    assert left is not None and (left.signal, left.memory_signs) == (signal.SIGKILL, signs)


def test_the_kernels_counter_is_read():
    text = Path("/proc/vmstat").read_text()
    assert f"oom_kill {shim._kills_for_memory()}\n" in text or "oom_kill " not in text


@pytest.mark.parametrize("has_room_of_its_own", [True, False])
def test_a_result_is_written_or_told_on_a_full_disk(small_disk: Path, has_room_of_its_own: bool):
    """In the room that was kept for it; without that the shim stays, and an agent reads the result from it."""
    path = small_disk / "task"
    path.mkdir()
    folder, go = TaskFolder(path), path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nraise SystemExit(5)"
    content = spec(path, command=[sys.executable, "-c", waits])
    if has_room_of_its_own:
        shim = folder.start_shim(content)
    else:
        (path / "spec.json").write_text(json.dumps({"version": 2, **content}))
        shim = subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), str(path)])
    while folder.look(starting=True, started=False).pid is None:
        assert shim.poll() is None
        time.sleep(0.01)
    ballast = fill(small_disk)
    go.touch()
    while (ended := folder.look(starting=False, started=True).ended) is None:
        time.sleep(0.01)
    assert (ended.exit_code, ended.outcome) == (5, "exited")
    if not has_room_of_its_own:
        assert folder.lives() and not (path / "exit.json").exists() and not folder.is_deserted(started=True)
        shim.send_signal(signal.SIGTERM)
        assert folder.look(starting=False, started=True).ended == ended and shim.poll() is None
    ballast.unlink()
    assert shim.wait(60) == 0
    assert folder.look(starting=False, started=True).ended == ended and not folder.lives()
    assert json.loads((path / "exit.json").read_text())["exit_code"] == 5 and not list(path.glob("*.room"))


def test_a_task_is_not_started_where_there_is_no_room_for_its_end(small_disk: Path):
    folder = TaskFolder(small_disk / "task")
    folder.make()
    ballast = fill(small_disk, leave=16 << 10)
    command = [sys.executable, "-c", "open('ran', 'a').write('x')"]
    with pytest.raises(OSError, match="No space left"):
        folder.start_shim(spec(folder.path, command=command))
    assert not folder.look(starting=False, started=False).launched
    ballast.unlink()
    assert folder.start_shim(spec(folder.path, command=command)).wait(60) == 0
    ended = folder.look(starting=False, started=False).ended
    assert ended is not None and ended.exit_code == 0 and (folder.path / "ran").read_text() == "x"


def test_a_result_of_which_nobody_asks_any_more_is_given_up(small_disk: Path):
    path = small_disk / "task"
    path.mkdir()
    (path / "spec.json").write_text(json.dumps(spec(path, command=["true"])))
    fill(small_disk)
    with subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), str(path)]) as shim:
        # Lost is what it seems to be until it holds its lock.
        while (ended := TaskFolder(path).look(starting=False, started=True).ended) is None or ended.outcome == "lost":
            time.sleep(0.01)
        shutil.rmtree(path)
        assert shim.wait(60) == 0


def test_room_is_allocated_or_filled_or_refused(small_disk: Path, monkeypatch: pytest.MonkeyPatch):
    assert allocate(small_disk / "a", 1 << 20) and (small_disk / "a").stat().st_blocks * 512 >= 1 << 20

    def not_supported(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "as a file system without it says")

    monkeypatch.setattr(os, "posix_fallocate", not_supported)
    assert not allocate(small_disk / "b", (1 << 20) + 5)
    assert (small_disk / "b").stat().st_size == (1 << 20) + 5 and not any((small_disk / "b").read_bytes())
    with pytest.raises(OSError, match="No space left"):
        allocate(small_disk / "b", 1 << 30)
    assert (small_disk / "b").stat().st_size == (1 << 20) + 5


KILLS_ITSELF = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]


@pytest.mark.parametrize(
    ("events", "outcome", "kills"), [("oom_kill 2\n", "host_memory_exceeded", 2), ("oom_kill 0\n", "signalled", 0)]
)
def test_a_kill_by_the_kernel_for_want_of_memory_is_told_from_one_by_hand(
    tmp_path: Path, events: str, outcome: str, kills: int
):
    """The files of a control group, as the kernel would have them."""
    group, folder = tmp_path / "group", tmp_path / "task"
    for path in (group, folder):
        path.mkdir()
    for name, content in (("memory.max", "max"), ("memory.events", events), ("cgroup.procs", "")):
        (group / name).write_text(content)
    bounds = {"path": str(group), "memory_bytes": 3 << 30, "processes": 100}
    left = left_by(folder, json.dumps(spec(folder, command=KILLS_ITSELF, version=2, cgroup=bounds)))
    assert (left["signal"], left["oom_kills"], left["memory_signs"]) == (9, kills, kills > 0)
    assert (group / "memory.max").read_text() == str(3 << 30) and (group / "cgroup.procs").read_text() == "0"
    ended = TaskFolder(folder).look(starting=False, started=True).ended
    assert ended is not None and (ended.outcome, ended.memory_signs) == (outcome, kills > 0)
    assert kills == 0 or ended.stderr_tail.startswith("the kernel has ended its processes at 3072 MiB")


def test_a_record_that_names_a_group_of_others_has_nothing_killed(tmp_path: Path):
    folder = TaskFolder(tmp_path / "n1" / "tasks" / "j.1")
    folder.path.mkdir(parents=True)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in ("cgroup.procs", "cgroup.kill"):
        (foreign / name).write_text("")
    record = {"version": 2, "pid": 2, "ranks": {}, "began": 1, "cgroup": str(foreign)}
    (folder.path / "shim.json").write_text(json.dumps(record))
    assert folder.cgroup is None
    folder.signal_ranks(9)
    assert (foreign / "cgroup.kill").read_text() == ""


def test_a_group_that_has_the_number_of_a_rank_by_now_hears_nothing(tmp_path: Path):
    folder = TaskFolder(tmp_path / "n1" / "tasks" / "j.1")
    folder.path.mkdir(parents=True)
    parent = subprocess.Popen(["sleep", "977"])
    stranger = subprocess.Popen(["sleep", "977"], process_group=0)
    record = {"version": 2, "pid": parent.pid, "ranks": {"0": stranger.pid}, "began": began(parent.pid)}
    (folder.path / "shim.json").write_text(json.dumps(record))
    folder.signal_ranks(signal.SIGTERM)
    stranger.send_signal(signal.SIGPROF)  # of two that wait, SIGTERM would come first
    parent.kill()
    assert (stranger.wait(), parent.wait()) == (-signal.SIGPROF, -signal.SIGKILL)
