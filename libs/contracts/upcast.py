"""Old versions of an event, read as today's.

A breaking change to an event is a new wire name (`…v2`); the old name stays readable by a step that turns
old data into new. Steps chain: v1 to v2 to v3.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from libs.contracts.base import Json

Step = Callable[[Json], Json]

_STEPS: dict[str, tuple[str, Step]] = {}


def upcasts(old: str, *, to: str) -> Callable[[Step], Step]:
    """Register the step from one version to the next.

    Raises:
        ValueError: there is a step for `old` already.
    """

    def register(step: Step) -> Step:
        if old in _STEPS:
            raise ValueError(f"two upcasts from {old!r}")
        _STEPS[old] = (to, step)
        return step

    return register


def to_current(wire_type: str, data: bytes) -> tuple[str, bytes]:
    """The newest wire name and the data in its form; unchanged when there is no step."""
    if wire_type not in _STEPS:
        return wire_type, data
    fields: Json = msgspec.json.decode(data)
    while wire_type in _STEPS:
        wire_type, step = _STEPS[wire_type]
        fields = step(fields)
    return wire_type, msgspec.json.encode(fields)
