"""The records in a task's folder, read: what its shim leaves there, and what the agent leaves for its next start.

A shim outlives the agent that started it, so these are the records of any version there has been. Version 1 did not say
its version; version 2 does, and has the same fields. Fields that were added since have defaults: agents of before leave
them out, and shims of before do not write them. They lie in reach of the task, which may have written anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from torch_agent.harness.regular import regular
from torch_agent.harness.versions import UnknownVersion, Unreadable

VERSIONS = (1, 2)
LONGEST_BYTES = 256 * 1024
"""Far more than the longest record."""

Pid = Annotated[int, msgspec.Meta(ge=2, le=1 << 22)]
"""Signals to the process groups 0 and 1 would reach the agent itself, and everything."""
Small = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""What an operating system counts in; JSON has no bound, and readers of the log have one."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them have."""

    version: int = 1


class Shim(Record, frozen=True, kw_only=True):
    """`shim.json`: the processes of a task that has been started."""

    pid: Pid
    ranks: dict[str, Pid]
    """{global rank: leader of its process group}."""
    began: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Start of the shim in the kernel's ticks; 0: one of before, which adopts no orphans."""
    cgroup: str = ""
    """Path of the task's control group; empty: it has none."""


class Exit(Record, frozen=True, kw_only=True):
    """`exit.json`: how a task has ended."""

    exit_code: Small | None
    signal: Small | None
    outcome: Literal[
        "exited", "signalled", "time_limit", "launch_failed", "setup_failed", "node_failed", "lease_expired"
    ]
    rank: Small | None
    stderr_tail: str
    memory_signs: bool | None = None
    oom_kills: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] | None = None
    """Processes of the task that the kernel has killed for want of memory; None: it does not count them."""


class Fetched(Record, frozen=True, kw_only=True):
    """`fetched-<rank>.json`: what it took to get a rank's state."""

    state_bytes: Annotated[int, msgspec.Meta(ge=0)]
    took_s: Annotated[float, msgspec.Meta(ge=0)]


class MemoryExceeded(Record, frozen=True, kw_only=True):
    """`memory.json`: the agent has ended the task because of its memory."""

    why: str


class Fenced(Record, frozen=True, kw_only=True):
    """`pages/fenced.json`: the harness has ended a process of the task, whose attempt was not the newest one."""

    why: str


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R]) -> R | None:
    """A record; None when there is no such file.

    Raises:
        Unreadable: it is no record of this kind, or of a newer version.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            content = file.read(LONGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"{path}: {error}") from error
    if len(content) > LONGEST_BYTES:
        raise Unreadable(f"{path}: longer than {LONGEST_BYTES} bytes")
    try:
        version = msgspec.json.decode(content, type=Record).version
        if version not in VERSIONS:
            raise UnknownVersion(path, "a record", version, VERSIONS)
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"{path}: {len(content)} bytes that are no record of the task: {error}") from None
