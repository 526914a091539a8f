"""The queue policies by name. A new one is one new file and one line here."""

from __future__ import annotations

from libs.policies.queueing.antman import ANTMAN
from libs.policies.queueing.backfill import BACKFILL
from libs.policies.queueing.philly import PHILLY
from libs.policies.queueing.policy import QueuePolicy
from libs.policies.queueing.strict_fifo import STRICT_FIFO

QUEUE_POLICIES: dict[str, QueuePolicy] = {policy.name: policy for policy in (BACKFILL, STRICT_FIFO, ANTMAN, PHILLY)}
