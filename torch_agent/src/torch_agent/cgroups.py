"""Tasks in control groups (cgroup v2), where the agent may make some. Shims use it: it imports of
the standard library alone, and what is fast to import (`dataclasses` takes half as long as all else that a shim does).

    <agent's own group, or the one named by --cgroup>/sanjaya-<node>-<state directory>/task-<job>.<attempt>

A group holds all that its task starts, whoever becomes the parent of that, and the kernel kills it as a whole. The
controllers of memory and numbers of processes are used where they are there; the rest works without them. Nothing is
frozen (`cgroup.freeze`): frozen processes take no signal and answer no page, agents of other versions would not thaw
them, and one that died in between would leave them frozen; stopped ones (SIGSTOP) go on by any agent's SIGCONT.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MEMORY, PIDS = "memory", "pids"
MOUNTS, OWN = Path("/proc/self/mounts"), Path("/proc/self/cgroup")
LONGEST_NAME = 120
PROCS = "cgroup.procs"


class NoCgroups(Exception):
    """The agent can make none; the message says why."""


class Cgroup(NamedTuple):
    """The control group of one task, which may be gone, or may never have come about."""

    path: Path

    def make(self, *, memory_bytes: int | None = None, processes: int | None = None) -> None:
        """Create it, with bounds where the kernel has controllers for them.

        Args:
            memory_bytes: what all of its processes may have together; None: no bound.
            processes: so many processes and threads at most; None: no bound.

        Raises:
            OSError: it cannot be created.
        """
        self.path.mkdir(parents=False, exist_ok=True)
        if memory_bytes is not None:
            self._write("memory.max", str(memory_bytes))
            self._write("memory.oom.group", "1")  # half a task trains on without the other half
        if processes is not None:
            self._write("pids.max", str(processes))

    def enter(self) -> None:
        """Move this process there, before it starts the task's program; without effect where that is not possible."""
        self._write(PROCS, "0")

    def pids(self) -> list[int]:
        """The processes in it, ascending; those of groups that the task has made below it come with them."""
        found: set[int] = set()
        for folder in self._folders():
            found.update(map(int, _read(folder / PROCS).split()))
        return sorted(found - {0})  # 0: of another namespace of processes

    def kill(self) -> None:
        """Have the kernel kill all at once, also what is being started meanwhile (Linux 5.14)."""
        self._write("cgroup.kill", "1")

    def cpu_s(self) -> float | None:
        """Seconds of CPU time of all that have ever been in it; None: that is not known."""
        used = _numbers(self.path / "cpu.stat").get("usage_usec")
        return None if used is None else used / 1e6

    def memory_bytes(self) -> int | None:
        """Memory that its processes hold, shared memory and its files counted once; None: that is not known.

        Without the cache of files, which the kernel takes back when it needs room.
        """
        found = _numbers(self.path / "memory.stat")
        return found["anon"] + found["shmem"] if {"anon", "shmem"} <= found.keys() else None

    def oom_kills(self) -> int | None:
        """How many of its processes the kernel has killed for want of memory; None: that is not counted."""
        return _numbers(self.path / "memory.events").get("oom_kill")

    def remove(self) -> None:
        """Remove it with what the task has made below it, as far as nothing is in there any more."""
        for folder in sorted(self._folders(), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> Iterator[Path]:
        for folder, _, _ in os.walk(self.path):
            yield Path(folder)

    def _write(self, name: str, content: str) -> None:
        """Without effect where there is no such file: no file is made in a group."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path / name, os.O_WRONLY)
            try:
                os.write(descriptor, content.encode())
            finally:
                os.close(descriptor)


class Groups(NamedTuple):
    """The group that an agent keeps its tasks' groups in."""

    path: Path
    controllers: tuple[str, ...]
    """Of `MEMORY` and `PIDS` those that bound and count each task."""

    def of(self, key: str) -> Path:
        """The group of a task."""
        return self.path / task_name(key)

    def remove(self) -> None:
        """Remove it unless tasks go on in it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def sweep(self, keys: frozenset[str]) -> None:
        """Remove the empty groups of tasks that have ended while no agent was there.

        Args:
            keys: of the tasks that have not ended.
        """
        kept = {task_name(key) for key in keys}
        for path in sorted(self.path.glob("task-*")):
            if path.name not in kept:
                Cgroup(path).remove()


def found(parent: Path | None, node_id: str, state_dir: Path) -> Groups:
    """Make the group for an agent's tasks, and try it.

    Args:
        parent: the group in which it is made; None: that of this process.
        node_id: of the agent.
        state_dir: of the agent.

    Raises:
        NoCgroups: there is no cgroup v2, or this process may not make groups there.
    """
    above = own_group() if parent is None else parent
    path = above / group_name(node_id, state_dir)
    try:
        path.mkdir(exist_ok=True)
        for folder in (above, path):
            for controller in (MEMORY, PIDS):
                Cgroup(folder)._write("cgroup.subtree_control", f"+{controller}")
        _try(Cgroup(path / f"probe-{os.getpid()}"))
    except OSError as error:
        raise NoCgroups(f"{above}: no groups for tasks can be made: {error.strerror or error}") from None
    enabled = _read(path / "cgroup.subtree_control").split()
    return Groups(path, tuple(each for each in (MEMORY, PIDS) if each in enabled))


def _try(probe: Cgroup) -> None:
    """Raises OSError where a process cannot be moved: the group may be another's, or of threads alone."""
    probe.make()
    try:
        move = ["/bin/sh", "-c", 'echo $$ > "$0"', str(probe.path / PROCS)]
        done = subprocess.run(move, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace").strip())
    finally:
        probe.remove()


def own_group() -> Path:
    """The group of this process, where cgroup v2 is mounted.

    Raises:
        NoCgroups: it is not mounted, or the group is not to be seen from here.
    """
    mounts = [line.split() for line in _read(MOUNTS).splitlines()]
    mount = next((fields[1] for fields in mounts if len(fields) > 2 and fields[2] == "cgroup2"), None)
    if mount is None:
        raise NoCgroups("cgroup v2 is not mounted")
    own = next((line[3:] for line in _read(OWN).splitlines() if line.startswith("0::")), "")
    if not own.startswith("/") or own.startswith("/.."):
        raise NoCgroups(f"the group of this process ({own or 'none'}) is not below {mount}")
    group = Path(mount) / own.lstrip("/")
    # A service manager that has given this process a group to divide has put it into one below (DelegateSubgroup):
    # in a group with processes no controllers can be had for those below.
    return group.parent if _is_delegated(group.parent) else group


def _is_delegated(group: Path) -> bool:
    try:
        return os.getxattr(group, "user.delegate") == b"1"
    except OSError:
        return False


def group_name(node_id: str, state_dir: Path) -> str:
    """The name of an agent's group; two agents of one node id on a machine have two state directories."""
    place = zlib.crc32(os.path.realpath(state_dir).encode())
    return f"sanjaya-{_safe(node_id)}-{place:08x}"


def task_name(key: str) -> str:
    """The name of a task's group."""
    return f"task-{_safe(key)}"


def is_of(path: Path, key: str, state_dir: Path) -> bool:
    """Whether a group is that of a task by its name: the record that names it lies in reach of the task.

    Args:
        path: of the group.
        key: of the task.
        state_dir: of its agent.
    """
    place = group_name("", state_dir).removeprefix("sanjaya-")
    above = path.parent.name
    return path.name == task_name(key) and above.startswith("sanjaya-") and above.endswith(place)


def _safe(name: str) -> str:
    """As a name of a file, bounded; another name for each."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if plain == name and len(name) <= LONGEST_NAME:
        return plain
    import hashlib  # 3 ms, which hardly any shim needs

    return f"{plain[: LONGEST_NAME - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _numbers(path: Path) -> dict[str, int]:
    """The lines `name number` of a file; empty where it is not there."""
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
