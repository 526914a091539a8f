"""Control groups: names, bounds and figures on a made-up tree; what the kernel does, where groups can be made."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_agent.cgroups import Cgroup, Groups, NoCgroups, found, group_name, is_of, own_group, task_name

from torch_agent import cgroups


def made(path: Path, **content: str) -> Cgroup:
    """A folder with the files of a group; `_` stands for a dot."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (path / name.replace("_", ".", 1)).write_text(text)
    return Cgroup(path)


def test_bounds_are_written_where_there_are_controllers_and_nowhere_else(tmp_path: Path):
    group = made(tmp_path / "a", memory_max="max", pids_max="max", memory_oom_group="0")
    (group.path / "memory.oom.group").write_text("0")
    group.make(memory_bytes=1 << 30, processes=500)
    said = {name: (group.path / name).read_text() for name in ("memory.max", "pids.max", "memory.oom.group")}
    assert said == {"memory.max": "1073741824", "pids.max": "500", "memory.oom.group": "1"}
    bare = Cgroup(tmp_path / "b")
    bare.make(memory_bytes=1 << 30, processes=500)
    bare.kill()
    assert list(bare.path.iterdir()) == [], "no file is made in a group"


def test_figures_are_read_or_not_known(tmp_path: Path):
    group = made(
        tmp_path,
        cpu_stat="usage_usec 2500000\nuser_usec 1\n",
        memory_stat="anon 1000\nfile 70000\nshmem 500\n",
        memory_events="low 0\noom 3\noom_kill 2\noom_group_kill 1\n",
    )
    assert (group.cpu_s(), group.memory_bytes(), group.oom_kills()) == (2.5, 1500, 2)
    bare = Cgroup(tmp_path / "none")
    assert (bare.cpu_s(), bare.memory_bytes(), bare.oom_kills(), bare.pids()) == (None, None, None, [])


def test_processes_of_groups_that_the_task_has_made_below_are_its_own(tmp_path: Path):
    group = made(tmp_path, cgroup_procs="5\n3\n")
    made(tmp_path / "below" / "it", cgroup_procs="9\n0\n")
    assert group.pids() == [3, 5, 9]


def test_groups_are_removed_from_below_and_one_with_something_in_it_stays(tmp_path: Path):
    for name in ("task-a.1/x/y", "task-b.1", "task-c.1", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "task-c.1" / "held").touch()
    Groups(tmp_path, ()).sweep(frozenset(["b.1"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "task-b.1", "task-c.1"]


@pytest.mark.parametrize("key", ["job-1.1", "../../x.1", "a/b.2", "j" * 500 + ".1", "é.1", ""])
def test_names_are_names_of_files_bounded_and_distinct(tmp_path: Path, key: str):
    name = task_name(key)
    assert "/" not in name and name not in (".", "..") and len(name) < 200 and name.isascii()
    assert len({name, task_name(key + "_"), task_name(key + "/")}) == 3
    assert len(group_name(key, tmp_path)) < 200


def test_only_a_group_with_the_name_of_the_task_and_of_its_agent_is_its_own(tmp_path: Path):
    above = Path("/sys/fs/cgroup") / group_name("n1", tmp_path)
    assert is_of(above / task_name("j.1"), "j.1", tmp_path)
    assert not is_of(above / task_name("other.1"), "j.1", tmp_path)
    assert not is_of(Path("/sys/fs/cgroup") / group_name("n1", tmp_path / "b") / task_name("j.1"), "j.1", tmp_path)
    assert not is_of(Path("/sys/fs/cgroup/system.slice"), "j.1", tmp_path)


UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
HYBRID = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "own", "expected"),
    [
        (UNIFIED, "0::/user.slice/a.service\n", "/sys/fs/cgroup/user.slice/a.service"),
        (HYBRID, "4:memory:/x\n0::/\n", "/sys/fs/cgroup/unified"),
        ("cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n", "4:memory:/x\n", "cgroup v2 is not mounted"),
        (UNIFIED, "0::/../outside\n", "is not below /sys/fs/cgroup"),
        (UNIFIED, "4:memory:/x\n", "is not below /sys/fs/cgroup"),
    ],
)
def test_the_own_group_is_found_on_unified_and_hybrid_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, own: str, expected: str
):
    for name, text in (("MOUNTS", mounts), ("OWN", own)):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(cgroups, name, tmp_path / name)
    try:
        assert str(own_group()) == expected
    except NoCgroups as error:
        assert expected in str(error)


def test_a_group_that_was_given_to_be_divided_is_taken_in_the_place_of_the_one_below(tmp_path: Path, monkeypatch):
    (tmp_path / "unit" / "agent").mkdir(parents=True)
    try:
        os.setxattr(tmp_path / "unit", "user.delegate", b"1")
    except OSError:
        pytest.skip("no extended attributes of users here")
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")
    (tmp_path / "own").write_text("0::/unit/agent\n")
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    assert own_group() == tmp_path / "unit"


def test_an_agent_that_may_make_no_groups_is_told_where(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NoCgroups, match=f"{file}: no groups for tasks can be made"):
        found(file, "n1", tmp_path)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Groups]:
    try:
        groups = found(None, "test", tmp_path)
    except NoCgroups as error:
        pytest.skip(str(error))
    yield groups
    groups.remove()
    assert not groups.path.exists()


def test_the_kernel_keeps_and_kills_what_has_left_its_parents_and_its_environment(real: Groups):
    group = Cgroup(real.of("j.1"))
    group.make(processes=100)
    script = "import os, subprocess; print(subprocess.Popen(['setsid', 'env', '-i', 'sleep', '977']).pid, flush=True)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, preexec_fn=group.enter) as first:
        assert first.stdout is not None
        escaped = int(first.stdout.readline())
    assert group.pids() == [escaped] and (group.cpu_s() or 0.0) > 0.0
    assert (group.memory_bytes() is not None) == ("memory" in real.controllers)
    descriptor = os.pidfd_open(escaped)
    group.kill()
    assert select.select([descriptor], [], [], 30.0)[0]
    os.close(descriptor)
    while group.pids():
        pass
    real.sweep(frozenset())
    assert not group.path.exists()
