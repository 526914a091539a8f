"""What programs of the corpus need, and whether this machine has it."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
"""Control groups, version 1."""


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _mounts() -> bool:
    tried = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(tried, capture_output=True).returncode == 0


def _limits_memory() -> bool:
    return (MEMORY_CGROUPS / "memory.limit_in_bytes").exists() and os.access(MEMORY_CGROUPS, os.W_OK)


NEEDS: dict[str, Callable[[], bool]] = {
    "cc": _command("gcc"),
    "c++": _command("g++"),
    **{name: _command(name) for name in ("aws", "curl", "git", "go", "java", "make", "node", "perl")},
    **{name: _command(name) for name in ("valgrind", "wget")},
    **{name: _module(name) for name in ("aiohttp", "aiokafka", "httpx2", "numpy", "PIL", "psycopg", "pyarrow")},
    **{
        name: _module(name) for name in ("pydantic", "pynvml", "requests", "scipy", "sklearn", "torch", "typer", "yaml")
    },
    "memory_cgroup": _limits_memory,
    "mount": _mounts,
    "no_gpu": lambda: shutil.which("nvidia-smi") is None,
    "no_mpirun": lambda: shutil.which("mpirun") is None,
}
"""{name: whether this machine has it}."""


@functools.cache
def has(name: str) -> bool:
    """Whether this machine has it."""
    return NEEDS[name]()


def missing(names: tuple[str, ...]) -> list[str]:
    """Those that this machine lacks."""
    return [name for name in names if not has(name)]


def without_privileges() -> str:
    """What a command begins with so that permissions hold for it: root may read and write everything."""
    return "setpriv --bounding-set=-all" if os.geteuid() == 0 else ""
