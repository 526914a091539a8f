"""Jobs that are expected to arrive: such as have arrived lately, and as often.

Under a policy of shares a job that arrives later takes from those that wait. A forward run without later arrivals is
exact for the jobs that are there, unless turns are lengthened, and too early.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from libs.contracts.envelope import Envelope
from libs.contracts.gateway import JobArrived

REMEMBERED = 100
"""The latest arrivals, which say how often jobs arrive, and which."""
SHORTEST_S = 3600.0
"""A shorter time says nothing of how often: what arrived in it is taken for what arrives in this one."""
LATER = "later-"
"""Ids of jobs that are expected to arrive begin with it; no real ones do."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has arrived."""

    time_s: float
    event: JobArrived


class Arrivals:
    """The latest arrivals, record by record.

    Args:
        known: those before the first record, in order.
    """

    def __init__(self, known: Iterable[Arrival] = ()) -> None:
        self._by_job: OrderedDict[str, Arrival] = OrderedDict()
        for arrival in known:
            self._note(arrival)

    def take(self, envelope: Envelope) -> None:
        """The next record of control. Of a job that is known already it changes nothing."""
        event = envelope.event
        if isinstance(event, JobArrived) and event.job_id not in self._by_job:
            self._note(Arrival(time_s=envelope.time_s, event=event))

    def _note(self, arrival: Arrival) -> None:
        self._by_job[arrival.event.job_id] = arrival
        if len(self._by_job) > REMEMBERED:
            self._by_job.popitem(last=False)

    @property
    def latest(self) -> list[Arrival]:
        """In order."""
        return list(self._by_job.values())


def coming(latest: Sequence[Arrival], now_s: float) -> list[Arrival]:
    """What is expected to arrive, in order: for as long as the latest arrivals are old, as many, at even distances.

    The first is such as the last one was, and so on back in time. None waits for other jobs: those have ended by then.

    Args:
        latest: arrivals, in order.
        now_s: seconds since the epoch.
    """
    if not latest:
        return []
    distance_s = max(SHORTEST_S, now_s - latest[0].time_s) / len(latest)
    return [
        Arrival(
            time_s=now_s + (number + 0.5) * distance_s,
            event=replace(arrival.event, job_id=f"{LATER}{number}", after=[], group=None),
        )
        for number, arrival in enumerate(reversed(latest))
    ]


class Coming:
    """Arrivals of a forward run, one after the other.

    Args:
        latest: arrivals so far, in order.
        now_s: the begin of the run, in seconds since the epoch.
    """

    def __init__(self, latest: Sequence[Arrival], now_s: float) -> None:
        self._expected = coming(latest, now_s)
        self.played = 0
        """That have arrived."""

    def next_before(self, time_s: float) -> Arrival | None:
        """The next one, which has arrived then; None: none does before that time, or none does any more.

        Where nothing else is to come (an infinite time) none arrives either: it would not start what nothing starts.
        """
        if self.played == len(self._expected) or not self._expected[self.played].time_s < time_s < float("inf"):
            return None
        self.played += 1
        return self._expected[self.played - 1]
