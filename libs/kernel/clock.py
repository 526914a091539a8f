"""A log that a wrong clock has carried into the future, and the way back.

Versions before the log had a clock of its own took the latest time that any source gave for their present. A node whose
clock was wrong left times on such a log that never come; a core goes on from them, because its present never goes back
by itself. `ClockRepaired`, an operator's request, moves all of a core's times back by as much as its present is ahead.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

S = TypeVar("S")

AHEAD_FROM_S = 2.0
"""A core that is ahead of its log by less needs no repair: a decision takes time, and an upgrade may begin early."""
SECONDS = "_s"
"""Names of fields with times end so."""


def turned_back(state: S, ahead_of_s: float, by_s: float) -> S:
    """A state whose times after `ahead_of_s` are earlier by `by_s`; durations are far smaller, and stay.

    Args:
        state: a core's.
        ahead_of_s: the log's present, seconds since the epoch.
        by_s: how far the core's present is ahead of it.
    """
    plain = msgspec.json.decode(msgspec.json.encode(state))
    return msgspec.json.decode(msgspec.json.encode(_moved(plain, ahead_of_s, by_s, False)), type=type(state))


def _moved(value: Any, ahead_of_s: float, by_s: float, timed: bool) -> Any:
    if isinstance(value, dict):
        return {k: _moved(v, ahead_of_s, by_s, timed or k.endswith(SECONDS)) for k, v in value.items()}
    if isinstance(value, list):
        return [_moved(item, ahead_of_s, by_s, timed) for item in value]
    return value - by_s if timed and isinstance(value, float) and value > ahead_of_s else value
