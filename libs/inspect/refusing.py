"""What tests and simulations say at an impossible event: why it is impossible, and what came before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from libs.contracts.envelope import Envelope, Record
from libs.inspect.story import story
from libs.kernel.machine import Tell
from libs.kernel.replica import refuse

TOLD = 20
"""Most lines of a story in one message."""


def refusing(records: Callable[[], Iterable[Record]]) -> Tell:
    """As `refuse`, with the last lines of the subject's story, up to the impossible event itself.

    Args:
        records: gives the control log from its beginning; asked only when an event is impossible.
    """

    def refuse_with_story(envelope: Envelope, why: str) -> None:
        subject = envelope.event.subject
        lines = story(_up_to(envelope, records()), subject).lines()
        if not lines:
            refuse(envelope, why, [f"the log says nothing about {subject}, or was not kept"])
        refuse(envelope, why, [f"the last events about {subject}:", *(f"  {line}" for line in lines[-TOLD:])])

    return refuse_with_story


def _up_to(last: Envelope, records: Iterable[Record]) -> Iterator[Record]:
    """What the service has read: others may have appended more meanwhile."""
    for record in records:
        yield record
        if record.envelope.id == last.id:
            return
