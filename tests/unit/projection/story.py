"""A read model in memory, and events said to it one after the other."""

from __future__ import annotations

from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Envelope, Record
from libs.contracts.placement import JobPlaced
from libs.contracts.quota import QuotaGranted
from libs.contracts.read_models import GpuRow, JobRow, NodeRow, TenantRow
from libs.contracts.reasons import Reason
from libs.testing.core_case import arrival, node
from services.projection.core import Rows, apply


class Story:
    """Says events; each stands one second after the one before."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.records: list[Record] = []

    @property
    def offset(self) -> int:
        """Where the next event will stand."""
        return len(self.records)

    def says(self, *events: Event) -> Story:
        for event in events:
            time_s = float(self.offset)
            envelope = Envelope(id=f"e{self.offset}", source=event.owner, time_s=time_s, event=event)
            record = Record(
                topic="control", partition=0, offset=self.offset, appended_at_s=time_s + 0.5, envelope=envelope
            )
            apply(self.rows, record)
            self.records.append(record)
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
        return self.says(node("n1", 2), node("n2", 2))

    def granted(self, job_id: str = "j", gpus: int = 2) -> Story:
        return self.says(arrival(job_id, gpus, tenant="vision"), grant(job_id, gpus))

    def running(self, job_id: str = "j") -> Story:
        """One GPU on each of two nodes, both tasks started."""
        return (
            self.two_nodes()
            .granted(job_id)
            .says(placed(job_id), started("n1", job_id=job_id), started("n2", job_id=job_id))
        )


def reason(code: str = "Because", message: str = "because") -> Reason:
    return Reason(code=code, message=message)


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
