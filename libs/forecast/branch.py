"""A branch of the state: copies of the cores that go on by themselves, and append to no log."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobPlaced, TimeSliceStarted
from libs.forecast.arrivals import Arrival
from libs.inspect.refolding import Handled
from libs.kernel.ids import request_id
from libs.kernel.present import Present
from libs.kernel.replica import Replica, pass_over
from libs.sim.dispatch import InOrder
from libs.sim.log import Log

CORES = ("admission", "quota", "placement")
"""Those that decide whether a job starts, in the order in which it meets them."""
SOURCE = "forecast"


@contextmanager
def without_collection() -> Iterator[None]:
    """No collection of cycles meanwhile: a branch is made of some hundred thousand objects, which would be walked over
    and over; that takes several times as long as to make them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Branch:
    """Cores that have been copied, at one moment.

    Args:
        replicas: {service: its core}; those of `cores` are copied.
        now_s: the present, in seconds since the epoch.
        unhandled: {service: records that it may not have handled yet}, in order: the branch begins with them.
        cores: names of the services that take part.
        states: {service: its packed state}, where that is at hand.
        arrived: the latest arrivals, in order.
    """

    def __init__(
        self,
        replicas: Mapping[str, Replica[Any]],
        now_s: float,
        unhandled: Mapping[str, Sequence[Handled]] | None = None,
        cores: Iterable[str] = CORES,
        states: Mapping[str, bytes] | None = None,
        arrived: Sequence[Arrival] = (),
    ) -> None:
        self.now_s = now_s
        self.arrived = arrived
        """The latest arrivals before the branch, in order: as far as they are known."""
        self.started: dict[str, float] = {}
        """{job: when it was given GPUs on this branch}."""
        self.on_order: Callable[[Event], None] = _forget
        """Is told of orders to nodes."""
        self._inputs = 0
        self._log = Log(self, self._appended, lambda order: self.on_order(order), keep=False)
        own = {name: replicas[name] for name in cores}
        self._dispatcher = InOrder([replica.service for replica in own.values()], self._log)
        for name, replica in own.items():
            copied = replica.branched(states[name] if states is not None else replica.packed())
            self._dispatcher.replace(name, copied)
            self._dispatcher.replicas[name].on_impossible = pass_over
        for name in own:
            self._catch_up(name, (unhandled or {}).get(name, ()))

    def _catch_up(self, name: str, unhandled: Sequence[Handled]) -> None:
        """What the service has decided on a record already stands; on others it decides here."""
        replica = self._dispatcher.replicas[name]
        for handled in unhandled:
            if handled.outputs:
                replica.refold(handled.input, handled.outputs)
                continue
            for output in replica.handle(handled.input):
                self._dispatcher.append(output)
        self._dispatcher.settle()

    def feed(self, source: str, event: Event) -> None:
        """Something happens now; the cores decide what follows."""
        self._inputs += 1
        envelope = Envelope(id=request_id(SOURCE, str(self._inputs)), source=source, time_s=self.now_s, event=event)
        self._dispatcher.append(envelope)
        self._dispatcher.settle()

    def close(self) -> None:
        """The copies are free at once, not when cycles are collected next."""
        for replica in self._dispatcher.replicas.values():
            replica.discard()
        self._dispatcher.replicas.clear()
        self.on_order = _forget

    @property
    def replicas(self) -> Mapping[str, Replica[Any]]:
        """{service: its copied core}."""
        return self._dispatcher.replicas

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has happened on it yet."""
        return not self._inputs

    @property
    def next_timer(self) -> tuple[float, str] | None:
        """When a core next wants to be woken, and which."""
        return self._dispatcher.next_timer()

    def fire(self, due_s: float, name: str) -> None:
        """Time goes on until the core is woken."""
        self._inputs += 1
        self.advance_to(due_s)
        self._dispatcher.fire(name, due_s, self.now_s)
        self._dispatcher.settle()

    def advance_to(self, time_s: float) -> None:
        """Time goes on, never back."""
        self.now_s = max(self.now_s, time_s)

    def present(self, job_id: str) -> Present:
        """What the cores know now, in one."""
        return merged(self._dispatcher.replicas, job_id, self.now_s)

    def _appended(self, envelope: Envelope) -> None:
        for job_id in started_by(envelope.event):
            self.started.setdefault(job_id, self.now_s)


def started_by(event: Event) -> list[str]:
    """Jobs that are given GPUs with it."""
    if isinstance(event, JobPlaced):
        return [event.job_id]
    return [job.job_id for job in event.resumed] if isinstance(event, TimeSliceStarted) else []


class Spare:
    """Makes branches of one moment; one that was not touched is handed out again, because to make one costs as much as
    many decisions.

    Args:
        branched: makes a branch.
    """

    def __init__(self, branched: Callable[[], Branch]) -> None:
        self._branched = branched
        self._kept: Branch | None = None

    def __call__(self) -> Branch:
        kept, self._kept = self._kept, None
        return kept or self._branched()

    def take_back(self, branch: Branch) -> None:
        """It is not needed any more."""
        if self._kept is None and branch.is_untouched:
            self._kept = branch
        else:
            branch.close()


def branches(
    replicas: Mapping[str, Replica[Any]],
    now_s: float,
    unhandled: Mapping[str, Sequence[Handled]] | None = None,
    cores: Iterable[str] = CORES,
    arrived: Sequence[Arrival] = (),
) -> Callable[[], Branch]:
    """Makes as many branches of one moment as are asked for; arguments as for `Branch`."""
    names = tuple(cores)
    states = {name: replicas[name].packed() for name in names}
    return lambda: Branch(replicas, now_s, unhandled, names, states, arrived)


def merged(replicas: Mapping[str, Replica[Any]], job_id: str, now_s: float) -> Present:
    """What cores know, in one: each field is filled in by one of them."""
    found = Present()
    for replica in replicas.values():
        said = replica.service.present(replica.state, job_id, now_s)
        for name in Present.__struct_fields__:
            if value := getattr(said, name):
                setattr(found, name, value)
    return found


def _forget(order: Event) -> None:
    """Nothing carries orders out where only the next decision is asked for."""
