"""What admission knows: the cluster as it could be, the tenants' limits, and jobs that cannot be judged yet."""

from __future__ import annotations

import msgspec

from libs.contracts.jobs import JobSpec


class State(msgspec.Struct, kw_only=True):
    """Initially empty: nothing is judged before the first node has joined."""

    nodes: dict[str, dict[str, int]] = {}
    """{node id: {GPU type: GPUs}}, for every node that has joined and not left; lost nodes are expected back."""
    limits: dict[str, int] = {}
    """{tenant: most GPUs of its jobs together}, only where there is a limit."""
    unjudged: dict[str, JobSpec] = {}
    """{job id: spec} of jobs that arrived before any node, in order of arrival."""
