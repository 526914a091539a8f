"""The code at hand, or another policy, tried on the recorded past before it is let near a running cell.

At every input the state is the recorded one. The code at hand decides on a copy, its answer is compared with the one
that stands on the log, and the recorded one is folded. So one decision that differs is one difference: what would have
followed from it is not on the log, and is not made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from libs.bus import codec
from libs.contracts import migration, placement
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import PolicyChanged
from libs.contracts.reasons import Reason
from libs.inspect.differences import FieldDifference, data_differences
from libs.inspect.logs import Log
from libs.inspect.refolding import Handled, Joined
from libs.inspect.sentences import sentence
from libs.kernel.ids import derived_id
from libs.kernel.replica import Replica, pass_over
from libs.kernel.service import Service

MOST_DETAILS = 100
_ASKS: dict[type[Event], str] = {
    placement.JobPlaced: "starts",
    placement.JobPreempted: "stops",
    placement.DestinationReserved: "moves",
    migration.MigrationStarted: "moves",
}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, as people read it."""

    event: str
    """Class name."""
    subject: str
    text: str
    reason: str
    """Empty where the event has none."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that the code at hand takes otherwise."""

    offset: int
    """Of the input, on control."""
    time_s: float
    input: str
    """What it was, as a sentence."""
    service: str
    recorded: Answer | None
    """What stands on the log; None: nothing."""
    rehearsed: Answer | None
    """What the code at hand decides; None: nothing."""
    fields: list[FieldDifference] = []
    """Where both decide the same kind of thing."""


class Agreement(msgspec.Struct, kw_only=True):
    """Of one type of event."""

    recorded: int = 0
    rehearsed: int = 0
    same: int = 0


class Moment(msgspec.Struct, kw_only=True):
    """What was decided on inputs within a stretch of time."""

    time_s: float
    recorded: int = 0
    differing: int = 0


