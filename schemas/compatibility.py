"""Whether a changed schema still serves those who know the old one.

Allowed: new optional properties, new definitions. Everything else that a consumer could notice is a new
version of the event: removed or retyped properties, new required ones, and old required ones that may now
be absent.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """How `new` breaks consumers or stored records of `old`, one sentence each; empty when it does not."""
    found = _object_breaks("", old, new)
    for name, definition in old.get("$defs", {}).items():
        if name in new.get("$defs", {}):
            found += _object_breaks(f"{name}.", definition, new["$defs"][name])
    return found


def _object_breaks(where: str, old: Schema, new: Schema) -> list[str]:
    old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
    old_required, new_required = old.get("required", []), new.get("required", [])
    found = [f"{where}{name} was removed" for name in old_fields if name not in new_fields]
    found += [
        f"{where}{name} changed from {_kind(field)} to {_kind(new_fields[name])}"
        for name, field in old_fields.items()
        if name in new_fields and _kind(field) != _kind(new_fields[name])
    ]
    found += [
        f"{where}{name} is newly required: old records lack it" for name in new_required if name not in old_required
    ]
    found += [
        f"{where}{name} may now be absent: consumers rely on it" for name in old_required if name not in new_required
    ]
    if set(old.get("enum", [])) - set(new.get("enum", [])):
        found.append(f"{where.rstrip('.')} lost values of its enumeration")
    return found


def _kind(field: Schema) -> str:
    """What a value may be, without words and defaults."""
    return str({k: v for k, v in sorted(field.items()) if k not in ("description", "default", "title", "examples")})
