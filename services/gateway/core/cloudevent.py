"""A record as a structured CloudEvent: one JSON object with context and data, for streams and curl."""

from __future__ import annotations

from typing import Any

from libs.contracts.envelope import Record
from libs.contracts.read_models import EventRow
from libs.contracts.wire import DATASCHEMA_PREFIX, rfc3339


def structured(record: Record) -> dict[str, Any]:
    """The CloudEvent of a record, with its place on the log as the extension `offset`."""
    envelope = record.envelope
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": envelope.id,
        "source": f"/sanjaya/{envelope.source}",
        "type": envelope.event.wire_type,
        "subject": envelope.event.subject,
        "time": rfc3339(envelope.source_time_s),
        "dataschema": DATASCHEMA_PREFIX + envelope.event.wire_type,
        "datacontenttype": "application/json",
    }
    if envelope.causation_id:
        event["causationid"] = envelope.causation_id
    return event | {"offset": record.offset, "data": envelope.event}


def structured_row(row: EventRow) -> dict[str, Any]:
    """The same, of a row of the read models."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": row.id,
        "source": f"/sanjaya/{row.source}",
        "type": row.type,
        "subject": row.subject,
        "time": rfc3339(row.time_s if row.said_s is None else row.said_s),
        "dataschema": DATASCHEMA_PREFIX + row.type,
        "datacontenttype": "application/json",
    }
    if row.causation_id:
        event["causationid"] = row.causation_id
    return event | {"offset": row.log_offset, "data": row.data}
