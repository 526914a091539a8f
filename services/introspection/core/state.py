"""What the judging core knows: how fast jobs are alone, and which of them share GPUs."""

from __future__ import annotations

import msgspec


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

    alone: dict[str, float] = {}
    """{job id: its rate while it had its GPUs to itself}."""
    packs: dict[str, Pack] = {}
    """{job id that the pack is called after: the pack}."""
