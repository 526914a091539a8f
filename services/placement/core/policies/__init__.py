"""The policies by name. A new policy is one new file and one line here."""

from __future__ import annotations

from services.placement.core.policies.backfill import BACKFILL
from services.placement.core.policies.fifo import FIFO
from services.placement.core.policies.policy import QueuePolicy

POLICIES: dict[str, QueuePolicy] = {policy.name: policy for policy in (BACKFILL, FIFO)}
