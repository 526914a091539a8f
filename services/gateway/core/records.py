"""Events of the read models as records again, for what reads records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from libs.contracts import wire
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.read_models import EventRow


def records_of(rows: Iterable[EventRow]) -> Iterator[Record]:
    """The control records that these rows were made of.

    Raises:
        wire.Undecodable: a type that this version does not know.
    """
    for row in rows:
        yield Record(
            topic=Topic.CONTROL,
            partition=0,
            offset=row.log_offset,
            appended_at_s=row.appended_at_s,
            envelope=Envelope(
                id=row.id,
                source=row.source,
                time_s=row.time_s,
                event=wire.decode_data(row.type, msgspec.json.encode(row.data)),
                causation_id=row.causation_id,
                said_s=row.said_s,
            ),
        )
