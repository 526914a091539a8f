"""Changes of what tasks may have of shared GPUs, kept until telemetry takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from libs.contracts.agent import AllowanceChange, GpuCoordinated
from libs.node.task import Task

MOST = 500
"""Of one GPU; it is some ten a second while shares change with each grant."""


class Changes:
    """Of one node."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._of_gpus: dict[int, deque[AllowanceChange]] = {}
        self._left_out: dict[int, int] = {}

    def note(self, index: int, task: Task, limit_bytes: int | None, share_ratio: float, time_s: float) -> None:
        """A task may have this of a GPU from now on."""
        kept = self._of_gpus.setdefault(index, deque(maxlen=MOST))
        if len(kept) == MOST:
            self._left_out[index] = self._left_out.get(index, 0) + 1
        kept.append(
            AllowanceChange(
                time_s=time_s,
                job_id=task.order.job_id,
                attempt=task.order.attempt,
                memory_limit_bytes=limit_bytes,
                compute_share_ratio=share_ratio,
            )
        )

    def take(self) -> list[GpuCoordinated]:
        """One event per GPU that had changes since the last call."""
        taken = [
            GpuCoordinated(
                node_id=self._node_id, index=index, changes=list(kept), left_out=self._left_out.get(index, 0)
            )
            for index, kept in sorted(self._of_gpus.items())
        ]
        self._of_gpus, self._left_out = {}, {}
        return taken

    def put_back(self, events: Iterable[GpuCoordinated]) -> None:
        """They could not be sent: the next call of `take` has them, as far as there is room, before what came since."""
        for event in events:
            since = self._of_gpus.get(event.index, ())
            kept = self._of_gpus[event.index] = deque([*event.changes, *since], maxlen=MOST)
            over = len(event.changes) + len(since) - len(kept)
            self._left_out[event.index] = self._left_out.get(event.index, 0) + event.left_out + over
