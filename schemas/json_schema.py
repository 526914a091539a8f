"""JSON Schema (2020-12) of one event's data."""

from __future__ import annotations

from typing import Any

import msgspec

from libs.contracts.base import Event
from libs.contracts.wire import DATASCHEMA_PREFIX


def of(cls: type[Event]) -> dict[str, Any]:
    """The schema. Additional properties are allowed: consumers ignore fields that they do not know."""
    (_,), components = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    own = components.pop(cls.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": DATASCHEMA_PREFIX + cls.wire_type,
        **own,
        "description": cls.__doc__ or "",
        **({"$defs": dict(sorted(components.items()))} if components else {}),
    }
