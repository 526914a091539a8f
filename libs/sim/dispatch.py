"""Brings the records of the control log to the services that read them, each in order."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Container, Sequence
from typing import Any

from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.runtime import TimerFired
from libs.inspect.refusing import refusing
from libs.kernel.ids import derived_id
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.sim.log import Log

TIMER_SOURCE = "runtime"
"""The shells sign the timers that they append."""


class _Timers:
    """The services' wake-up times, asked anew only after a service has taken something."""

    def __init__(self, replicas: dict[str, Replica[Any]]) -> None:
        self._replicas = replicas
        self._wanted: dict[str, float] = {}
        self._fired = dict.fromkeys(replicas, 0)
        self._changed: dict[str, None] = dict.fromkeys(replicas)
        self._earliest: tuple[float, str] | None = None

    def changed(self, name: str) -> None:
        self._changed[name] = None

    def earliest(self, unread: Container[str]) -> tuple[float, str] | None:
        """The first wanted time, and the service that wants it. One with an `unread` timer gets no other before."""
        if self._changed:
            for name in self._changed:
                at_s = self._replicas[name].next_wakeup
                if at_s is not None:
                    self._wanted[name] = at_s
                else:
                    self._wanted.pop(name, None)
            self._changed.clear()
            wanted = ((at_s, name) for name, at_s in self._wanted.items() if name not in unread)
            self._earliest = min(wanted, default=None)
        return self._earliest

    def fire(self, name: str, due_s: float, now_s: float) -> Envelope:
        """The timer's envelope, with the same id as a live shell would give it."""
        number, self._fired[name] = self._fired[name], self._fired[name] + 1
        self.changed(name)
        return Envelope(
            id=derived_id(f"{TIMER_SOURCE}/{name}", repr(due_s), number),
            source=TIMER_SOURCE,
            time_s=now_s,
            event=TimerFired(service=name, due_s=due_s),
        )


class Dispatcher(ABC):
    """The services over one log."""

    def __init__(self, services: Sequence[Service[Any]], log: Log) -> None:
        self._log, self._refuse = log, refusing(log.records)
        self.replicas: dict[str, Replica[Any]] = {service.name: Replica(service, self._refuse) for service in services}
        self._timers = _Timers(self.replicas)
        self._unread_timers: dict[str, str] = {}
        """{service: id of its timer that is on the log and that it has not read}."""

    @abstractmethod
    def append(self, envelope: Envelope) -> None:
        """Append a record; orders go out at once."""

    @abstractmethod
    def settle(self) -> None:
        """Let services take their turns."""

    @property
    @abstractmethod
    def behind(self) -> bool:
        """Whether some service has something left to read."""

    @abstractmethod
    def is_behind(self, name: str) -> bool:
        """Whether this service has something left to read."""

    def next_timer(self) -> tuple[float, str] | None:
        """The earliest wake-up that a service wants, and which service."""
        return self._timers.earliest(self._unread_timers)

    def fire(self, name: str, due_s: float, now_s: float) -> None:
        """Append the service's TimerFired."""
        envelope = self._timers.fire(name, due_s, now_s)
        self._unread_timers[name] = envelope.id
        self.append(envelope)

    def replace(self, name: str, replica: Replica[Any]) -> None:
        """Go on with another replica of a service, e.g. one restored from a snapshot."""
        replica.on_impossible = self._refuse
        self.replicas[name] = replica
        self._timers.changed(name)

    def _took(self, name: str, envelope: Envelope) -> None:
        self._timers.changed(name)
        if self._unread_timers.get(name) == envelope.id:
            del self._unread_timers[name]


class InOrder(Dispatcher):
    """Every service is up to date before time goes on. Services take turns in the order of the roster."""

    def __init__(self, services: Sequence[Service[Any]], log: Log) -> None:
        super().__init__(services, log)
        self._queue: deque[tuple[int, Envelope]] = deque()
        self._readers: dict[type[Event], list[str]] = {}

    @property
    def behind(self) -> bool:
        return bool(self._queue)

    def is_behind(self, name: str) -> bool:
        return bool(self._queue)

    def append(self, envelope: Envelope) -> None:
        offset, record = self._log.end, self._log.append(envelope)
        if record is not None:
            self._queue.append((offset, record))

    def settle(self) -> None:
        while self._queue:
            offset, envelope = self._queue.popleft()
            for name in self._readers_of(envelope.event):
                replica = self.replicas[name]
                replica.next_offset = offset + 1
                for output in replica.handle(envelope):
                    self.append(output)
                self._took(name, envelope)

    def _readers_of(self, event: Event) -> list[str]:
        if type(event) is TimerFired:
            return [event.service]
        cls = type(event)
        names = self._readers.get(cls)
        if names is None:
            names = self._readers[cls] = readers_of(self.replicas, cls)
        return names


class Interleaved(Dispatcher):
    """Services lag behind and take turns at random, as processes do. Each still reads the log in order."""

    def __init__(self, services: Sequence[Service[Any]], log: Log, seed: int) -> None:
        super().__init__(services, log)
        self._luck = random.Random(f"interleaving/{seed}")
        self._inboxes: dict[str, deque[Record]] = {name: deque() for name in self.replicas}

    @property
    def behind(self) -> bool:
        return any(self._inboxes.values())

    def is_behind(self, name: str) -> bool:
        return bool(self._inboxes.get(name))

    def append(self, envelope: Envelope) -> None:
        offset, dated = self._log.end, self._log.append(envelope)
        if dated is None:
            return
        record = Record(topic=Topic.CONTROL, partition=0, offset=offset, appended_at_s=dated.time_s, envelope=dated)
        for name in readers_of(self.replicas, type(envelope.event)):
            self._inboxes[name].append(record)

    def settle(self) -> None:
        """Now and then time goes on although a service has not read everything."""
        while behind := [name for name, inbox in self._inboxes.items() if inbox]:
            if self._luck.random() < 0.1:
                return
            self._take_turn(self._luck.choice(behind))

    def _take_turn(self, name: str) -> None:
        record = self._inboxes[name].popleft()
        for output in self.replicas[name].step(record):
            self.append(output)
        self._took(name, record.envelope)


def readers_of(replicas: dict[str, Replica[Any]], cls: type[Event]) -> list[str]:
    """Names of the services that read events of this class, in the order of the roster."""
    if cls is TimerFired:
        return list(replicas)
    return [name for name, replica in replicas.items() if cls in replica.service.machine.inputs]
