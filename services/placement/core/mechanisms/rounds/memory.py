"""What the rounds remember: the latest allocation, and how far it has been realised (Gavel, OSDI'20, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from libs.contracts.placement import Lease, Share
from services.placement.core.cell import Cell


class Rounds(msgspec.Struct, kw_only=True):
    """How the latest allocation is being realised."""

    shares: list[Share]
    question: str
    """Fingerprint of the problem that `shares` answer."""
    rows: dict[str, list[int]] = {}
    """{job id: places of its rows in `shares`}."""
    computed_s: float
    booked_s: float
    """Up to when shares have been turned into credit."""
    credit: dict[str, dict[str, float]] = {}
    """{row: {GPU type: seconds that its share promised and it has not had}}, as `shares` have them and in their order;
    a row is one job or two."""
    number: int = 0
    ends_s: float = 0.0
    crowded: dict[str, float] = {}
    """{job id: part of its share that its nodes can give}, of pinned jobs on nodes that cannot give all of them all."""
    plan: dict[str, Lease] = {}
    """{job id: the place that it gets when the tasks that must go have ended}."""
    beyond: dict[str, None] = {}
    """Jobs on GPUs that no share claims: this time is not charged."""


class Divided(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs and GPUs of a question: each job's own part is 1/n of them."""

    jobs: int
    gpus: dict[str, int]
    """{GPU type: GPUs}."""


class Memory(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty."""

    asked: str = ""
    """The question to which AllocationComputed is awaited; empty: none."""
    current: Rounds | None = None
    """None before the first allocation of the policy in force."""
    divided: Divided | None = None
    """Of the last question; None before the first one of a policy that sees how far jobs are."""


of: Callable[[Cell], Memory] = attrgetter("rounds")
"""The rounds' part of the state."""
