"""Recorded inputs of one service, each with the decisions that stand on the log for it: what its state is folded of.

A service appends its decisions in the order of their causes, and all of one cause together. So when a decision is read,
every earlier input has all of its own; only how many the last one has is not known yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from libs.contracts.envelope import Envelope


class Handled:
    """An input and what the service has decided on it."""

    __slots__ = ("input", "offset", "outputs")

    def __init__(self, envelope: Envelope, offset: int) -> None:
        self.input, self.offset = envelope, offset
        """`offset` is that of the input on control."""
        self.outputs: list[Envelope] = []
        """The decisions on control, in order."""


class Joined:
    """Joins inputs with decisions. Holds inputs until a later one is known to have been handled."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Handled] = OrderedDict()
        """{event id: it}, in order; the decisions of the first are being read."""

    def input(self, envelope: Envelope, offset: int) -> None:
        """The next input of the service."""
        self._waiting.setdefault(envelope.id, Handled(envelope, offset))

    def expects(self, cause_id: str) -> bool:
        """Whether a decision on this cause may come."""
        return cause_id in self._waiting

    def output(self, envelope: Envelope) -> Iterator[Handled]:
        """The next decision of the service, on a cause that it expects; yields the inputs that are complete now."""
        while (first := next(iter(self._waiting))) != envelope.causation_id:
            yield self._waiting.pop(first)
        self._waiting[first].outputs.append(envelope)

    def held(self) -> list[Handled]:
        """The inputs that are not known to have been handled, in order; the first may have decisions already."""
        return list(self._waiting.values())

    def complete(self, before: int) -> Iterator[Handled]:
        """Every input before this offset has all of its decisions, and so has one with decisions; yields them."""
        while self._waiting:
            first = next(iter(self._waiting.values()))
            if first.offset >= before and not first.outputs:
                return
            yield self._waiting.pop(first.input.id)
