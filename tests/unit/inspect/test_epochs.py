"""The epochs of a log: which rules have decided what."""

from __future__ import annotations

import pytest

from libs.contracts.runtime import ServiceStarted
from libs.inspect.epochs import Epochs
from libs.inspect.logs import messages_of
from libs.testing.builders import envelope

AT_HAND = "new"


def epochs(*started: tuple[str, int]) -> Epochs:
    """Of a log on which a service has said these rules, each with its first input."""
    found = Epochs({}, {"placement": AT_HAND})
    said = [
        ServiceStarted(service="placement", version="1.0", rules=rules, next_offset=next_offset)
        for rules, next_offset in started
    ]
    found.note(messages_of(envelope(event, number) for number, event in enumerate(said)))
    return found


@pytest.mark.parametrize(
    ("started", "others"),
    [
        ([], 1),
        ([(AT_HAND, 0)], 0),
        ([(AT_HAND, 7)], 1),
        ([("old", 0), (AT_HAND, 7)], 1),
        ([("old", 0), (AT_HAND, 0)], 0),
        ([("older", 0), ("old", 5), (AT_HAND, 7), ("old", 9)], 2),
    ],
)
def test_other_versions_count_where_they_have_decided(started: list[tuple[str, int]], others: int):
    assert epochs(*started).others == others


def test_an_input_belongs_to_the_last_epoch_that_begins_with_it_or_before():
    found = epochs(("old", 0), (AT_HAND, 7))
    assert [found.deciding("placement", offset).rules for offset in (0, 6, 7, 8)] == ["old", "old", AT_HAND, AT_HAND]
