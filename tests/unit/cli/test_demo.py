"""The demonstration ends when its jobs have, and not because none is listed yet."""

from __future__ import annotations

import pytest

from libs.cli.demo.run import all_ended

ENDED, RUNNING = {"id": "j-1", "state": "SUCCEEDED"}, {"id": "j-2", "state": "RUNNING"}
FAILED = {"id": "j-2", "state": "FAILED"}
EXPECTED = {"j-1": "SUCCEEDED", "j-2": "FAILED"}


@pytest.mark.parametrize(
    ("listed", "ended"),
    [([], False), ([ENDED], False), ([ENDED, RUNNING], False), ([ENDED, FAILED], True)],
)
def test_a_job_that_is_not_listed_yet_has_not_ended(listed: list[dict[str, str]], ended: bool):
    assert all_ended(listed, EXPECTED) is ended
