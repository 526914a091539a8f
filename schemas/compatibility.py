"""Whether a changed schema still serves consumers of the old one.

Allowed: new optional properties, new definitions, and another name of a definition, which no record has. Everything
else that a consumer could notice is a new version of the event: removed or retyped properties, new required ones, and
old required ones that may now be absent.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """How `new` breaks consumers or stored records of `old`, one sentence each; empty when it does not."""
    found = _object_breaks("", old, new)
    reached = _pairs(old, new)
    for name, new_name in reached:  # it grows meanwhile: a definition refers to others
        definition, new_definition = old["$defs"][name], new["$defs"][new_name]
        found += _object_breaks(f"{name}.", definition, new_definition)
        reached += [pair for pair in _pairs(definition, new_definition) if pair not in reached]
    return found


def _pairs(old: Schema, new: Schema) -> list[tuple[str, str]]:
    """(definition, what stands in its place) of all properties of the same kind; no pair twice."""
    new_fields = new.get("properties", {})
    found: dict[tuple[str, str], None] = {}
    for name, field in old.get("properties", {}).items():
        if name in new_fields and _kind(field) == _kind(new_fields[name]):
            found.update(dict.fromkeys(zip(_references(field), _references(new_fields[name]), strict=True)))
    return list(found)


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
    """What a value may be, without words, defaults and the names of definitions."""
    return str(_bare(field))


def _bare(part: Any) -> Any:
    if isinstance(part, dict):
        wordless = {k: v for k, v in sorted(part.items()) if k not in ("description", "default", "title", "examples")}
        return {k: "#" if k == "$ref" else _bare(v) for k, v in wordless.items()}
    return [_bare(item) for item in part] if isinstance(part, list) else part


def _references(part: Any) -> list[str]:
    """Names of the definitions that it refers to, in their order."""
    if isinstance(part, dict):
        own = [part["$ref"].removeprefix("#/$defs/")] if "$ref" in part else []
        return own + [name for key, item in sorted(part.items()) if key != "$ref" for name in _references(item)]
    return [name for item in part for name in _references(item)] if isinstance(part, list) else []
