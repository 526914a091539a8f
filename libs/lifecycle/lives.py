"""The lives of all jobs of a control log, folded along."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.agent import NodeJoined, NodeLeft
from libs.contracts.base import Event
from libs.contracts.gateway import JobArrived
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import TimeSliceStarted
from libs.lifecycle.books import Attempt, Holding
from libs.lifecycle.fold import HANDLERS, fold
from libs.lifecycle.guards import jobs_of_slice
from libs.lifecycle.life import Life, begin
from libs.lifecycle.moment import At

Closed = list[Attempt | Holding]
_OF_NODES = (NodeJoined, NodeLost, NodeLeft)


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
        closed: Closed = []
        if isinstance(event, JobArrived):
            # A second arrival of an id changes nothing: the first one counts.
            if event.job_id not in self.jobs:
                self.jobs[event.job_id] = self._live[event.job_id] = begin(event, time_s)
        elif type(event) in HANDLERS:
            for life in self._concerned(event):
                self._changes += 1
                at = At(time_s=time_s, number=self._changes, gpu_types=self._gpu_types, closed=closed)
                if fold(life, event, at) and life.has_ended:
                    del self._live[life.job_id]
        return closed

    def open(self) -> Closed:
        """What has not come to its end, in the order in which it began."""
        holdings = [life.books.holding for life in self._live.values() if life.books.holding is not None]
        placed = [life.books.attempt for life in self._live.values() if life.books.is_placed]
        found: Closed = [*holdings, *(attempt for attempt in placed if attempt is not None)]
        return sorted(found, key=lambda each: each.began)

    def _concerned(self, event: Event) -> Iterable[Life]:
        """The lives that the event is about, names, or has a node of, if they are known."""
        if isinstance(event, _OF_NODES):
            return self._with_task_on(event)
        named = jobs_of_slice(event) if isinstance(event, TimeSliceStarted) else [event.subject]
        return [self.jobs[job_id] for job_id in named if job_id in self.jobs]

    def _with_task_on(self, event: NodeJoined | NodeLost | NodeLeft) -> list[Life]:
        """A loss that is told behind the return of the node is of an earlier start of its agent, and takes nothing."""
        if isinstance(event, NodeJoined):
            self._incarnations[event.node_id] = event.incarnation
            self._gpu_types[event.node_id] = {gpu.index: gpu.gpu_type for gpu in event.gpus}
        elif event.incarnation < self._incarnations.get(event.node_id, 0):
            return []
        return [life for life in self._live.values() if event.node_id in life.tasks]
