"""The stacks of a task's processes, asked for by a signal (harness/stacks.py): what each thread does just now.

A process answers from its signal handler, in pieces. It has answered when its file has grown and no thread of it is in
the handler any more, which the kernel tells: the signal is neither pending nor blocked where it was not before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_agent.folders import TaskFolder
from torch_agent.harness.regular import regular
from torch_agent.harness.stacks import SIGNAL, SUFFIX
from torch_agent.pages import living_pages
from torch_agent.processes import PROC

ANSWER_S = 2.0
"""A process that waits for its disk answers when it is done with that."""
LOOK_S = 0.005
LARGEST = 64 << 10
"""Bytes of the stacks of one process, the last ones: its main thread comes last."""
_BIT = 1 << (SIGNAL - 1)
_asking = threading.Lock()
"""Forked processes share a file: one is asked after the other."""


def stacks_of(folder: TaskFolder) -> list[dict[str, Any]]:
    """What the processes of a task do, by rank: those that train, else every one that answers.

    Args:
        folder: of the task.

    Returns:
        `rank` (None where it is not known), `pid`, `text` (the stacks, the innermost call of each first; empty when
        there are none) and `note` (why there are none) of each process.
    """
    pages, there = folder.pages, folder.processes()
    ranks = {page.pid: page.rank for page in living_pages(pages)}
    asked = [pid for pid in there if pid in ranks] or [pid for pid in there if _hears(pid)]
    found = [{"rank": ranks.get(pid), "pid": pid, **_stacks(pid, pages)} for pid in asked]
    return sorted(found, key=lambda each: (each["rank"] is None, each["rank"], each["pid"]))


def _stacks(pid: int, pages: Path) -> dict[str, str]:
    if _status(PROC / str(pid), "State").startswith("T"):
        return _none("the process stands still (it is suspended)")
    if not _hears(pid):
        return _none("the process does not listen: it was started with SANJAYA_HARNESS=0, or is no Python process")
    path = _file_of(pid, pages)
    if path is None:
        return _none("the process has closed the file for its stacks")
    with _asking:
        return _asked(pid, path)


def _asked(pid: int, path: Path) -> dict[str, str]:
    before, blocked = path.stat().st_size, _threads(pid, "SigBlk")
    try:
        os.kill(pid, SIGNAL)
    except ProcessLookupError:
        return _none("the process has ended")
    deadline = time.monotonic() + ANSWER_S
    while not _has_answered(pid, path, before, blocked) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    with open(path, "rb", opener=regular) as file:
        file.seek(max(before, path.stat().st_size - LARGEST))
        text = file.read().decode(errors="replace").strip("\n")
    return {"text": text, "note": ""} if text else _none(f"the process has not answered within {ANSWER_S:g} s")


def _has_answered(pid: int, path: Path, before: int, blocked: set[str]) -> bool:
    if path.stat().st_size == before or int(_status(PROC / str(pid), "ShdPnd") or "0", 16) & _BIT:
        return False
    return not (_threads(pid, "SigBlk") - blocked) and not _threads(pid, "SigPnd")


def _hears(pid: int) -> bool:
    """Whether the signal has a handler there: without one it would end the process."""
    return bool(int(_status(PROC / str(pid), "SigCgt") or "0", 16) & _BIT)


def _file_of(pid: int, pages: Path) -> Path | None:
    for target in _open_files(pid):
        if target.name.endswith(SUFFIX) and target.parent == pages.resolve() and target.is_file():
            return target
    return None


def _open_files(pid: int) -> Iterator[Path]:
    try:
        links = list(os.scandir(PROC / str(pid) / "fd"))
    except OSError:
        return
    for link in links:
        try:
            yield Path(os.readlink(link.path))
        except OSError:
            continue


def _threads(pid: int, field: str) -> set[str]:
    """Threads that have the signal in this set of theirs (`SigBlk`, `SigPnd`)."""
    try:
        threads = list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return set()
    return {thread.name for thread in threads if int(_status(thread, field) or "0", 16) & _BIT}


def _status(process: Path, field: str) -> str:
    """A line of its `status`; empty when it has ended."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:")), "")


def _none(why: str) -> dict[str, str]:
    return {"text": "", "note": why}
