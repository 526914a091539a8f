"""Decisions are found ahead of their inputs, and every message comes to the inputs once, in order."""

from __future__ import annotations

from contextlib import aclosing

from hypothesis import given
from hypothesis import strategies as st

from libs.bus import codec
from libs.bus.codec import message_id
from libs.bus.port import Message
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import Reason
from libs.runtime.ahead import KEPT_BATCHES, Ahead, Batches
from libs.runtime.recovery import CONTROL
from libs.testing.core_case import arrival
from libs.testing.toy import TOY

JOBS = 3 * KEPT_BATCHES


class Recorded:
    """A log of inputs and of decisions on them, which is read one message at a time."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = 0

    def input(self, number: int) -> None:
        """A job arrives."""
        self._append(Envelope(id=f"in{number}", source="gateway", time_s=0.0, event=arrival(f"j{number}")))

    def decision(self, number: int) -> None:
        """The toy has queued a job, and said so in two events."""
        for ordinal in (2 * number + 1, 2 * number + 2):
            event = JobQueued(job_id=f"j{number}", attempt=1, reason=Reason(code="Toy", message="waits"))
            cause = f"in{number}"
            self._append(
                Envelope(
                    id=f"out{ordinal}", source=TOY.name, time_s=0.0, event=event, causation_id=cause, sequence=ordinal
                )
            )

    def _append(self, envelope: Envelope) -> None:
        sent = codec.outgoing(envelope)
        self.messages.append(Message(CONTROL, len(self.messages), sent.key, sent.headers, sent.value, 0.0))

    async def read(self, start: int, end: int) -> Batches:
        """Batches of one message."""
        for message in self.messages[start:end]:
            self.reads += 1
            yield [message]

    async def walked(self, start: int = 0, decided: int = 0) -> tuple[list[int], dict[str, list[str]]]:
        """Offsets as they come to the inputs, and {input: its decisions}."""
        ahead = Ahead(TOY, self.read, start, len(self.messages), decided)
        offsets: list[int] = []
        found: dict[str, list[str]] = {}
        async with aclosing(ahead), aclosing(ahead.behind()) as batches:
            await ahead.begin()
            async for batch in batches:
                for message in batch:
                    offsets.append(message.offset)
                    if message_id(message) == ahead.cause:
                        found[message_id(message)] = [decision.id for decision in await ahead.decisions()]
        assert ahead.next is None
        return offsets, found


DECISIONS = {f"in{number}": [f"out{2 * number + 1}", f"out{2 * number + 2}"] for number in range(JOBS)}


@given(st.lists(st.booleans(), min_size=JOBS, max_size=4 * JOBS))
async def test_each_input_has_its_decisions_wherever_they_stand(decides_now: list[bool]):
    recorded, inputs, decisions = Recorded(), 0, 0
    for now in decides_now:
        if now and decisions < inputs:
            recorded.decision(decisions)
            decisions += 1
        elif inputs < JOBS:
            recorded.input(inputs)
            inputs += 1
    offsets, found = await recorded.walked()
    assert offsets == list(range(len(recorded.messages)))
    assert found == {cause: DECISIONS[cause] for cause in list(DECISIONS)[:decisions]}


async def test_decisions_close_by_cost_no_second_reading():
    recorded = Recorded()
    for number in range(JOBS):
        recorded.input(number)
        recorded.decision(number)
    await recorded.walked()
    assert recorded.reads == len(recorded.messages)


async def test_what_is_too_far_ahead_to_be_kept_is_read_again_once():
    recorded = Recorded()
    for number in range(JOBS):
        recorded.input(number)
    for number in range(JOBS):
        recorded.decision(number)
    offsets, found = await recorded.walked()
    assert offsets == list(range(3 * JOBS)) and found == DECISIONS
    assert len(recorded.messages) < recorded.reads <= 2 * len(recorded.messages) - KEPT_BATCHES


async def test_decisions_that_a_snapshot_knows_are_left_out():
    recorded = Recorded()
    recorded.input(0)
    recorded.input(1)
    recorded.decision(0)
    recorded.decision(1)
    _, found = await recorded.walked(start=1, decided=2)
    assert found == {"in1": DECISIONS["in1"]}
