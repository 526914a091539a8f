"""Files of rules: YAML with any of `rules`, `causes` and `markers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import yaml

from libs.contracts.bad_input import BadInput
from libs.failures.rule import CONTEXTS, MARKERS, REASONS, STREAMS, Cause, Marker, Rule
from libs.kernel.yaml_text import read_yaml

Item = TypeVar("Item", Rule, Marker, Cause)
SECTIONS = ("rules", "causes", "markers")
LAST_RANK = 99


@dataclass
class Rules:
    """What files of rules say, in the order of the files."""

    rules: list[Rule] = field(default_factory=list)
    causes: dict[str, Cause] = field(default_factory=dict)
    markers: list[Marker] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """{rule id: `file:line`}, for messages."""

    def place(self, rule: Rule) -> str:
        """Where a rule is written, as messages say it."""
        return f"{self.places[rule.id]}: rule {rule.id}"


def read(texts: Sequence[tuple[str, str]], known: Rules | None = None) -> Rules:
    """The rules of several files.

    Args:
        texts: (name for messages, YAML text) per file.
        known: rules that are there already; causes may be theirs, ids may not.

    Raises:
        BadInput: it is no YAML, a field is wrong, a reason or cause is unknown, an id is there twice.
    """
    found = Rules(
        list(known.rules) if known else [],
        dict(known.causes) if known else {},
        list(known.markers) if known else [],
        dict(known.places) if known else {},
    )
    nodes = [(name, _sections(name, text)) for name, text in texts]
    for name, sections in nodes:
        _read_causes(found, name, sections.get("causes"))
    for name, sections in nodes:
        _read_markers(found, name, sections.get("markers"))
        _read_rules(found, name, sections.get("rules"))
    return found


def _sections(name: str, text: str) -> dict[str, yaml.Node]:
    root = read_yaml(text, name, lambda whole: yaml.compose(whole, Loader=yaml.CSafeLoader))
    if not isinstance(root, yaml.MappingNode):
        raise BadInput(name, "no mapping at the top", f"a mapping with any of {', '.join(SECTIONS)}")
    sections = {}
    for key, value in root.value:
        if key.value not in SECTIONS:
            raise BadInput(_at(name, key), f"unknown section {key.value!r}", f"one of {', '.join(SECTIONS)}")
        sections[key.value] = value
    return sections


def _read_causes(found: Rules, name: str, node: yaml.Node | None) -> None:
    if node is None:
        return
    if not isinstance(node, yaml.MappingNode):
        raise BadInput(_at(name, node), "causes are no mapping", "a mapping of cause to meaning and retry")
    for key, value in node.value:
        if key.value in found.causes:
            raise BadInput(_at(name, key), f"cause {key.value} is there already", "another name")
        found.causes[key.value] = _made(name, value, Cause, f"cause {key.value}")


def _read_markers(found: Rules, name: str, node: yaml.Node | None) -> None:
    for item in _listed(name, node, "markers"):
        marker = _made(name, item, Marker, "marker")
        if marker.kind not in MARKERS:
            raise BadInput(_at(name, item), f"unknown kind {marker.kind!r}", f"one of {', '.join(MARKERS)}")
        found.markers.append(marker)


def _read_rules(found: Rules, name: str, node: yaml.Node | None) -> None:
    for item in _listed(name, node, "rules"):
        rule = _made(name, item, Rule, f"rule {_id_of(item)}")
        if rule.id in found.places:
            raise BadInput(_at(name, item), f"rule {rule.id} is also at {found.places[rule.id]}", "an id of its own")
        found.places[rule.id] = _at(name, item)
        _check(rule, found.place(rule), found.causes)
        found.rules.append(rule)


def _check(rule: Rule, where: str, causes: dict[str, Cause]) -> None:
    if rule.reason not in REASONS:
        raise BadInput(where, f"unknown reason {rule.reason!r}", f"one of {', '.join(REASONS)}")
    if rule.category not in REASONS[rule.reason]:
        expected = " or ".join(repr(each) for each in REASONS[rule.reason])
        raise BadInput(where, f"category {rule.category!r} for {rule.reason}", expected)
    if rule.cause not in causes:
        raise BadInput(where, f"unknown cause {rule.cause!r}", "a cause of the package, or one under `causes:`")
    if not 0 <= rule.rank <= LAST_RANK:
        raise BadInput(where, f"rank {rule.rank}", f"0 to {LAST_RANK}")
    if unknown := [stream for stream in rule.streams if stream not in STREAMS] or (not rule.streams and ["none"]):
        raise BadInput(where, f"streams: {', '.join(unknown)}", f"one or more of {', '.join(STREAMS)}")
    if rule.context and rule.context not in CONTEXTS:
        raise BadInput(where, f"context {rule.context!r}", f"one of {', '.join(CONTEXTS)}")


def _listed(name: str, node: yaml.Node | None, section: str) -> list[yaml.Node]:
    if node is None:
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise BadInput(_at(name, node), f"{section} are no list", "a list")
    return list(node.value)


def _made(name: str, node: yaml.Node, kind: type[Item], what: str) -> Item:
    try:
        return msgspec.convert(_value(node), kind)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise BadInput(f"{_at(name, node)}: {what}", str(error), "a rule as in libs/failures/README.md") from None


def _value(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _id_of(node: yaml.Node) -> str:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((str(value.value) for key, value in pairs if key.value == "id"), "without an id")


def _at(name: str, node: yaml.Node) -> str:
    return f"{name}:{node.start_mark.line + 1}"
