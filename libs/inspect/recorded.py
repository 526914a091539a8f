"""What can be checked of decisions that are not decided again: that each belongs to its cause, and none is missing.

The id of a decision follows from its cause and from its place among the decisions on that cause, and its number
(`Envelope.sequence`) counts the service's decisions on control. Both are recorded: they hold whatever the rules were.
"""

from __future__ import annotations

import msgspec

from libs.bus.port import Message
from libs.contracts.envelope import Envelope
from libs.inspect.differences import Difference, Kind, name_of, wrong
from libs.kernel.ids import derived_id

MOST_OUTPUTS = 10_000
"""More decisions than any input leads to."""


class _Cause(msgspec.Struct):
    offset: int
    ordinals: dict[int, None] = {}


class Recorded:
    """The decisions of one service in epochs of other rules."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._causes: dict[str, _Cause] = {}
        """{event id: it} of the inputs that were handled in such epochs."""
        self._number: int | None = None
        """That of the service's latest decision on control."""
        self.decisions = 0
        """How many belong to their cause."""

    def input(self, envelope: Envelope, offset: int) -> None:
        """An input with recorded decisions."""
        self._causes[envelope.id] = _Cause(offset)

    def knows(self, cause_id: str) -> bool:
        """Whether an event is such an input."""
        return cause_id in self._causes

    def numbered(self, envelope: Envelope) -> None:
        """A decision that is decided again: its number is compared there."""
        self._number = envelope.sequence

    def check(self, envelope: Envelope, message: Message) -> list[Difference]:
        """What is wrong with a decision on control, or an order, on a cause that is known."""
        found = [*self._ordinal(envelope, message), *self._sequence(envelope, message)]
        if not found:
            self.decisions += 1
        return found

    def _ordinal(self, envelope: Envelope, message: Message) -> list[Difference]:
        ordinals = self._causes[envelope.causation_id].ordinals
        for ordinal in range(MOST_OUTPUTS):
            if ordinal not in ordinals and derived_id(self._service, envelope.causation_id, ordinal) == envelope.id:
                ordinals[ordinal] = None
                return []
        sentence = f"{name_of(envelope)}: its id does not follow from its cause {envelope.causation_id}"
        return [wrong(Kind.FORGED, message, sentence, envelope=envelope, service=self._service)]

    def _sequence(self, envelope: Envelope, message: Message) -> list[Difference]:
        if envelope.sequence is None:
            return []
        before, self._number = self._number, envelope.sequence
        if before is None or envelope.sequence == before + 1:
            return []
        if envelope.sequence <= before:
            sentence = (
                f"{name_of(envelope)} is decision {envelope.sequence} of {self._service}, after decision {before}"
            )
            return [wrong(Kind.MISPLACED, message, sentence, envelope=envelope, service=self._service)]
        gone = f"{before + 1}" if envelope.sequence == before + 2 else f"{before + 1} to {envelope.sequence - 1}"
        sentence = (
            f"{name_of(envelope)} is decision {envelope.sequence} of {self._service}: {gone} before it is missing"
        )
        return [wrong(Kind.MISSING, message, sentence, envelope=envelope, service=self._service)]

    def gaps(self) -> list[Difference]:
        """Decisions that must have stood between others of the same cause. Ask when orders have been read, too."""
        return [
            self._gap(event_id, cause.offset, ordinal)
            for event_id, cause in self._causes.items()
            for ordinal in range(max(cause.ordinals, default=-1))
            if ordinal not in cause.ordinals
        ]

    def _gap(self, event_id: str, offset: int, ordinal: int) -> Difference:
        missing = derived_id(self._service, event_id, ordinal)
        return Difference(
            kind=Kind.MISSING,
            place=f"control/0@{offset}",
            offset=offset,
            event="",
            subject="",
            service=self._service,
            message=f"decision {ordinal + 1} of {self._service} on event {event_id} is missing: its id was {missing}",
        )
