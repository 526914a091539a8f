"""Placement with guests: short cuts through what quota, agents and introspection say about them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import JobSuspended
from libs.contracts.base import Event
from libs.contracts.gateway import PolicyChanged
from libs.contracts.introspection import GpuLoadChanged, JobProfiled
from libs.contracts.jobs import JobClass
from libs.contracts.placement import AllocationComputed, JobPlaced, TimeSliceStarted
from libs.contracts.quota import JobUpgraded, OpportunityGranted, UpgradeDeclined
from libs.testing.core_case import arrival, node
from tests.unit.placement.placement_case import SAID, PlacementCase

GIB = 1 << 30


class GuestsCase(PlacementCase):
    """`GuestsCase(n1=4)`: nodes that scale what their tasks have, unless said otherwise; GPUs of 16 GiB."""

    def __init__(self, policy: str = "antman", guests: str = "antman", scales: bool = True, **nodes: int) -> None:
        super().__init__()
        for node_id, gpus in nodes.items():
            joined = node(node_id, gpus, remaps=True)
            if scales:
                joined = replace(joined, scales_memory="all", scales_compute=True, spill_bytes=64 * GIB)
            self.give(joined)
        self.policy(policy, guests)

    def give(self, event: Event, *, at: float | None = None) -> list[Event]:
        """As it is given, and with it what has been computed: the rounds read their own answers back."""
        said = super().give(event, at=at)
        for computed in [each for each in said if isinstance(each, AllocationComputed)]:
            said = said + self.give(computed)
        return said

    def policy(self, name: str, guests: str = "antman") -> list[Event]:
        return self.give(PolicyChanged(policy=name, requested_by="op", guests=guests))

    def automatic(self, job_id: str, gpus: int = 1, **spec: Any) -> list[Event]:
        """A guest that may become the owner of its GPUs."""
        return self.guest(job_id, gpus, job_class=JobClass.AUTOMATIC, **spec)

    def guest(
        self, job_id: str, gpus: int = 1, job_class: JobClass = JobClass.OPPORTUNISTIC, **spec: Any
    ) -> list[Event]:
        """Arrival, admission and the grant of an opportunity."""
        self.give(arrival(job_id, gpus, job_class=job_class, **spec))
        self.give(JobAdmitted(job_id=job_id, reason=SAID))
        tenant = spec.get("tenant", "default")
        return self.give(OpportunityGranted(job_id=job_id, attempt=1, tenant=tenant, gpus=gpus, reason=SAID))

    def load(self, index: int, ratio: float, node_id: str = "n1", at: float | None = None) -> list[Event]:
        event = GpuLoadChanged(node_id=node_id, index=index, utilisation_ratio=ratio, window_s=10.0)
        return self.give(event, at=self.now_s if at is None else at)

    def profile(self, job_id: str, *, utilisation: float = 0.3, peak_bytes: int = GIB, attempt: int = 1) -> list[Event]:
        profiled = JobProfiled(
            job_id=job_id,
            attempt=attempt,
            window_start_s=self.now_s,
            window_s=5.0,
            minibatches_total=10,
            rate_per_s=1.0,
            loss=None,
            memory_peak_bytes=peak_bytes,
            memory_min_bytes=0,
            gpu_utilisation_ratio=utilisation,
        )
        return self.give(profiled)

    def still(self, job_id: str, node_id: str = "n1", *, parked: bool = True, attempt: int = 1) -> list[Event]:
        return self.give(JobSuspended(job_id=job_id, attempt=attempt, node_id=node_id, parked=parked))

    def upgrade(self, job_id: str, gpus: int = 1, attempt: int = 1, tenant: str = "default") -> list[Event]:
        return self.give(JobUpgraded(job_id=job_id, attempt=attempt, tenant=tenant, gpus=gpus, reason=SAID))

    def decline(self, job_id: str, attempt: int = 1) -> list[Event]:
        return self.give(UpgradeDeclined(job_id=job_id, attempt=attempt, reason=SAID))

    def placement(self, job_id: str) -> JobPlaced:
        """The job's last placement."""
        return [event for event in self.decided(JobPlaced) if event.job_id == job_id][-1]

    @property
    def suspended(self) -> list[str]:
        """Jobs in the order in which they were told to stand still."""
        return [job_id for event in self.decided(TimeSliceStarted) for job_id in event.suspended]
