"""The lives of all jobs of a control log, folded along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.base import Event
from libs.contracts.gateway import JobArrived, TenantConfigured
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import TimeSliceStarted
from libs.lifecycle.books import Attempt, Holding, Queues
from libs.lifecycle.fold import HANDLERS, fold
from libs.lifecycle.guards import jobs_of_slice
from libs.lifecycle.life import Life, begin
from libs.lifecycle.moment import At
from libs.lifecycle.shares import quota_of

Closed = list[Attempt | Holding]

_OF_QUOTAS = frozenset({TenantConfigured, NodeJoined, NodeLost, NodeLeft})
"""Events that change what tenants may use."""


class Lives:
    """Folds the events of control, from its beginning, into the lives of jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, Life] = {}
        """In order of arrival."""
        self.events = 0
        """So many were taken."""
        self._live: dict[str, Life] = {}
        """Those that have not ended: a node that comes or goes may have tasks of them."""
        self._incarnations: dict[str, int] = {}
        """{node id: of its agent}."""
        self._gpu_types: dict[str, dict[int, str]] = {}
        self._changes = 0
        self._queues = Queues()
        self._concerned: dict[type[Event], Callable[[Any], list[Life]]] = {
            **dict.fromkeys(HANDLERS, self._of_job),
            TimeSliceStarted: self._of_slice,
            NodeJoined: self._of_joined,
            NodeLost: self._of_gone,
            NodeLeft: self._of_gone,
        }
        """{event type: finds the lives that the event is about, names, or has a node of, if they are known}."""

    def take(self, event: Event, time_s: float) -> Closed:
        """Fold the next event.

        Args:
            event: of control; one that changes no life is counted.
            time_s: when it happened.

        Returns:
            What comes to its end with it, in order: attempts that no longer hold GPUs, stretches of time
            with one gang.
        """
        self.events += 1
        if type(event) in _OF_QUOTAS:
            self._take_quotas(event, time_s)
        closed: Closed = []
        concerned = self._concerned.get(type(event))
        if concerned is not None:
            for life in concerned(event):
                self._changes += 1
                at = At(time_s=time_s, number=self._changes, gpu_types=self._gpu_types, closed=closed)
                if fold(life, event, at) and life.finished_s is not None:
                    del self._live[life.job_id]
        elif isinstance(event, JobArrived) and event.job_id not in self.jobs:
            # A second arrival of an id changes nothing: the first one counts.
            self.jobs[event.job_id] = self._live[event.job_id] = begin(event, time_s, self._queues)
        return closed

    def _take_quotas(self, event: Event, time_s: float) -> None:
        """What tenants may use, and what there is to use."""
        shares = self._queues.shares
        if isinstance(event, TenantConfigured):
            shares.limit(event.tenant, quota_of(event), time_s)
        elif isinstance(event, NodeJoined):
            shares.node(event.node_id, len(event.gpus), time_s)
        elif isinstance(event, NodeLost | NodeLeft) and event.incarnation >= self._incarnations.get(event.node_id, 0):
            shares.node(event.node_id, 0, time_s)

    def open(self) -> Closed:
        """What has not come to its end, in the order in which it began."""
        holdings = [life.books.holding for life in self._live.values() if life.books.holding is not None]
        placed = [life.books.attempt for life in self._live.values() if life.books.is_placed]
        found: Closed = [*holdings, *(attempt for attempt in placed if attempt is not None)]
        return sorted(found, key=lambda each: each.began)

    def _of_job(self, event: Any) -> list[Life]:
        """Of an event about one job."""
        life = self.jobs.get(event.job_id)
        return [] if life is None else [life]

    def _of_slice(self, event: TimeSliceStarted) -> list[Life]:
        return [self.jobs[job_id] for job_id in jobs_of_slice(event) if job_id in self.jobs]

    def _of_joined(self, event: NodeJoined) -> list[Life]:
        self._incarnations[event.node_id] = event.incarnation
        self._gpu_types[event.node_id] = {gpu.index: gpu.gpu_type for gpu in event.gpus}
        return self._with_task_on(event.node_id)

    def _of_gone(self, event: NodeLost | NodeLeft) -> list[Life]:
        """A loss that is told behind the return of the node is of an earlier start of its agent, and takes nothing."""
        if event.incarnation < self._incarnations.get(event.node_id, 0):
            return []
        return self._with_task_on(event.node_id)

    def _with_task_on(self, node_id: str) -> list[Life]:
        return [life for life in self._live.values() if node_id in life.tasks]
