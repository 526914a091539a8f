"""The last minutes of coordination on this node, a line per step, in a ring of files per GPU.

<state dir>/coordination/<GPU>/<milliseconds since the epoch>.jsonl
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import BinaryIO

from libs.coordination.actions import Step
from libs.coordination.readings import Readings
from libs.coordination.recording import head_line, step_line
from libs.coordination.state import Coordination

FILE_S, FILES = 60.0, 11
"""Of the last ten minutes, each file with the state before its first step."""


class Records:
    """Of all GPUs of the node. What cannot be written is not recorded; coordination goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, tuple[BinaryIO, float]] = {}
        """{GPU: the file in use, and when it was begun}."""

    def before(self, state: Coordination, index: int, now_s: float) -> None:
        """A step of this GPU is about to be taken: begin a file where there is none, or it is old enough."""
        file, begun_s = self._files.get(index, (None, 0.0))
        if file is not None and now_s - begun_s < FILE_S:
            return
        self.end(index)
        folder = self._folder / str(index)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = (folder / f"{time.time_ns() // 1_000_000}.jsonl").open("wb", buffering=0)
        opened.write(head_line(state))
        self._files[index] = opened, now_s
        for old in sorted(folder.glob("*.jsonl"))[:-FILES]:
            old.unlink()

    def after(self, index: int, now_s: float, readings: Readings, result: Step) -> None:
        """The step was taken."""
        self._files[index][0].write(step_line(now_s, readings, result))

    def end(self, index: int) -> None:
        """The next step of this GPU begins another file."""
        if index in self._files:
            self._files.pop(index)[0].close()
