"""What tasks write: read from their files, line by line, and journalled for the logs topic."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.placement import LaunchTask
from torch_agent.harness.regular import regular

CHUNK_BYTES = 64 * 1024
LONGEST_LINE = 8 * 1024
CUT_MARK = " … (line cut)"
EVENT_BYTES, LINE_BYTES = 128 * 1024, 96
"""Characters of output in one event, of which each may take six bytes as JSON; and what a line has beside its text."""
LEFT_BYTES = 64 * 1024 * 1024
"""Of a file of output that are read, at most, when its task has ended: a task may write faster than its output is
passed on, and a hole in a file may be longer than any disk."""


def read_lines(path: Path, offset: int, *, ended: bool, now_s: float) -> tuple[list[LogLine], int]:
    """The next whole lines of a file of output.

    Args:
        offset: how far it was read before.
        ended: the writer is gone, so that a last line without an end counts too.

    Returns:
        The lines, and the offset behind them. A line longer than a chunk is cut, with a mark.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            file.seek(offset)
            data = file.read(CHUNK_BYTES)
    except OSError:  # it is gone, or the task has put something else there
        return [], offset
    end = data.rfind(b"\n") + 1
    if not end and (ended or len(data) == CHUNK_BYTES):
        end = len(data)
    whole = data[:end].decode(errors="replace").replace("\0", "\ufffd")
    lines = [_line(path, _cut(text), now_s) for text in whole.removesuffix("\n").split("\n")]
    return (lines if end else []), offset + end


def behind_lines(path: Path, count: int) -> int:
    """The offset behind so many lines of a file of output, as `read_lines` counts them; its end where it has fewer."""
    offset = 0
    try:
        with open(path, "rb", opener=regular) as file:
            while count > 0 and (data := file.read(CHUNK_BYTES)):
                end = data.rfind(b"\n") + 1 or len(data)
                lines = data[:end].removesuffix(b"\n").split(b"\n")
                taken = lines[:count]
                count -= len(taken)
                offset += min(end, sum(len(line) + 1 for line in taken))
                file.seek(offset)
    except OSError:
        return 0
    return offset


def rest_of(path: Path, offset: int, now_s: float) -> tuple[list[LogLine], int, int]:
    """What to read of the output of a task that has ended, so that it is little enough.

    Returns:
        A line that says what is passed over, if anything is; the offset to read from, the beginning of a line where
        there is one near; and the offset to read to, so that a process that is left and still writes keeps no agent.
    """
    try:
        found = os.stat(path)
        until = found.st_size if stat.S_ISREG(found.st_mode) else 0
        if until - offset <= LEFT_BYTES:
            return [], offset, until
        begin = until - LEFT_BYTES
        with open(path, "rb", opener=regular) as file:
            file.seek(begin)
            begin += file.read(CHUNK_BYTES).find(b"\n") + 1
    except OSError:
        return [], offset, 0
    text = f"… ({begin - offset} bytes of output are left out here: the task had written more than is passed on)"
    return [_line(path, text, now_s)], begin, until


def logged(order: LaunchTask, lines: list[LogLine]) -> list[JobLogged]:
    """The events that carry lines of a task, none longer than a log takes."""
    parts: list[list[LogLine]] = []
    room = 0
    for line in lines:
        room -= LINE_BYTES + len(line.text)
        if room < 0:
            parts.append([])
            room = EVENT_BYTES
        parts[-1].append(line)
    return [JobLogged(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, lines=part) for part in parts]


def rank_and_stream(path: Path) -> tuple[int, str]:
    """Which process writes a file of output, and to which of its streams."""
    return int(path.stem.removeprefix("rank-")), "stdout" if path.suffix == ".out" else "stderr"


def _line(path: Path, text: str, now_s: float) -> LogLine:
    rank, stream = rank_and_stream(path)
    return LogLine(time_s=now_s, stream=stream, rank=rank, text=text)


def _cut(text: str) -> str:
    text = text.rsplit("\r", 1)[-1] if "\r" in text.rstrip("\r") else text.rstrip("\r")
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + CUT_MARK
