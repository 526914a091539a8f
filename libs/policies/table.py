"""All policies by name: the one place where a name is validated and a policy's row is found."""

from __future__ import annotations

from libs.policies.allocation.table import ALLOCATION_POLICIES
from libs.policies.policy import Policy
from libs.policies.queueing.backfill import BACKFILL
from libs.policies.queueing.table import QUEUE_POLICIES
from libs.policies.slicing.table import SLICING_POLICIES

POLICIES: dict[str, Policy] = {**QUEUE_POLICIES, **ALLOCATION_POLICIES, **SLICING_POLICIES}
DEFAULT_POLICY = BACKFILL.name
"""In force in a cell until another is chosen."""
