"""The processes of this machine, as /proc has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
PARENT, GROUP, USER, SYSTEM, ENDED_USER, ENDED_SYSTEM, BEGAN = 1, 2, 11, 12, 13, 14, 19
"""Places in a process's `stat`, counted from its state on."""


def machine_start() -> str:
    """Names the present life of the machine, or of the container: no process of an earlier one is left."""
    first = _stat(PROC / "1")
    return f"{BOOT_ID.read_text().strip()}/{first[BEGAN] if first else ''}"


def machine_cpus() -> list[int]:
    """The CPUs that this process may use, ascending."""
    return sorted(os.sched_getaffinity(0))


def machine_memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def lives(pid: int) -> bool:
    """Whether the process is there and more than a zombie."""
    found = _stat(PROC / str(pid))
    return bool(found) and found[0] != "Z"


def group_of(process: Path) -> int:
    """The process group of `/proc/<pid>`; 0 when the process has ended meanwhile."""
    found = _stat(process)
    return int(found[GROUP]) if found else 0


def cpu_s(pid: int) -> float:
    """Seconds of CPU time that all threads of a process have used, and its children that have ended; 0 when it has.

    So the sum over all processes of a task does not become less when one of them ends and its parent hears of that.
    """
    found = _stat(PROC / str(pid))
    return sum(int(found[place]) for place in (USER, SYSTEM, ENDED_USER, ENDED_SYSTEM)) / TICKS_PER_S if found else 0.0


def run_s(pid: int) -> float:
    """Seconds for which the first thread of a process has run, to the nanosecond; 0 when it has ended."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def resident_bytes(pid: int, *, shared: bool) -> int:
    """Memory of a process; 0 when it has ended.

    Args:
        shared: counts what it has in common with others as its own; else it counts its part of that.
    """
    process = PROC / str(pid)
    try:
        if shared:
            return int((process / "statm").read_text().split()[1]) * PAGE_BYTES
        lines = (process / "smaps_rollup").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    except (OSError, IndexError):
        return 0


def children(pid: int) -> list[int]:
    """Of a process, the eldest first."""
    found = [(int(stat[BEGAN]), int(path.name)) for path, stat in _all() if int(stat[PARENT]) == pid]
    return [child for _, child in sorted(found)]


def found_by(last_arguments: list[str]) -> int | None:
    """The process with these last arguments; of a path the end is enough. None: there is none."""
    for path, _ in _all():
        try:
            arguments = (path / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        last = arguments[-len(last_arguments) :]
        if len(last) == len(last_arguments) and all(map(str.endswith, last, last_arguments)):
            return int(path.name)
    return None


def _all() -> Iterator[tuple[Path, list[str]]]:
    """Each process's folder and `stat`."""
    for path in PROC.glob("[0-9]*"):
        if stat := _stat(path):
            yield path, stat


def _stat(process: Path) -> list[str]:
    """From its state on; empty when the process has ended."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
