"""Nodes and their GPUs: which there are, which work, and which jobs hold them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

import msgspec

from libs.contracts.cluster import PortRange


class Gpu(msgspec.Struct, kw_only=True):
    """One GPU of a node."""

    gpu_type: str
    memory_bytes: int = 0
    holders: list[str] = []
    """Ids of the jobs that hold it; several only where a policy packs them."""


class Node(msgspec.Struct, kw_only=True):
    """A node that has joined at least once."""

    node_id: str
    incarnation: int
    address: str
    rack: str
    gpus: list[Gpu]
    healthy: dict[str, list[int]]
    """{GPU type: indices of those that work, ascending}."""
    ports: PortRange
    next_port: int
    present: bool = True
    """False after NodeLeaving, NodeLost or NodeLeft, until it joins again."""
    draining: bool = False
    remaps: bool = False
    """Whether suspended tasks may be resumed on other GPUs of the node."""
    state_port: int = 0
    """Where its agent gives out the states of tasks that move."""
    cpus: int = 0
    """CPUs that jobs may be promised."""
    memory_bytes: int = 0
    """Memory of the host that they may be promised."""
    shrunk: bool = False
    """It has had more of them, and jobs may have been promised that."""
    features: list[str] = []
    """What jobs may need of it beside GPUs, however many."""

    @property
    def usable(self) -> bool:
        """Whether new work may be placed here."""
        return self.present and not self.draining

    def free(self, gpu_type: str) -> list[int]:
        """Indices of the healthy free GPUs of a type, ascending."""
        return [index for index in self.healthy.get(gpu_type, ()) if not self.gpus[index].holders]

    def capacity(self, gpu_type: str) -> int:
        """Healthy GPUs of a type, held or free."""
        return len(self.healthy.get(gpu_type, ()))

    def is_healthy(self, index: int) -> bool:
        """Whether this GPU works."""
        return index in self.healthy.get(self.gpus[index].gpu_type, ())

    def are_healthy(self, indices: Iterable[int]) -> bool:
        """Whether all of these GPUs work."""
        gpu_type, working = "", list[int]()
        for index in indices:
            if self.gpus[index].gpu_type != gpu_type:
                gpu_type = self.gpus[index].gpu_type
                working = self.healthy.get(gpu_type, [])
            if index not in working:
                return False
        return True

    def set_health(self, index: int, *, healthy: bool) -> None:
        """A GPU fails or recovers."""
        working = self.healthy.setdefault(self.gpus[index].gpu_type, [])
        if healthy and index not in working:
            insort(working, index)
        elif not healthy and index in working:
            working.remove(index)
