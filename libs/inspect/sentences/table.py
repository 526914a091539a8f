"""The table of sentences: one per type of event, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libs.contracts import agent, introspection
from libs.contracts.base import Event

Say = Callable[[Any], str]
_SAY: dict[type[Event], Say] = {}

_MEASURED = "is one of many measurements of a short-lived topic, which no story tells; JobProfiled sums them up"
UNTOLD: dict[type[Event], str] = {
    agent.GpuSampled: _MEASURED,
    agent.GpuCoordinated: _MEASURED,
    agent.JobLogged: "is what the job itself says; `sanjaya logs` shows it",
    agent.MinibatchProfiled: _MEASURED,
    agent.TaskSampled: _MEASURED,
    agent.NodeHeartbeat: "says that nothing has happened; NodeLost tells its absence",
    introspection.WindowClosed: _MEASURED,
}
"""{event type without a sentence: why}. A type that has neither a sentence nor a line here fails a test."""


def sentence(event: Event) -> str:
    """What the event says, without its subject's id where the story is about the subject."""
    say = _SAY.get(type(event))
    return say(event) if say is not None else f"{type(event).__name__} ({event.wire_type})"


def says(cls: type[Event]) -> bool:
    """Whether there is a sentence for events of this class."""
    return cls in _SAY


def tells(cls: type[Event]) -> Callable[[Say], Say]:
    """Register the sentence of events of this class."""

    def register(say: Say) -> Say:
        _SAY[cls] = say
        return say

    return register
