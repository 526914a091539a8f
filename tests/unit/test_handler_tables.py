"""Every fold, and the sentences of the story, handle every type of event, or pass it over for a reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from libs import lifecycle
from libs.contracts.base import Event, Topic, event_classes
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobPlaced, JobResized
from libs.inspect import sentences
from services.projection import core as projection_core

CONTROL = (Topic.CONTROL,)
TOLD = [cls for cls in event_classes() if sentences.says(cls)]
TABLES: dict[str, tuple[Collection[type[Event]], Mapping[type[Event], str], Collection[Topic]]] = {
    "lifecycle": ({JobArrived, *lifecycle.HANDLERS}, lifecycle.IGNORED, CONTROL),
    "projection": (projection_core.HANDLERS, projection_core.IGNORED, CONTROL),
    "sentences": (TOLD, sentences.UNTOLD, tuple(Topic)),
}
"""{fold: (types that it handles, types that it passes over and why, topics that it reads)}."""


def unmentioned(handled: Collection[Any], ignored: Collection[Any], topics: Collection[Topic]) -> list[str]:
    """Types of these topics in neither table."""
    classes = [cls for cls in event_classes() if cls.topic in topics]
    return [cls.__name__ for cls in classes if cls not in handled and cls not in ignored]


@pytest.mark.parametrize("name", TABLES)
def test_every_type_is_handled_or_passed_over_for_a_reason(name: str):
    handled, ignored, topics = TABLES[name]
    assert unmentioned(handled, ignored, topics) == [], (
        f"add them to the handlers of {name}, or to its table of ignored"
    )
    assert [cls.__name__ for cls in ignored if cls in handled] == []
    assert [cls.__name__ for cls, why in ignored.items() if not why] == []
    assert [cls.__name__ for cls in ignored if cls.topic not in topics] == []


def test_a_type_in_neither_table_is_named():
    handled = {cls for cls in lifecycle.HANDLERS if cls is not JobPlaced} | {JobArrived}
    ignored = {cls for cls in lifecycle.IGNORED if cls is not JobResized}
    assert unmentioned(handled, ignored, CONTROL) == ["JobPlaced", "JobResized"]
