"""A log as a Chrome trace: a row per GPU, a bar per attempt. Opens in ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec

from libs.contracts.agent import NodeJoined
from libs.contracts.base import Topic
from libs.contracts.envelope import Record
from libs.lifecycle import Attempt, Lives


def write_chrome_trace(records: Iterable[Record], out: IO[bytes]) -> int:
    """Write the trace; returns the number of bars. Attempts that hold GPUs at the end go up to the last event.

    A bar reaches over all time slices of its attempt, on the GPUs on which the attempt was placed.
    """
    events = list(_events(records))
    out.write(msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"}))
    return sum(1 for event in events if event["ph"] == "X")


def _events(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    nodes: dict[str, int] = {}
    lives = Lives()
    now_s = 0.0
    for record in records:
        event, time_s = record.envelope.event, record.envelope.time_s
        if record.topic != Topic.CONTROL:
            continue
        now_s = max(now_s, time_s)
        if isinstance(event, NodeJoined) and event.node_id not in nodes:
            nodes[event.node_id] = len(nodes) + 1
            yield from _names(event, nodes[event.node_id])
        for ended in lives.take(event, time_s):
            if isinstance(ended, Attempt):
                yield from _bars(ended, time_s, nodes)
    for still in lives.open():
        if isinstance(still, Attempt):
            yield from _bars(still, now_s, nodes)


def _names(node: NodeJoined, pid: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": node.node_id}}
    for gpu in node.gpus:
        name = f"GPU {gpu.index} ({gpu.gpu_type})"
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": gpu.index, "args": {"name": name}}


def _bars(attempt: Attempt, until_s: float, nodes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Times in microseconds, as the format wants them."""
    for task in attempt.gang:
        for index in task.gpu_indices:
            yield {
                "ph": "X",
                "name": attempt.job_id,
                "cat": "attempt",
                "pid": nodes.get(task.node_id, 0),
                "tid": index,
                "ts": round(attempt.placed_s * 1e6),
                "dur": round(max(0.0, until_s - attempt.placed_s) * 1e6),
                "args": {
                    "attempt": attempt.number,
                    "end": attempt.released_by or "holds",
                    "why": attempt.reason.message,
                },
            }
