"""The cores as the log has them, kept up to date record by record: what branches are made of, live."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from libs.contracts.envelope import Record
from libs.forecast.arrivals import Arrival
from libs.forecast.branch import Branch, branches
from libs.inspect.refolding import Joined
from libs.kernel.replica import Replica


class Followed:
    """Copies of the cores that fold what is recorded, and decide nothing.

    Args:
        replicas: {service: its core} as of an earlier moment, each at its position; they are changed.
    """

    def __init__(self, replicas: Mapping[str, Replica[Any]]) -> None:
        self._replicas = dict(replicas)
        self._joined = {name: Joined() for name in replicas}
        self._starts = {name: replica.next_offset for name, replica in replicas.items()}
        self.next_offset = min(self._starts.values(), default=0)
        """The first control record that has not been taken."""

    def take(self, record: Record) -> None:
        """The next record of control."""
        envelope, self.next_offset = record.envelope, record.offset + 1
        for name, replica in self._replicas.items():
            joined = self._joined[name]
            if replica.is_own(envelope) and joined.expects(envelope.causation_id):
                for handled in joined.output(envelope):
                    replica.refold(handled.input, handled.outputs)
            if record.offset >= self._starts[name] and replica.service.machine.reads(envelope.event):
                joined.input(envelope, record.offset)

    def handled(self, positions: Mapping[str, int]) -> None:
        """What the services have committed: {service: the first record that it has not handled}."""
        for name, position in positions.items():
            for handled in self._joined[name].complete(min(position, self.next_offset)) if name in self._joined else ():
                self._replicas[name].refold(handled.input, handled.outputs)

    def branches(self, now_s: float, arrived: Sequence[Arrival] = ()) -> Callable[[], Branch]:
        """Makes branches of the present, with what has not been handled yet decided there. They are to be made before
        the next record is taken.

        Args:
            now_s: the present, in seconds since the epoch.
            arrived: the latest arrivals, in order.
        """
        held = {name: joined.held() for name, joined in self._joined.items()}
        return branches(self._replicas, now_s, held, tuple(self._replicas), arrived)
