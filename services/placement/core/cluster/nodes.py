"""Nodes and their GPUs: which there are, which work, and which jobs hold them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import msgspec

from libs.contracts.cluster import PortRange


class Gpu(msgspec.Struct, kw_only=True):
    """One GPU of a node."""

    gpu_type: str
    memory_bytes: int = 0
    holders: list[str] = []
    """Ids of the jobs that hold it; several only where a policy packs them. A guest that has been offered to become
    its owner is one of them: nothing else gets the GPU until the answer."""
    guests: list[str] = []
    """Ids of the opportunistic jobs that run on what its owner leaves, in the order in which they came. To all others
    the GPU is as free as if they were not there (AntMan, section 3.3)."""
    load_ratio: float | None = None
    """How busy the jobs that are there have kept it, as last measured; None: not measured since one of them left."""
    load_s: float = 0.0
    """When that was said, in seconds since the epoch."""


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
    """Looked at first, when a gang is to meet here."""
    meetings: list[int] = []
    """Ports where gangs meet that have their first task here and have not ended."""
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
    scales_memory: str = ""
    """What of a running task's GPU memory can be moved to the host: `all`, `activations`; empty: nothing."""
    scales_compute: bool = False
    """Whether a running task's share of the GPU's time can be changed."""
    spill_bytes: int = 0
    """Memory of the host for what guests have to take off the GPUs."""
    avoided_by: list[str] = []
    """Ids of the jobs that are not placed here, because they have failed here."""
    cordoned: dict[int, bool] = {}
    """{index of a GPU that nothing new is placed on, because it is suspected: whether it works, as far as is known}."""

    @property
    def usable(self) -> bool:
        """Whether new work may be placed here."""
        return self.present and not self.draining

    def free(self, gpu_type: str) -> list[int]:
        """Indices of the healthy free GPUs of a type, ascending."""
        return [index for index in self.healthy.get(gpu_type, ()) if not self.gpus[index].holders]

    def guests_on(self, indices: Iterable[int]) -> int:
        """Seats of guests on these GPUs."""
        return sum(len(self.gpus[index].guests) for index in indices)

    def least_shared(self, indices: Sequence[int], count: int) -> list[int]:
        """So many of these GPUs, ascending: those with the fewest guests, then the first."""
        if not any(self.gpus[index].guests for index in indices):
            return list(indices[:count])
        return sorted(sorted(indices, key=lambda index: (len(self.gpus[index].guests), index))[:count])

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
        """A GPU fails or recovers; one that is cordoned stays so."""
        if index in self.cordoned:
            self.cordoned[index] = healthy
            return
        working = self.healthy.setdefault(self.gpus[index].gpu_type, [])
        if healthy and index not in working:
            insort(working, index)
        elif not healthy and index in working:
            working.remove(index)

    def cordon(self, indices: Iterable[int]) -> None:
        """Nothing new is placed on these GPUs."""
        for index in indices:
            if index not in self.cordoned:
                works = self.is_healthy(index)
                self.set_health(index, healthy=False)
                self.cordoned[index] = works

    def lift_cordon(self, indices: Iterable[int]) -> None:
        """These GPUs may be used again, if they work."""
        for index in indices:
            works = self.cordoned.pop(index, None)
            if works:
                self.set_health(index, healthy=True)
