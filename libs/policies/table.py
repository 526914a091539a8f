"""All policies by name: the one place where a name is validated and a policy's row is found."""

from __future__ import annotations

from libs.contracts.gateway import ANTMAN_GUESTS, GUESTS, NO_GUESTS
from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.policy import Policy
from libs.policies.queueing.backfill import BACKFILL
from libs.policies.queueing.table import QUEUE_POLICIES
from libs.policies.slicing.table import SLICING_POLICIES

POLICIES: dict[str, Policy] = {**QUEUE_POLICIES, **ALLOCATION_POLICIES, **SLICING_POLICIES}


def guests_with(policy: str, asked: str | None = None, *, space_sharing: bool = False) -> str:
    """What `PolicyChanged.guests` is to be with a policy.

    Args:
        policy: one of `POLICIES`.
        asked: one of `GUESTS`, as the operator has said it; None: as the policy's row says.
        space_sharing: whether the policy is to pair owners.

    Raises:
        ValueError: no such value, or the policy pairs owners.
    """
    brought = ANTMAN_GUESTS if POLICIES[policy].brings_guests else NO_GUESTS
    guests = brought if asked is None else asked
    if guests not in GUESTS:
        raise ValueError(f"guests {guests!r}: expected {' or '.join(GUESTS)}")
    if guests != NO_GUESTS and space_sharing:
        raise ValueError(
            f"guests {guests!r} with space sharing: {policy} would give a GPU to two owners, guests are beside one; "
            f"expected guests {NO_GUESTS!r}, or no space sharing"
        )
    return guests


DEFAULT_POLICY = BACKFILL.name
"""In force in a cell until another is chosen."""
