"""What introspection knows from control: which attempts run, how far they are profiled, the nodes."""

from __future__ import annotations

import msgspec


class Running(msgspec.Struct, kw_only=True):
    """A job that holds GPUs."""

    attempt: int
    profiled_until_s: float | None = None
    """End of the last measured time that is on the log as JobProfiled; None before the attempt's first."""


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    running: dict[str, Running] = {}
    """{job id: its attempt}, from placement until the attempt's end."""
    nodes: dict[str, int] = {}
    """{node id: incarnation of its agent}, for nodes that joined and neither left nor were lost since."""
