"""What the judging core knows: how fast jobs are alone, and which of them share GPUs."""

from __future__ import annotations

import msgspec


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """A job's rate while it had its GPUs to itself."""

    attempt: int
    rate_per_s: float


class Pack(msgspec.Struct, kw_only=True):
    """Two jobs that share their GPUs."""

    jobs: tuple[str, str]
    since_s: float
    trial_ends_s: float
    together: dict[str, float] = {}
    """{job id: rate beside the other}; emptied by each verdict."""
    kept: bool = False
    """PackSucceeded has been said."""
    failed: bool = False
    """PackFailed has been said; placement is about to part them."""


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    alone: dict[str, Alone] = {}
    """{job id: its rate}."""
    packs: dict[str, Pack] = {}
    """{job id that the pack is called after: the pack}."""
