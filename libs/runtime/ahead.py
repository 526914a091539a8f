"""Looks for a service's own decisions on control, ahead of the inputs that they belong to.

    inputs ────────────> behind                                          folds them, each with its decisions
    decisions ─────────────────────────────────> ahead                   has found the next decision

A decision may stand far behind its cause, so the log is walked over twice. Mostly it stands close by: what has been
read ahead is kept for the inputs, up to a limit, and read again only beyond it. Memory is bounded, whatever the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from libs.bus.codec import message_id
from libs.bus.port import Message
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import ServiceStarted, TimerFired
from libs.kernel.service import Service
from libs.runtime.messages import header, known, wire_type

KEPT_BATCHES = 16
"""Most batches that are kept: a batch of a thousand messages takes about 2.5 MB."""

Batches = AsyncGenerator[list[Message], None]


class Ahead:
    """The decisions of one service between two offsets, in order, and the messages between which they stand."""

    def __init__(
        self, service: Service[Any], read: Callable[[int, int], Batches], start: int, end: int, decided: int
    ) -> None:
        """Take the log from `start` on.

        Args:
            service: its decisions are looked for.
            read: gives control from one offset up to another.
            start: where the inputs begin that are not folded.
            end: where control ends.
            decided: decisions on control that are folded already; 0 at the beginning of the log.
        """
        self._name = service.name.encode()
        self._source = b"/sanjaya/" + self._name
        self._emitted = frozenset(cls.wire_type.encode() for cls in service.emits)
        self._requested = frozenset(cls.wire_type.encode() for cls in service.requests)
        self._read, self._start, self._end, self._decided = read, start, end, decided
        self._batches = read(start, end)
        self._place = start
        self._found: deque[Envelope] = deque()
        self._kept: deque[tuple[int, int, list[Message]]] = deque()
        """Batches that the inputs have not reached: where they begin, where they end, and what they are."""
        self.cause: str | None = None
        """Id of the input that has led to the next decision; None when there is no other decision."""
        self.next: Envelope | None = None
        """The next decision."""
        self.last_timer = (-1, "")
        """Offset and id of the service's latest timer so far."""
        self.last_rules: str | None = None
        """Those by which the service has decided last, if that was said so far."""

    async def begin(self) -> None:
        """Find the first decision."""
        await self._advance()

    async def decisions(self) -> list[Envelope]:
        """What was decided on `cause`; looks for the next decision on another one."""
        cause = self.cause
        decisions: list[Envelope] = []
        while self.next is not None and self.cause == cause:
            decisions.append(self.next)
            await self._advance()
        return decisions

    async def behind(self) -> Batches:
        """All messages in order, for the inputs; ends before a place that has not been looked at."""
        place = self._start
        while place < self._place:
            begins = self._kept[0][0] if self._kept else self._place
            if place < begins:  # too much was read at a time to be kept
                async with aclosing(self._read(place, begins)) as again:
                    async for batch in again:
                        yield batch
                place = begins
            else:
                _, place, batch = self._kept.popleft()
                yield batch

    async def aclose(self) -> None:
        """Stop reading."""
        await self._batches.aclose()

    async def _advance(self) -> None:
        while not self._found:
            batch = await anext(self._batches, None)
            if batch is None:
                self._place = self._end
                break
            self._look_at(batch)
        self.next = self._found.popleft() if self._found else None
        self.cause = self.next.causation_id if self.next is not None else None

    def _look_at(self, batch: list[Message]) -> None:
        begins, self._place = self._place, batch[-1].offset + 1
        if len(self._kept) < KEPT_BATCHES:
            self._kept.append((begins, self._place, batch))
        for message in batch:
            kind = wire_type(message)
            if kind in self._emitted or (kind in self._requested and header(message, "ce_source") == self._source):
                self._find(known(message))
            elif kind == _TIMER:
                if header(message, "ce_subject") == self._name:
                    self.last_timer = (message.offset, message_id(message))
            elif kind == _STARTED and header(message, "ce_subject") == self._name:
                self._note_rules(known(message))

    def _find(self, decision: Envelope) -> None:
        # Before a snapshot's position no decision is missing in it, wherever on the log it stands.
        if self._start == 0 or (decision.sequence is not None and decision.sequence > self._decided):
            self._found.append(decision)

    def _note_rules(self, envelope: Envelope) -> None:
        assert isinstance(envelope.event, ServiceStarted)
        self.last_rules = envelope.event.rules


_TIMER = TimerFired.wire_type.encode()
_STARTED = ServiceStarted.wire_type.encode()
