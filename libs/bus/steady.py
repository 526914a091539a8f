"""The time of this process: it goes on as the machine does, and never jumps when somebody sets the machine's clock."""

from __future__ import annotations

import time

_STARTED_S = time.time()
_STARTED_AFTER_S = time.clock_gettime(time.CLOCK_BOOTTIME)


def steady_s() -> float:
    """Seconds since the epoch by the machine's clock when this process began, and what has elapsed since.

    Time in which the machine slept counts: a timer that was due meanwhile is due.
    """
    return _STARTED_S + time.clock_gettime(time.CLOCK_BOOTTIME) - _STARTED_AFTER_S
