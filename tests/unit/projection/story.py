"""A fold over events that are said one after the other."""

from __future__ import annotations

import pytest

from libs.contracts.agent import JobExited, JobStarted, NodeJoined
from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo, PortRange, TaskPlacement, TaskRef
from libs.contracts.envelope import Envelope, Record
from libs.contracts.gateway import JobArrived
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import JobPlaced
from libs.contracts.quota import QuotaGranted
from libs.contracts.read_models import GpuRow, JobRow, NodeRow, TenantRow
from libs.contracts.reasons import Reason
from services.projection.core import Rows, apply


class Story:
    """Says events; each stands one second after the one before."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.offset = 0

    def says(self, *events: Event) -> Story:
        for event in events:
            envelope = Envelope(id=f"e{self.offset}", source=event.owner, time_s=float(self.offset), event=event)
            apply(
                self.rows,
                Record(
                    topic="control", partition=0, offset=self.offset, appended_at_s=self.offset + 0.5, envelope=envelope
                ),
            )
            self.offset += 1
        return self

    def job(self, job_id: str = "j") -> JobRow:
        row = self.rows.get(JobRow, job_id)
        assert row is not None
        return row

    def node(self, node_id: str = "n1") -> NodeRow:
        row = self.rows.get(NodeRow, node_id)
        assert row is not None
        return row

    def tenant(self, name: str = "vision") -> TenantRow:
        row = self.rows.get(TenantRow, name)
        assert row is not None
        return row

    def held_by(self, job_id: str = "j") -> list[str]:
        """GPUs that the job holds."""
        return [gpu.id for gpu in self.rows.all(GpuRow) if gpu.job_id == job_id]

    def two_nodes(self) -> Story:
        return self.says(joined("n1"), joined("n2"))

    def granted(self, job_id: str = "j", gpus: int = 2) -> Story:
        return self.says(arrived(job_id, gpus), grant(job_id, gpus))

    def running(self, job_id: str = "j") -> Story:
        """One GPU on each of two nodes, both tasks started."""
        return (
            self.two_nodes()
            .granted(job_id)
            .says(placed(job_id), started("n1", job_id=job_id), started("n2", job_id=job_id))
        )


def reason(code: str = "Because", message: str = "because") -> Reason:
    return Reason(code=code, message=message)


def joined(node_id: str, *, incarnation: int = 1, gpus: int = 2, tasks: list[TaskRef] | None = None) -> NodeJoined:
    return NodeJoined(
        node_id=node_id,
        incarnation=incarnation,
        address="10.0.0.1",
        rack="r1",
        gpus=[GpuInfo(index=i, gpu_type="v100", memory_bytes=1 << 30) for i in range(gpus)],
        tasks=tasks or [],
        rendezvous_ports=PortRange(first=1, last=9),
        virtual=True,
    )


def arrived(job_id: str = "j", gpus: int = 2, **spec: object) -> JobArrived:
    request = GpuRequest(count=gpus)
    made = JobSpec(**{"name": "resnet", "command": ["python"], "gpus": request, "tenant": "vision", **spec})  # type: ignore[arg-type]
    return JobArrived(job_id=job_id, spec=made, submitted_by="alice")


def grant(job_id: str = "j", gpus: int = 2, attempt: int = 1) -> QuotaGranted:
    return QuotaGranted(job_id=job_id, attempt=attempt, tenant="vision", gpus=gpus, reason=reason("WithinQuota"))


def placed(job_id: str = "j", attempt: int = 1) -> JobPlaced:
    gang = [
        TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0),
        TaskPlacement(node_id="n2", gpu_indices=[0], first_rank=1),
    ]
    return JobPlaced(job_id=job_id, attempt=attempt, gang=gang, reason=reason("Consolidated"))


def started(node_id: str, *, attempt: int = 1, job_id: str = "j") -> JobStarted:
    return JobStarted(job_id=job_id, attempt=attempt, node_id=node_id, pid=1)


def exited(node_id: str, code: int | None = 0, *, attempt: int = 1, job_id: str = "j") -> JobExited:
    return JobExited(job_id=job_id, attempt=attempt, node_id=node_id, exit_code=code, signal=None, outcome="exited")


@pytest.fixture
def story() -> Story:
    return Story()