class Rehearsal(msgspec.Struct, kw_only=True):
    """What a rehearsal has found."""

    inputs: int = 0
    """Inputs on which the code at hand has decided."""
    decisions: int = 0
    """Decisions that stand on the log for them, orders included."""
    differences: int = 0
    agreement: dict[str, Agreement] = {}
    """{event: how often both decided it}."""
    asked: dict[str, dict[str, int]] = {}
    """{what would have been asked of jobs and was not: {job id: at which input first}}."""
    details: list[Disagreement] = []
    """In order, at most `MOST_DETAILS`."""
    moments: list[Moment] = []
    orders_compared: bool = True
    unhandled: list[str] = []
    """Inputs that the code at hand cannot handle: the service's rehearsal ends there."""

    @property
    def ok(self) -> bool:
        """Whether the code at hand decides what was decided."""
        return self.differences == 0 and not self.unhandled


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which inputs are rehearsed: the bounds are inclusive below, exclusive above."""

    from_offset: int = 0
    to_offset: int | None = None
    from_s: float | None = None
    to_s: float | None = None

    def has(self, handled: Handled) -> bool:
        """Whether the input is one of them."""
        time_s = handled.input.time_s
        return (
            handled.offset >= self.from_offset
            and (self.to_offset is None or handled.offset < self.to_offset)
            and (self.from_s is None or time_s >= self.from_s)
            and (self.to_s is None or time_s < self.to_s)
        )


WHOLE = Span()


def rehearse(
    log: Log,
    services: Sequence[Service[Any]],
    *,
    changes: Sequence[Event] = (),
    span: Span = WHOLE,
    watch: Callable[[int], None] | None = None,
) -> Rehearsal:
    """Decide again at every recorded state.

    Args:
        log: from its beginning.
        services: their decisions are rehearsed.
        changes: PolicyChanged and SettingChanged that are in force throughout, whatever the log says.
        span: which inputs are rehearsed; the others are folded.
        watch: called with the number of records so far, for progress bars.

    Raises:
        wire.Undecodable: a record cannot be read.
    """
    orders = _orders(log)
    stages = {service.name: _Stage(service, changes, span, orders) for service in services}
    found = Rehearsal(orders_compared=orders is not None)
    for count, record in enumerate(log.control(), start=1):
        for stage in stages.values():
            stage.take(record.envelope, record.offset, found)
        if watch is not None and count % 1000 == 0:
            watch(count)
    for name, stage in stages.items():
        stage.close(log.header.position(name), found)
    found.details.sort(key=lambda each: each.offset)
    found.details = found.details[:MOST_DETAILS]
    return found


class _Stage:
    """One service: its core as recorded, and the copy that decides."""

    def __init__(
        self,
        service: Service[Any],
        changes: Sequence[Event],
        span: Span,
        orders: Mapping[str, list[Envelope]] | None,
    ) -> None:
        self._service, self._span, self._orders = service, span, orders
        self._changes = changes
        self._folded: Replica[Any] = Replica(service, pass_over)
        self._copy: Any = None
        """The recorded state with the changes; None: to be made anew."""
        self._joined = Joined()
        self._failed = False

    def take(self, envelope: Envelope, offset: int, found: Rehearsal) -> None:
        """The next control record."""
        if self._folded.is_own(envelope) and self._joined.expects(envelope.causation_id):
            for handled in self._joined.output(envelope):
                self._rehearse(handled, found)
        if self._service.machine.reads(envelope.event):
            self._joined.input(envelope, offset)

    def close(self, position: int | None, found: Rehearsal) -> None:
        """The log is over. What the service had not handled at `position` (None: unknown) is not rehearsed."""
        for handled in self._joined.complete(position or 0):
            self._rehearse(handled, found)

    def _rehearse(self, handled: Handled, found: Rehearsal) -> None:
        if self._failed or self._folded.has_taken(handled.input):
            return
        if not self._span.has(handled):
            self._copy = None
            self._folded.refold(handled.input, handled.outputs)
            return
        recorded = self._recorded(handled)
        try:
            rehearsed = self._decide(handled.input)
        except Exception as error:  # whatever the code at hand raises is a finding
            self._failed = True
            what = f"{self._service.name} cannot handle {type(handled.input.event).__name__}"
            found.unhandled.append(f"control/0@{handled.offset}: {what} of {handled.input.event.subject}: {error!r}")
            return
        self._folded.refold(handled.input, handled.outputs)
        if self._orders is None:
            rehearsed = [event for event in rehearsed if event.topic is Topic.CONTROL]
        same = len(recorded) == len(rehearsed) and all(map(_agree, rehearsed, recorded))
        if not same:
            self._copy = None
        _compare(self._service.name, handled, recorded, rehearsed, found)

    def _recorded(self, handled: Handled) -> list[Event]:
        """All that was decided on the input, in order."""
        if self._orders is None:
            return [output.event for output in handled.outputs]
        cause = handled.input.id
        outputs = [*handled.outputs, *self._orders.get(cause, ())]
        outputs = [output for output in outputs if output.source == self._service.name]
        places = {derived_id(self._service.name, cause, ordinal): ordinal for ordinal in range(len(outputs))}
        return [output.event for output in sorted(outputs, key=lambda output: places.get(output.id, len(outputs)))]

    def _decide(self, envelope: Envelope) -> list[Event]:
        """What the code at hand decides on the recorded state."""
        machine, state_type = self._service.machine, self._service.state_type
        now_s = self._folded.present_at(envelope)
        if self._copy is None:
            self._copy = msgspec.json.decode(self._folded.state_bytes, type=state_type)
        for change in self._changes:
            if not (isinstance(change, PolicyChanged) and getattr(self._copy, "policy", "") == change.policy):
                machine.evolve(self._copy, change, now_s)
        outputs = machine.handle(self._copy, envelope, now_s)
        if not self._changes:
            return outputs
        # What the service hears, a solution for instance, takes effect at once: it is not on the recorded log.
        for event in outputs:
            if event.owner == self._service.name and machine.reads(event):
                heard = Envelope(id=envelope.id, source=self._service.name, time_s=now_s, event=event)
                outputs = [*outputs, *machine.handle(self._copy, heard, now_s)]
        return outputs


def _orders(log: Log) -> dict[str, list[Envelope]] | None:
    """{event id: the orders that it has led to}; None when the log was read without them."""
    if Topic.ORDERS not in log.header.topics:
        return None
    found: dict[str, list[Envelope]] = {}
    for message in log.messages:
        if message.partition.topic is Topic.ORDERS:
            envelope = codec.record(message).envelope
            found.setdefault(envelope.causation_id, []).append(envelope)
    return found


def _agree(rehearsed: Event, recorded: Event) -> bool:
    """Whether two decisions are the same, or as good where numerics have found them."""
    return rehearsed == recorded or rehearsed.agrees_with(recorded)


def _compare(service: str, handled: Handled, recorded: list[Event], rehearsed: list[Event], found: Rehearsal) -> None:
    """Note how two answers to one input differ."""
    found.inputs += 1
    found.decisions += len(recorded)
    differing = 0
    for event in recorded:
        found.agreement.setdefault(type(event).__name__, Agreement()).recorded += 1
    for event in rehearsed:
        found.agreement.setdefault(type(event).__name__, Agreement()).rehearsed += 1
    for before, after in _pairs(recorded, rehearsed):
        if before is not None and after is not None and _agree(after, before):
            found.agreement[type(after).__name__].same += 1
            continue
        differing += 1
        if after is not None:
            for what, job_id in _asked(before, after):
                found.asked.setdefault(what, {}).setdefault(job_id, handled.offset)
        if len(found.details) < MOST_DETAILS:
            found.details.append(_disagreement(service, handled, before, after))
    found.differences += differing
    if recorded or differing:
        found.moments.append(Moment(time_s=handled.input.time_s, recorded=len(recorded), differing=differing))


def _pairs(recorded: list[Event], rehearsed: list[Event]) -> Iterator[tuple[Event | None, Event | None]]:
    """Decisions about the same thing beside each other; None where there is none on the other side."""
    left: dict[tuple[str, ...], list[Event]] = {}
    for event in rehearsed:
        left.setdefault(_about(event), []).append(event)
    for event in recorded:
        same = left.get(_about(event))
        yield event, same.pop(0) if same else None
    for events in left.values():
        for event in events:
            yield None, event


def _about(event: Event) -> tuple[str, ...]:
    return (event.wire_type, event.subject, str(getattr(event, "job_id", "")))


def _asked(recorded: Event | None, rehearsed: Event) -> Iterator[tuple[str, str]]:
    """(what, job id) that the code at hand would have asked, and that was not asked."""
    if isinstance(rehearsed, placement.TimeSliceStarted):
        before = recorded if isinstance(recorded, placement.TimeSliceStarted) else None
        stood = before.suspended if before else []
        went_on = [resumed.job_id for resumed in before.resumed] if before else []
        yield from (("suspensions", job_id) for job_id in rehearsed.suspended if job_id not in stood)
        yield from (("resumptions", resumed.job_id) for resumed in rehearsed.resumed if resumed.job_id not in went_on)
        return
    what = _ASKS.get(type(rehearsed))
    if what is not None and (recorded is None or _place(recorded) != _place(rehearsed)):
        yield what, str(getattr(rehearsed, "job_id", rehearsed.subject))


def _place(event: Event) -> object:
    """Which GPUs, or servers, a decision is about."""
    return getattr(event, "gang", None) or getattr(event, "to_nodes", None)


def _disagreement(service: str, handled: Handled, recorded: Event | None, rehearsed: Event | None) -> Disagreement:
    fields = data_differences(recorded, rehearsed) if recorded is not None and rehearsed is not None else []
    return Disagreement(
        offset=handled.offset,
        time_s=handled.input.time_s,
        input=sentence(handled.input.event),
        service=service,
        recorded=_answer(recorded),
        rehearsed=_answer(rehearsed),
        fields=fields,
    )


def _answer(event: Event | None) -> Answer | None:
    if event is None:
        return None
    reason = getattr(event, "reason", None)
    why = f"{reason.code}: {reason.message}" if isinstance(reason, Reason) else ""
    return Answer(event=type(event).__name__, subject=event.subject, text=sentence(event), reason=why)
