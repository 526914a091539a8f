"""Guests in the read models: beside the holders of their GPUs, and owners when they are upgraded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from libs.contracts.base import Event
from libs.contracts.introspection import GpuLoadChanged
from libs.contracts.placement import UpgradeOffered, UpgradeWithdrawn
from libs.contracts.quota import JobUpgraded, OpportunityGranted
from libs.contracts.read_models import GpuRow
from libs.testing.core_case import arrival
from tests.unit.projection.story import Story, placed, reason, started

OFFERED = UpgradeOffered(job_id="g", attempt=1, tenant="vision", gpus=2, since_s=0.0, reason=reason())
UPGRADED = JobUpgraded(job_id="g", attempt=1, tenant="vision", gpus=2, reason=reason())
WITHDRAWN = UpgradeWithdrawn(job_id="g", attempt=1, reason=reason())


def with_a_guest(*, owner: bool = False) -> Story:
    story = Story().running() if owner else Story().two_nodes()
    granted = OpportunityGranted(job_id="g", attempt=1, tenant="vision", gpus=2, reason=reason())
    story.says(arrival("g", 2, tenant="vision"), granted, replace(placed("g"), role="guest"))
    return story.says(started("n1", job_id="g"), started("n2", job_id="g"))


def occupied(story: Story) -> tuple[str | None, list[str]]:
    """The owner of the first GPU, and its guests."""
    gpu = story.rows.get(GpuRow, "n1:0")
    assert gpu is not None
    return gpu.job_id, [guest["job_id"] for guest in gpu.guests]


def test_a_guest_does_not_hold_its_gpus():
    story = with_a_guest(owner=True)
    assert occupied(story) == ("j", ["g"]) and story.job("g").role == "guest"
    assert occupied(with_a_guest()) == (None, ["g"])


@pytest.mark.parametrize(
    ("said", "owner", "granted"),
    [
        ((OFFERED,), None, 0),
        ((OFFERED, UPGRADED), "g", 2),
        ((OFFERED, WITHDRAWN, UPGRADED), None, 0),
        ((OFFERED, UPGRADED, WITHDRAWN), None, 0),
    ],
)
def test_an_upgrade_counts_unless_its_offer_was_withdrawn(said: tuple[Event, ...], owner: str | None, granted: int):
    story = with_a_guest().says(*said)
    assert occupied(story) == (owner, [] if owner else ["g"])
    assert story.tenant().granted_gpus == granted == story.job("g").granted_gpus


def test_the_latest_load_of_a_gpu_is_kept():
    story = with_a_guest().says(GpuLoadChanged(node_id="n1", index=0, utilisation_ratio=0.4, window_s=10.0))
    gpu = story.rows.get(GpuRow, "n1:0")
    assert gpu is not None and gpu.load_ratio == 0.4
