"""What a service has decided in the replay and the log has not shown yet, in order."""

from __future__ import annotations

from collections import deque

import msgspec

from libs.bus.port import Message
from libs.contracts import wire
from libs.contracts.envelope import Envelope
from libs.inspect.differences import (
    Cause,
    Difference,
    FieldDifference,
    Kind,
    data_differences,
    envelope_differences,
    name_of,
    wrong,
)
from libs.inspect.logs import place


class Expected(msgspec.Struct, frozen=True):
    """One decision of the replay."""

    envelope: Envelope
    cause: Cause


class Expectations:
    """The decisions of one service on control, or the orders of one node: each a sequence of its own.

    A service appends its decisions in the order of its inputs, so what stands on the log must be the derived
    sequence, one by one; anything else is a difference at a definite place.
    """

    def __init__(self, service: str, awaiting: dict[str, Expectations]) -> None:
        """`awaiting`: {event id: where it is expected} of all decisions that the log has not shown, shared."""
        self.service = service
        self._awaiting = awaiting
        self.last_cause = -1
        """Offset of the latest cause of which a decision was found."""
        self.matched = 0
        self._queue: deque[Expected] = deque()
        self._skipped: dict[str, tuple[Expected, int]] = {}
        """{event id: what was taken for missing, index of that difference}; it may still turn up."""

    def expect(self, envelope: Envelope, cause: Cause) -> None:
        """The replay has decided this."""
        self._queue.append(Expected(envelope, cause))
        self._awaiting[envelope.id] = self

    def known_as(self, event_id: str) -> Envelope | None:
        """The decision with this id that is still awaited."""
        return next((e.envelope for e in self._queue if e.envelope.id == event_id), None)

    def overtake(self, event_id: str, message: Message, differences: list[Difference]) -> list[Envelope]:
        """Something that follows from the awaited decision `event_id` stands here already: it is missing.

        Returns:
            That decision and those before it, so that the audit can go on as if they stood here.
        """
        missing = [self._skip(message, differences)]
        while missing[-1].id != event_id:
            missing.append(self._skip(message, differences))
        return missing

    def meet(self, found: Envelope, message: Message, differences: list[Difference]) -> list[Envelope]:
        """The log shows this decision next; what is wrong about it goes to `differences`.

        Returns:
            Decisions that should have stood before it, and are missing.
        """
        missing, expected = self._take(found, message, differences)
        if expected is None:
            self._stranger(found, message, differences)
        elif not _is(found, message, expected.envelope):
            fields = envelope_differences(expected.envelope, found)
            sentence = f"{name_of(found)} is not what {self.service} decides here"
            differences.append(self._wrong(Kind.CHANGED, message, sentence, found, expected, fields))
        return missing

    def meet_altered(self, found: Envelope, message: Message, differences: list[Difference]) -> list[Envelope]:
        """As `meet`, for a record that was reported as altered already."""
        missing, expected = self._take(found, message, differences)
        if expected is None:
            self._skipped.pop(found.id, None)
        return missing

    def _take(
        self, found: Envelope, message: Message, differences: list[Difference]
    ) -> tuple[list[Envelope], Expected | None]:
        """The awaited decision that this is, and those before it, which are missing here."""
        index = self._index_of(found)
        if index is None:
            return [], None
        missing = [self._skip(message, differences) for _ in range(index)]
        expected = self._queue.popleft()
        self._awaiting.pop(expected.envelope.id, None)
        self.last_cause = expected.cause.offset
        self.matched += 1
        return missing, expected

    def _wrong(
        self,
        kind: Kind,
        message: Message,
        sentence: str,
        found: Envelope,
        expected: Expected,
        fields: list[FieldDifference],
    ) -> Difference:
        return wrong(
            kind,
            message,
            sentence,
            envelope=found,
            service=self.service,
            fields=fields,
            cause=expected.cause,
        )

    def _index_of(self, found: Envelope) -> int | None:
        """Which of the awaited decisions this is: the one with its id, or the next one under another id."""
        for index, expected in enumerate(self._queue):
            if expected.envelope.id == found.id:
                return index
        if self._queue:
            head = self._queue[0].envelope
            alike = head.event == found.event or head.causation_id == found.causation_id
            if alike and head.event.wire_type == found.event.wire_type and found.id not in self._skipped:
                return 0
        return None

    def _skip(self, message: Message, differences: list[Difference]) -> Envelope:
        """The next awaited decision should have stood before this record."""
        expected = self._queue.popleft()
        self._awaiting.pop(expected.envelope.id, None)
        self._skipped[expected.envelope.id] = (expected, len(differences))
        differences.append(self._missing(expected, place(message), message.offset, "before this record"))
        return expected.envelope

    def _stranger(self, found: Envelope, message: Message, differences: list[Difference]) -> None:
        late = self._skipped.pop(found.id, None)
        if late is None:
            differences.append(
                wrong(
                    Kind.UNEXPECTED,
                    message,
                    f"{name_of(found)}: nothing on the log leads {self.service} to this decision here",
                    envelope=found,
                    service=self.service,
                )
            )
            return
        expected, index = late
        self.matched += 1
        sentence = f"{name_of(found)} belongs before {differences[index].place}"
        fields = data_differences(expected.envelope.event, found.event)
        differences[index] = self._wrong(Kind.MISPLACED, message, sentence, found, expected, fields)

    def close(self, position: int | None, end: int, where: str, differences: list[Difference]) -> int:
        """The log is over. Returns how many decisions are pending rather than missing.

        A decision is pending when its service had not handled the cause yet: the cause is at or after
        `position`, and none of the service's decisions on this or a later cause is on the log.

        Args:
            position: offset of the first record that the service has not handled; None: unknown.
            end: offset after the last record.
            where: partition that the decisions should stand on.
            differences: what is missing goes here.
        """
        pending = 0
        for expected in self._queue:
            cause = expected.cause.offset
            if cause > self.last_cause and (position is None or cause >= position):
                pending += 1
            else:
                differences.append(self._missing(expected, f"{where}@{end}", end, "up to the end of the log"))
        return pending

    def _missing(self, expected: Expected, where: str, offset: int, until: str) -> Difference:
        envelope = expected.envelope
        return Difference(
            kind=Kind.MISSING,
            place=where,
            offset=offset,
            event=type(envelope.event).__name__,
            subject=envelope.event.subject,
            service=self.service,
            message=f"{name_of(envelope)}, which {self.service} decided, is missing {until}",
            cause=expected.cause,
        )


def _is(found: Envelope, message: Message, expected: Envelope) -> bool:
    """Whether the record is what was derived: byte for byte, or as good where numerics have found it."""
    found = found.as_sent()
    if found == expected and message.value == wire.encode_data(expected.event):
        return True
    return msgspec.structs.replace(found, event=expected.event) == expected and expected.event.agrees_with(found.event)
