"""Brings the journal's facts to the log: each exactly once, in order, however often the log goes away.

A commit appends facts and moves the agent's position on its orders, with a note that names the journal and
the number of the last fact. After a commit with an unknown outcome, and at every start, the note tells
which facts are on the log already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from libs.bus import codec
from libs.bus.batches import kept_before
from libs.bus.port import Bus, BusUnavailable, OutcomeUnknown, Outgoing, Partition, Position, Refused, Session
from libs.contracts.agent import source_of
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.kernel.ids import request_id
from torch_agent.journal import Fact, Journal

log = logging.getLogger(__name__)

FACTS_PER_COMMIT = 500
BYTES_PER_COMMIT = 16 * 1024 * 1024
"""Of their values, unless the first alone is larger: what jobs have written while the log was away is sent in parts."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0


def noted(at: Position) -> tuple[str, int]:
    """The journal that wrote last, and the number of its last fact; empty and 0 where the log does not know (any more).

    Args:
        at: the agent's position on its orders.
    """
    journal_id, _, number = at.metadata.partition(":")
    return (journal_id, int(number)) if number else ("", 0)


class Publisher:
    """The agent's session on the bus."""

    def __init__(self, bus: Bus, node_id: str, orders: Partition, journal: Journal) -> None:
        self._bus, self._journal, self._orders = bus, journal, orders
        self._source = source_of(node_id)
        self._session: Session | None = None
        self._wake = asyncio.Event()
        self._wait_s = FIRST_WAIT_S
        self.refused = False
        """The log does not take this agent's facts: it is no more than a stranger to the cell."""
        self.on_refused: Callable[[Refused], None] = lambda error: None
        """Told of each refusal."""

    def wake(self) -> None:
        """There may be something to publish."""
        self._wake.set()

    async def open(self) -> Position:
        """Take over the session, learn what is on the log.

        Returns:
            The committed position on the orders; Position(0) when the log knows none (any more).

        Raises:
            BusUnavailable: the log cannot be reached.
        """
        self._session = await self._bus.open_session(self._source)
        at = await self._session.position(self._orders)
        journal_id, number = noted(at)
        if journal_id == self._journal.id and number <= self._journal.last_number:
            self._journal.published(number)
        elif journal_id not in ("", self._journal.former_id):
            self._fall_behind(journal_id, number)
        elif self._journal.backlog:
            await self._look_for_published()
        return at

    def _fall_behind(self, journal_id: str, number: int) -> None:
        """The log has facts of this journal that it does not know, or later ones of another journal of the node.

        What this one still has is on the log, under its own id or told by the other: published under a new id it would
        be there twice.
        """
        log.warning(
            "the journal's last fact is %s:%d, but the log has %s:%d: the journal is an old copy, new, or has lost its "
            "end, and goes on under a new id",
            *(self._journal.id, self._journal.last_number, journal_id, number),
        )
        self._journal.published(self._journal.last_number)
        self._journal.begin_anew()
        self._journal.is_behind = True

    async def _look_for_published(self) -> None:
        """Find the journal's facts on the log by their ids: the note is gone, as a broker forgets it after a while.

        Only an agent that was killed between a commit and its own entry of it, and then stayed away for that long,
        has such facts. The whole of their topics is read, since nothing says where they would be.
        """
        facts = self._journal.unpublished(self._journal.backlog)
        numbers = {self._envelope(fact).id.encode(): fact.number for fact in facts}
        found = 0
        for topic in {type(fact.event).topic for fact in facts}:
            for partition in await self._bus.partitions(topic):
                async for message in kept_before(self._bus, partition, await self._bus.end_offset(partition)):
                    found = max(found, numbers.get(dict(message.headers).get("ce_id", b""), 0))
        self._journal.published(found)

    async def run(self) -> None:
        """Publish for ever.

        Raises:
            Fenced: another agent of the same node id has taken over.
        """
        while True:
            if not await self.publish():
                self._wake.clear()
                if not self._journal.backlog:
                    await self._wake.wait()

    async def publish(self) -> bool:
        """One commit of what the journal has. Returns whether there was something and it is on the log now."""
        facts = self._journal.unpublished(FACTS_PER_COMMIT)
        if not facts:
            return False
        try:
            if self._session is None:
                await self.open()
                return True
            await self._commit(facts)
        except asyncio.CancelledError:
            self._session = None  # the commit may happen all the same: the next session asks the log first
            raise
        except OutcomeUnknown as error:
            log.warning("the outcome of a commit is unknown: %s", error)
            await self._give_up_session()
        except (BusUnavailable, Refused) as error:
            self.refused = isinstance(error, Refused)
            if isinstance(error, Refused):
                self.on_refused(error)
            log.warning("the log cannot be reached; %d facts wait: %s", self._journal.backlog, error)
            await asyncio.sleep(self._wait_s)
            self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
        else:
            self._wait_s, self.refused = FIRST_WAIT_S, False
            return True
        return False

    async def _commit(self, facts: list[Fact]) -> None:
        next_order = self._journal.next_order
        assert self._session is not None and next_order is not None, "there are facts before the first beginning"
        outputs = self._first_outputs(facts)
        last = facts[len(outputs) - 1].number
        at = Position(next_order, f"{self._journal.id}:{last}")
        await self._session.commit(outputs, {self._orders: at})
        self._journal.published(last)

    def _first_outputs(self, facts: list[Fact]) -> list[Outgoing]:
        """Of so many facts from the first one on as fit into one commit."""
        outputs: list[Outgoing] = []
        room = BYTES_PER_COMMIT
        for fact in facts:
            output = codec.outgoing(self._envelope(fact))
            room -= len(output.value)
            if outputs and room < 0:
                break
            outputs.append(output)
        return outputs

    async def _give_up_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _envelope(self, fact: Fact) -> Envelope:
        return Envelope(
            id=request_id(self._source, f"{self._journal.id}/{fact.number}"),
            source=self._source,
            time_s=whole_microseconds(fact.time_s),
            event=fact.event,
            sequence=fact.number,
        )

    async def close(self) -> None:
        """End the session."""
        await self._give_up_session()
