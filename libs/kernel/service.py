"""The door plate of a service: everything that a shell, the simulator or the audit needs to run its core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from libs.contracts.base import Event
from libs.contracts.catalogue import events_of
from libs.kernel.machine import Machine
from libs.kernel.present import Present

S = TypeVar("S")


class InvariantViolated(AssertionError):
    """A core's state contradicts itself; the message names the thing and both sides of the contradiction."""


def never(state: object) -> float | None:
    """For cores without timers."""
    return None


def unchecked(state: object) -> None:
    """For cores with a state that cannot contradict itself."""


def says_nothing(state: object, job_id: str, now_s: float) -> Present:
    """For cores that know nothing of what jobs wait for."""
    return Present()


@dataclass(frozen=True)
class Service(Generic[S]):
    """A named core."""

    name: str
    question: str
    """The one question that the service answers."""
    machine: Machine[S]
    state_type: type[S]
    """A msgspec Struct without required fields: the initial state is `state_type()`."""
    requests: tuple[type[Event], ...] = ()
    """Requests that the core makes as a user would, of the gateway's types; their records have the core as source."""
    observes: tuple[type[Event], ...] = ()
    """Facts of this owner that other processes of the service report: to a replay they are inputs."""
    next_wakeup: Callable[[S], float | None] = never
    """When the core wants a TimerFired next (seconds since the epoch), None for not at all."""
    check: Callable[[S], None] = unchecked
    """Raises InvariantViolated when the state contradicts itself."""
    present: Callable[[S, str, float], Present] = says_nothing
    """What the core knows at a time (seconds since the epoch), and of the job that is asked about; empty: of all."""
    silent: bool = False
    """It only listens, and decides nothing."""

    @cached_property
    def emits(self) -> tuple[type[Event], ...]:
        """What the core may decide, in order of wire name: the events that it owns. Anything else is refused."""
        return () if self.silent else tuple(cls for cls in events_of(self.name) if cls not in self.observes)
