"""When a GPU will have done what its process has launched: launching is asynchronous, and the process waits earlier.

Two events of the GPU lie around what each mini-batch launches, from the moment at which its batch is there until the
next one is asked for. The time between them is known when the GPU has passed the second one, so that nothing is waited
for: what a mini-batch takes is learned from those before it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

SMOOTHING = 0.1
"""Weight of the newest mini-batch where it is shorter than usual; a longer one counts at once."""
UNKNOWN = 8
"""Mini-batches whose end the GPU has not passed: so far behind no more are measured."""


class DeviceTime:
    """Of one process, on its current stream."""

    def __init__(self, torch: Any) -> None:
        """`torch`: the module."""
        self._cuda = torch.cuda
        self._begin: Any = None
        """Before the first operation of the mini-batch that is being launched; None: it is not measured."""
        self._gave_up = False
        self._begun_s = self._done_s = self._usual_s = 0.0
        self._measured: deque[tuple[Any, Any]] = deque()
        self._free: list[Any] = []

    def begins(self, now_s: float) -> None:
        """A batch is there: what is launched from now on works on it."""
        self._begun_s, self._begin = now_s, None
        if self._works:
            try:
                self._look()
                if len(self._measured) < UNKNOWN and not self._cuda.is_current_stream_capturing():
                    self._begin = self._recorded()
            except RuntimeError:  # CUDA does not work any more, of which the script will hear by itself
                self._gave_up = True

    def done_s(self, now_s: float) -> float:
        """All of it is launched. Returns when the GPU will have done it, and what was launched before."""
        if self._begin is not None and self._works:
            try:
                self._measured.append((self._begin, self._recorded()))
            except RuntimeError:
                self._gave_up = True
        self._begin = None
        self._done_s = max(now_s, max(self._begun_s, self._done_s) + self._usual_s)
        return self._done_s

    @property
    def _works(self) -> bool:
        return not self._gave_up and bool(self._cuda.is_initialized())

    def _recorded(self) -> Any:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _look(self) -> None:
        while self._measured and self._measured[0][1].query():
            begin, end = self._measured.popleft()
            took_s = begin.elapsed_time(end) / 1000.0
            self._usual_s = max(took_s, self._usual_s + SMOOTHING * (took_s - self._usual_s))
            self._free += [begin, end]
        if not self._measured:
            self._done_s = 0.0  # the GPU has done everything: what was expected of it does not count any more
