"""What tasks write: read from their files, line by line, and journalled for the logs topic."""

from __future__ import annotations

from pathlib import Path

from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.placement import LaunchTask
from torch_agent.harness.regular import regular

CHUNK_BYTES = 64 * 1024
LONGEST_LINE = 8 * 1024
CUT_MARK = " … (line cut)"


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
    rank, stream = int(path.stem.removeprefix("rank-")), "stdout" if path.suffix == ".out" else "stderr"
    whole = data[:end].decode(errors="replace").replace("\0", "\ufffd")
    lines = [
        LogLine(time_s=now_s, stream=stream, rank=rank, text=_cut(text))
        for text in whole.removesuffix("\n").split("\n")
    ]
    return (lines if end else []), offset + end


def logged(order: LaunchTask, lines: list[LogLine]) -> JobLogged:
    """The event that carries lines of a task."""
    return JobLogged(job_id=order.job_id, attempt=order.attempt, node_id=order.node_id, lines=lines)


def _cut(text: str) -> str:
    text = text.rsplit("\r", 1)[-1] if "\r" in text.rstrip("\r") else text.rstrip("\r")
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + CUT_MARK
