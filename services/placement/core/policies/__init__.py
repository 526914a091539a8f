"""The queue policies by name. A new policy is one new file and one line here."""

from __future__ import annotations

from services.placement.core.policies.backfill import BACKFILL
from services.placement.core.policies.policy import QueuePolicy
from services.placement.core.policies.strict_fifo import STRICT_FIFO

QUEUE_POLICIES: dict[str, QueuePolicy] = {policy.name: policy for policy in (BACKFILL, STRICT_FIFO)}
"""The policies of `allocation` have a table of their own."""
