"""When a GPU will have done what its process has launched: launching is asynchronous, and the process waits earlier.

Two events of the GPU lie around what each mini-batch launches, from the moment at which its batch is there until the
next one is asked for. The time between them is known when the GPU has passed the second one, so that nothing is waited
for: what a mini-batch takes is learned from those before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

SMOOTHING = 0.1
"""Weight of the newest mini-batch in the usual one, and of the newest batch in the usual making of one."""
UNUSUAL = 4.0
"""A mini-batch counts as at most so many usual ones: one that had a validation in it says nothing of the next."""


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
        self._begun_s = now_s
        self._begin = self._guarded(self._begun)

    def done_s(self, now_s: float) -> float:
        """All of it is launched. Returns when the GPU will have done it, and what was launched before."""
        if self._begin is not None:
            self._guarded(self._ended)
            self._begin = None
        if self._gave_up:
            return now_s
        self._done_s = max(now_s, max(self._begun_s, self._done_s) + self._usual_s)
        return self._done_s

    def stood_still(self) -> None:
        """What is being launched is not measured: the process has stood still meanwhile."""
        self._begin = None

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """None where CUDA is not there, captures a graph, or does not work any more, as the script hears by itself."""
        if self._gave_up:
            return None
        try:
            if not self._cuda.is_initialized() or self._cuda.is_current_stream_capturing():
                return None
            return work()
        except Exception:
            self._gave_up = True
            return None

    def _begun(self) -> Any:
        self._look()
        return self._recorded()

    def _ended(self) -> None:
        self._measured.append((self._begin, self._recorded()))

    def _recorded(self) -> Any:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _look(self) -> None:
        usual_s = self._usual_s
        while self._measured and self._measured[0][1].query():
            begin, end = self._measured.popleft()
            took_s = begin.elapsed_time(end) / 1000.0
            took_s = min(took_s, UNUSUAL * usual_s) if usual_s else took_s
            # A longer one counts at once: a guest that is let in too early costs the owner more than a gap missed.
            usual_s = max(took_s, usual_s + SMOOTHING * (took_s - usual_s))
            self._free += [begin, end]
        self._usual_s = usual_s
        if not self._measured:
            self._done_s = 0.0  # the GPU has done everything: what was expected of it does not count any more
