"""Which policies bring guests, and which refuse them."""

from __future__ import annotations

import pytest

from libs.policies.table import POLICIES, guests_with


def test_a_policy_says_whether_it_brings_guests_unless_it_was_said_otherwise():
    assert {policy: guests_with(policy) for policy in POLICIES if guests_with(policy) != "none"} == {"antman": "antman"}
    assert guests_with("antman", "none") == "none" and guests_with("gandiva", "antman") == "antman"


@pytest.mark.parametrize(
    ("asked", "space_sharing", "says"),
    [("antmen", False, "guests 'antmen': expected none or antman"), ("antman", True, "would give a GPU to two owners")],
)
def test_what_cannot_be_is_refused_with_what_can(asked: str, space_sharing: bool, says: str):
    with pytest.raises(ValueError, match=says):
        guests_with("max_min_fairness", asked, space_sharing=space_sharing)
