"""The GPUs that can be used, and what jobs hold of the others, as a service knew them: from the log alone.

The books stand at the record on which a service has decided, which may be well before the decision: what was said in
between waits until a later decision is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.features import is_in_pool
from libs.contracts.gateway import NodeDrainRequested, NodeUndrainRequested
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import AttemptFailed, JobMoved, JobPlaced, JobQueued, NodeCordoned, NodeReturned


class Server(msgspec.Struct, kw_only=True):
    """A node that has joined."""

    incarnation: int
    gpu_types: dict[int, str]
    """By the GPU's index."""
    present: bool = True
    draining: bool = False
    sick: dict[int, None] = {}
    cordoned: dict[int, None] = {}
    in_pool: bool = False

    def can_use(self, index: int) -> bool:
        """Whether a job that is no trial may be placed on the GPU."""
        if not self.present or self.draining or self.in_pool:
            return False
        return index not in self.sick and index not in self.cordoned


class Holding(msgspec.Struct, kw_only=True):
    """The attempt of a job that was placed last."""

    attempt: int
    gpu_type: str
    gpus: list[tuple[str, int]]
    """(Node, index of a GPU); none while another attempt waits."""


class Usable:
    """`take` is told of every record, `up_to` says where the books are to stand."""

    def __init__(self) -> None:
        self._ahead: deque[tuple[int, Event]] = deque()
        """(offset, event) of what the books do not say yet."""
        self._servers: dict[str, Server] = {}
        self._holdings: dict[str, Holding] = {}

    def take(self, event: Event, offset: int) -> None:
        """The next record of control."""
        if type(event) in _HANDLERS:
            self._ahead.append((offset, event))

    def up_to(self, offset: int) -> None:
        """Let the books say what is on the log up to there."""
        while self._ahead and self._ahead[0][0] <= offset:
            event = self._ahead.popleft()[1]
            _HANDLERS[type(event)](self, event)

    def gpus(self, gpu_type: str) -> int:
        """GPUs of the type that jobs may have; 0 also where the type is not known."""
        return sum(
            of_type == gpu_type and server.can_use(index)
            for server in self._servers.values()
            for index, of_type in server.gpu_types.items()
        )

    def type_of(self, job_id: str, granted: str) -> str:
        """The type for which the job counts: where it was placed last, else that of its grant."""
        holding = self._holdings.get(job_id)
        return holding.gpu_type if holding is not None and holding.gpu_type else granted

    def lost(self, job_id: str, granted_gpus: int) -> int:
        """How many GPUs the job holds that no other could be placed on; a trial in the pool has lost nothing."""
        holding = self._holdings.get(job_id)
        if holding is None:
            return 0
        in_trial = len(holding.gpus) < granted_gpus
        return sum(self._is_lost(node_id, index, in_trial) for node_id, index in holding.gpus)

    def _is_lost(self, node_id: str, index: int, in_trial: bool) -> bool:
        server = self._servers.get(node_id)
        return server is None or not (server.can_use(index) or (in_trial and server.in_pool))

    def _joined(self, event: NodeJoined) -> None:
        known = self._servers.get(event.node_id)
        self._servers[event.node_id] = Server(
            incarnation=event.incarnation,
            gpu_types={gpu.index: gpu.gpu_type for gpu in event.gpus},
            draining=known is not None and known.draining,
            cordoned=known.cordoned if known is not None else {},
            in_pool=is_in_pool(event.features),
        )

    def _gone(self, event: NodeLost | NodeLeft | NodeLeaving) -> None:
        server = self._servers.get(event.node_id)
        if server is not None and event.incarnation >= server.incarnation:
            server.present = False

    def _drained(self, event: NodeDrainRequested | NodeUndrainRequested) -> None:
        if event.node_id in self._servers:
            self._servers[event.node_id].draining = isinstance(event, NodeDrainRequested)

    def _health(self, event: GpuUnhealthy | GpuRecovered) -> None:
        if (server := self._servers.get(event.node_id)) is not None:
            _mark(server.sick, [event.index], isinstance(event, GpuUnhealthy))

    def _cordoned(self, event: NodeCordoned | NodeReturned) -> None:
        if (server := self._servers.get(event.node_id)) is not None:
            _mark(server.cordoned, event.gpu_indices, isinstance(event, NodeCordoned))

    def _placed(self, event: JobPlaced | JobMoved) -> None:
        gpus = [(task.node_id, index) for task in event.gang for index in task.gpu_indices]
        node_id, index = gpus[0]
        server = self._servers.get(node_id)
        gpu_type = server.gpu_types.get(index, "") if server is not None else ""
        if server is not None and server.in_pool:  # it counts for what its gang is granted
            known = self._holdings.get(event.job_id)
            gpu_type = known.gpu_type if known is not None else ""
        self._holdings[event.job_id] = Holding(attempt=event.attempt, gpu_type=gpu_type, gpus=gpus)

    def _queued(self, event: JobQueued) -> None:
        holding = self._holdings.get(event.job_id)
        if event.returns_to_quota and not event.suspended:
            self._over(event)
        elif holding is not None and event.attempt > holding.attempt:
            holding.gpus = []

    def _over(self, event: Event) -> None:
        self._holdings.pop(event.subject, None)


def _mark(marked: dict[int, None], indices: Iterable[int], so: bool) -> None:
    for index in indices:
        marked.pop(index, None)
        if so:
            marked[index] = None


_HANDLERS: dict[type[Event], Any] = {
    NodeJoined: Usable._joined,
    **dict.fromkeys((NodeLost, NodeLeft, NodeLeaving), Usable._gone),
    **dict.fromkeys((NodeDrainRequested, NodeUndrainRequested), Usable._drained),
    **dict.fromkeys((GpuUnhealthy, GpuRecovered), Usable._health),
    **dict.fromkeys((NodeCordoned, NodeReturned), Usable._cordoned),
    **dict.fromkeys((JobPlaced, JobMoved), Usable._placed),
    JobQueued: Usable._queued,
    **dict.fromkeys((AttemptFailed, *TERMINAL), Usable._over),
}
