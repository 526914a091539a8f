"""The agent's clock, by which it measures: durations, patience, when something is due.

It shows the machine's time at its beginning, and what has elapsed since, sleep of the machine included. Setting the
machine's clock does not move it, so that nothing of the agent hurries or stands still. What the agent notes of times in
its journal is by this clock, so the next agent in the same life of the machine goes on with it (`go_on`).

The machine's own time (`time.time`) is for what others compare with theirs: times of facts, of files, of signatures.
"""

from __future__ import annotations

import time

from torch_agent.shim import boottime_s


class _Clock:
    def __init__(self) -> None:
        self.offset_s = time.time() - boottime_s()


_clock = _Clock()


def now_s() -> float:
    """Seconds since the epoch, by the agent's clock."""
    return _clock.offset_s + boottime_s()


def offset_s() -> float:
    """What this clock shows more than the seconds since the machine was started."""
    return _clock.offset_s


def go_on(offset_s: float) -> None:
    """Go on with the clock of an earlier agent, in the same life of the machine."""
    _clock.offset_s = offset_s


def from_machine(time_s: float) -> float:
    """Bring a time that another process has just read off the machine's clock to the agent's."""
    return time_s - time.time() + now_s()
