"""A placement core with short cuts through the events that other services would say."""

from __future__ import annotations

from typing import Any

from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import JobPlaced
from libs.contracts.quota import QuotaGranted
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, arrival, node
from services.placement.service import SERVICE

SAID = Reason(code="Test", message="said by the test")


class PlacementCase(CoreCase):
    """Placement with some nodes: `PlacementCase(n1=4, n2=4)`."""

    def __init__(self, **nodes: int) -> None:
        super().__init__(SERVICE)
        for node_id, gpus in nodes.items():
            self.give(node(node_id, gpus))

    def submit(self, job_id: str, gpus: int | GpuRequest = 1, *, at: float | None = None, **spec: Any) -> list[Event]:
        """Arrival, admission and grant in one go; returns what the grant led to."""
        arrived = arrival(job_id, gpus, **spec)
        self.give(arrived, at=at)
        self.give(JobAdmitted(job_id=job_id, reason=SAID))
        return self.grant(job_id, 1, arrived.spec.gpus.count)

    def grant(self, job_id: str, attempt: int, gpus: int = 1) -> list[Event]:
        return self.give(QuotaGranted(job_id=job_id, attempt=attempt, tenant="default", gpus=gpus, reason=SAID))

    def start(self, job_id: str, node_id: str = "n1", attempt: int = 1) -> list[Event]:
        return self.give(JobStarted(job_id=job_id, attempt=attempt, node_id=node_id, pid=1))

    def exit(
        self,
        job_id: str,
        node_id: str = "n1",
        *,
        attempt: int = 1,
        code: int | None = 0,
        signal: int | None = None,
        outcome: str = "exited",
        at: float | None = None,
    ) -> list[Event]:
        event = JobExited(
            job_id=job_id, attempt=attempt, node_id=node_id, exit_code=code, signal=signal, outcome=outcome
        )
        return self.give(event, at=at)

    def rejoin(self, node_id: str, gpus: int, tasks: list[tuple[str, int]], incarnation: int = 2) -> list[Event]:
        refs = [TaskRef(job_id=job_id, attempt=attempt) for job_id, attempt in tasks]
        return self.give(node(node_id, gpus, incarnation=incarnation, tasks=refs))

    @property
    def placed(self) -> list[str]:
        """Jobs in the order in which they were placed."""
        return [event.job_id for event in self.decided(JobPlaced)]

    def where(self, job_id: str) -> dict[str, list[int]]:
        """{node: GPU indices} of the job's last placement."""
        last = [event for event in self.decided(JobPlaced) if event.job_id == job_id][-1]
        return {task.node_id: task.gpu_indices for task in last.gang}
