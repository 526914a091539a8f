"""What differs between two logs, job by job, without regard to when it was and to ids that are made up anew.

Two runs of one workload have other times, other event ids, other process ids; jobs submitted anew have
other job ids, so a job without a partner of its id is compared with the one of its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Any

import msgspec

from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Record
from libs.contracts.gateway import JobArrived
from libs.contracts.introspection import JobProfiled
from libs.contracts.runtime import ServiceStarted, TimerFired
from libs.inspect.differences import flat
from libs.inspect.sentences import sentence

VOLATILE = ("pid", "rendezvous_port", "migration_id", "request_digest", "minibatches_total", "address", "stderr_tail")
"""Fields that differ from run to run without meaning anything, besides all times and durations (`…_s`)."""
MEASURED = (JobProfiled, TimerFired, ServiceStarted)
"""Events that depend on the moment alone."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An event of one of the logs."""

    offset: int
    event: str
    text: str


class LogDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the two histories of a subject part."""

    subject: str
    kind: str
    """`only in a`, `only in b`, or `instead`."""
    a: list[Told]
    b: list[Told]
    fields: list[str] = []
    """`gang[0].node_id: "n1" in a, "n2" in b`, where one event stands against one of the same type."""

    def lines(self) -> list[str]:
        """For people."""
        shown = [f"{self.subject}: {self.kind}"]
        shown += [f"  a #{told.offset} {told.text}" for told in self.a]
        shown += [f"  b #{told.offset} {told.text}" for told in self.b]
        return shown + [f"    {field}" for field in self.fields]


class Moment(msgspec.Struct, frozen=True):
    """An event of one log, made comparable."""

    offset: int
    event: Event
    essence: str
    """Type and data without what is volatile."""


Histories = dict[str, list[Moment]]


def diff(a: Iterable[Record], b: Iterable[Record]) -> list[LogDifference]:
    """Compare two logs; an empty list when they tell the same.

    The differences are in order of their subjects in `a`, then those that only `b` knows.
    """
    left, right = list(a), list(b)
    names = _partners(left, right)
    histories_a, histories_b = _histories(left, {}), _histories(right, names)
    differences: list[LogDifference] = []
    for subject in [*histories_a, *(s for s in histories_b if s not in histories_a)]:
        differences += _compare(subject, histories_a.get(subject, []), histories_b.get(subject, []))
    return differences


def _partners(a: list[Record], b: list[Record]) -> dict[str, str]:
    """{job id in b: job id in a}, by name, of jobs with an id that only one of the logs knows."""
    jobs_a, jobs_b = _names(a), _names(b)
    free: dict[str, list[str]] = {}
    for job_id, name in jobs_a.items():
        if job_id not in jobs_b:
            free.setdefault(name, []).append(job_id)
    partners = {}
    for job_id, name in jobs_b.items():
        if job_id not in jobs_a and free.get(name):
            partners[job_id] = free[name].pop(0)
    return partners


def _names(records: list[Record]) -> dict[str, str]:
    events = (record.envelope.event for record in records)
    return {event.job_id: event.spec.name for event in events if isinstance(event, JobArrived)}


def _histories(records: list[Record], rename: dict[str, str]) -> Histories:
    histories: Histories = {}
    for record in records:
        event = record.envelope.event
        if record.topic != Topic.CONTROL or isinstance(event, MEASURED):
            continue
        subject = rename.get(event.subject, event.subject)
        essence = msgspec.json.encode([event.wire_type, _essence(msgspec.to_builtins(event), rename)]).decode()
        histories.setdefault(subject, []).append(Moment(record.offset, event, essence))
    return histories


def _essence(value: Any, rename: dict[str, str]) -> Any:
    """The value without what is volatile, with `b`'s job ids called as in `a`."""
    if isinstance(value, dict):
        return {
            key: _essence(item, rename)
            for key, item in value.items()
            if not (key.endswith("_s") or key in VOLATILE or key == "message")
        }
    if isinstance(value, list):
        return [_essence(item, rename) for item in value]
    return rename.get(value, value) if isinstance(value, str) else value


def _compare(subject: str, a: list[Moment], b: list[Moment]) -> list[LogDifference]:
    matcher = SequenceMatcher(None, [m.essence for m in a], [m.essence for m in b], autojunk=False)
    found = []
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        kind = {"delete": "only in a", "insert": "only in b", "replace": "instead"}[tag]
        found.append(
            LogDifference(
                subject=subject,
                kind=kind,
                a=[_told(moment) for moment in a[a1:a2]],
                b=[_told(moment) for moment in b[b1:b2]],
                fields=_fields(a[a1:a2], b[b1:b2]),
            )
        )
    return found


def _told(moment: Moment) -> Told:
    return Told(offset=moment.offset, event=type(moment.event).__name__, text=sentence(moment.event))


def _fields(a: list[Moment], b: list[Moment]) -> list[str]:
    if len(a) != 1 or len(b) != 1 or type(a[0].event) is not type(b[0].event):
        return []
    left, right = (flat(msgspec.json.decode(moment.essence)[1]) for moment in (a[0], b[0]))
    fields = [*left, *(field for field in right if field not in left)]
    return [
        f"{field}: {left.get(field, 'nothing')} in a, {right.get(field, 'nothing')} in b"
        for field in fields
        if left.get(field) != right.get(field)
    ]
