"""Which rules decided what: the epochs of a log, as its ServiceStarted records and its header tell them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from libs.bus.port import Message
from libs.contracts import wire
from libs.contracts.base import Topic
from libs.contracts.runtime import ServiceStarted
from libs.inspect.logs import Log

_STARTED = ("ce_type", ServiceStarted.wire_type.encode())


@dataclass(frozen=True)
class Epoch:
    """A stretch of the log of which one service has decided by the same rules."""

    rules: str
    """Their digest; empty: the log does not say."""
    version: str
    """Of the package; empty: the log does not say."""
    next_offset: int
    """The first input that was decided by them."""
    started_at: int
    """Offset of the ServiceStarted: what the service has appended after it was decided by them. -1 for the first."""


class Epochs:
    """The epochs of each service, in order."""

    def __init__(self, first: Mapping[str, str], at_hand: Mapping[str, str]) -> None:
        """Begin with a log without a ServiceStarted.

        Args:
            first: {service: digest of the rules in force at the log's beginning}, as far as that is known.
            at_hand: {service: digest of the rules that can decide again}.
        """
        self._at_hand = at_hand
        self._epochs = {name: [Epoch(first.get(name, ""), "", 0, -1)] for name in at_hand}

    @classmethod
    def of(cls, log: Log, at_hand: Mapping[str, str]) -> Epochs:
        """Walk over a log and note its epochs. A record that cannot be read begins none."""
        epochs = cls(log.header.rules, at_hand)
        epochs.note(log.messages)
        return epochs

    def note(self, messages: Iterable[Message]) -> None:
        """Note the ServiceStarted among the messages."""
        for message in messages:
            if message.partition.topic is not Topic.CONTROL:
                return
            if _STARTED not in message.headers:
                continue
            try:
                event = wire.decode(message.headers, message.value).event
            except wire.Undecodable:
                continue
            if isinstance(event, ServiceStarted) and event.service in self._epochs:
                found = Epoch(event.rules, event.version, event.next_offset, message.offset)
                self._epochs[event.service].append(found)

    def deciding(self, service: str, offset: int) -> Epoch:
        """The epoch in which the service has handled the control record at this offset."""
        epochs = self._epochs[service]
        return epochs[bisect_right(epochs, offset, key=lambda epoch: epoch.next_offset) - 1]

    def writing(self, service: str, offset: int) -> Epoch:
        """The epoch in which the service has appended the control record at this offset."""
        epochs = self._epochs[service]
        return epochs[bisect_right(epochs, offset, key=lambda epoch: epoch.started_at) - 1]

    def is_at_hand(self, service: str, epoch: Epoch) -> bool:
        """Whether what was decided in it can be decided again."""
        return epoch.rules != "" and epoch.rules == self._at_hand[service]

    @property
    def others(self) -> int:
        """How many versions of rules have decided on the log that are not at hand."""
        return len(
            {
                (name, epoch.rules)
                for name, epochs in self._epochs.items()
                for epoch in _with_inputs(epochs)
                if not self.is_at_hand(name, epoch)
            }
        )


def _with_inputs(epochs: Iterable[Epoch]) -> Iterator[Epoch]:
    """Those that were not over before their first input, as the one before the first ServiceStarted of a new log is."""
    for epoch, following in pairwise([*epochs, None]):
        if epoch is not None and (following is None or following.next_offset > epoch.next_offset):
            yield epoch
