"""The stored schemas are those of the code, stay compatible, and old records stay readable."""

import copy
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from libs.contracts import wire
from libs.contracts.base import event_classes
from schemas import examples, generate, json_schema
from schemas.compatibility import breaks

EVENTS = Path(generate.__file__).parent / "events"
STORED = sorted(path.name.removesuffix(".example.json") for path in EVENTS.glob("*.example.json"))


def test_the_stored_documents_are_up_to_date():
    assert generate.problems() == []


@pytest.mark.parametrize("wire_type", STORED)
def test_every_event_ever_stored_is_still_read(wire_type: str):
    assert wire.decode_data(wire_type, (EVENTS / f"{wire_type}.example.json").read_bytes())


@pytest.mark.parametrize("cls", list(event_classes()), ids=lambda cls: cls.wire_type)
def test_examples_fit_their_schema(cls: type):
    example = json.loads(wire.encode_data(examples.of(cls)))
    jsonschema.validate(example, json_schema.of(cls), cls=jsonschema.Draft202012Validator)


def changed(**edits: object) -> tuple[dict, dict]:
    cls = next(cls for cls in event_classes() if cls.wire_type == "job.cancel_requested.v1")
    old = json_schema.of(cls)
    new = copy.deepcopy(old)
    new.update(msgspec.to_builtins(edits))
    return old, new


def test_a_new_optional_field_is_compatible():
    old, new = changed()
    new["properties"]["extra"] = {"type": "string", "default": ""}
    assert breaks(old, new) == []


def test_removed_retyped_and_newly_required_fields_are_not():
    old, new = changed()
    del new["properties"]["note"]
    new["properties"]["grace_s"] = {"type": "string"}
    new["required"] = ["job_id", "requested_by", "note"]
    found = breaks(old, new)
    assert len(found) == 3
    assert any("note was removed" in why for why in found)
    assert any("grace_s changed" in why for why in found)
    assert any("newly required" in why for why in found)


def renamed(schema: dict, name: str, now: str) -> dict:
    """The schema with another name of one of its definitions."""
    return json.loads(json.dumps(schema).replace(f'/{name}"', f'/{now}"').replace(f'"{name}":', f'"{now}":'))


def test_the_name_of_a_definition_may_change_what_it_defines_may_not():
    cls = next(cls for cls in event_classes() if cls.wire_type == "job.placed.v1")
    old = json_schema.of(cls)
    new = renamed(old, "TaskPlacement", "Place")
    assert new != old and "Place" in new["$defs"] and breaks(old, new) == []
    new["$defs"]["Place"]["properties"]["node_id"] = {"type": "integer"}
    assert breaks(old, new) == ["TaskPlacement.node_id changed from {'type': 'string'} to {'type': 'integer'}"]


def test_definitions_that_change_places_are_not_compatible():
    number, text = ({"type": "object", "properties": {"value": {"type": kind}}} for kind in ("number", "string"))
    old = {"properties": {"gain": {"$ref": "#/$defs/Gain"}}, "$defs": {"Gain": number, "Note": text}}
    new = {"properties": {"gain": {"$ref": "#/$defs/Note"}}, "$defs": {"Gain": number, "Note": text}}
    assert breaks(old, new) == ["Gain.value changed from {'type': 'number'} to {'type': 'string'}"]
