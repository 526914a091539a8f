"""What admission knows: the cluster as it could be, the tenants' limits, and jobs that cannot be judged yet."""

from __future__ import annotations

from functools import cached_property

import msgspec

from libs.contracts.jobs import JobSpec


class State(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty: nothing is judged before the first node has joined."""

    nodes: dict[str, dict[str, int]] = {}
    """{node id: {GPU type: GPUs}}, for every node that has joined and not left; lost nodes are expected back."""
    limits: dict[str, int] = {}
    """{tenant: most GPUs of its jobs together}, only where there is a limit."""
    unjudged: dict[str, JobSpec] = {}
    """{job id: spec} of jobs that arrived before any node, in order of arrival."""

    @cached_property
    def sizes(self) -> dict[str, dict[int, int]]:
        """{GPU type: {GPUs: nodes that have so many}}. Derived of `nodes`, and no part of snapshots."""
        found: dict[str, dict[int, int]] = {}
        for node in self.nodes.values():
            for gpu_type, gpus in node.items():
                of_type = found.setdefault(gpu_type, {})
                of_type[gpus] = of_type.get(gpus, 0) + 1
        return found

    def join(self, node_id: str, gpus: dict[str, int]) -> None:
        """The node is there, with so many GPUs of each type."""
        self.nodes[node_id] = gpus
        self.__dict__.pop("sizes", None)

    def leave(self, node_id: str) -> None:
        """The node is not expected back."""
        self.nodes.pop(node_id, None)
        self.__dict__.pop("sizes", None)
