"""A mechanism over a cell that is made by hand: no other service, no agents, no other mechanism, a fake lifecycle."""

from __future__ import annotations

from typing import Any

from libs.contracts.base import Event
from libs.contracts.cluster import PortRange
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import (
    JobPlaced,
    JobPreempted,
    JobQueued,
    ResumedJob,
    TimeSliceStarted,
)
from libs.kernel.machine import Turn
from services.placement.core.cell import Cell, Slice
from services.placement.core.cluster.nodes import Gpu, Node
from services.placement.core.jobs import Job, Phase
from services.placement.core.lifecycle.plan import carry_out
from services.placement.core.lifecycle.queue import dequeue, enqueue, knows
from services.placement.core.machine import machine
from services.placement.core.mechanism import Mechanism, Moment
from services.placement.core.state import State

PORTS = PortRange(first=1, last=9)


class Alone:
    """`Alone(RoundsMechanism(), "max_min_fairness", n1=2)`: one mechanism, nodes, and jobs that are simply there."""

    def __init__(self, mechanism: Mechanism, policy: str, **gpus: int) -> None:
        self.mechanism, self.now_s = mechanism, 0.0
        self.cell: Cell = State(policy=policy)
        for node_id, count in gpus.items():
            node = Node(
                node_id=node_id,
                incarnation=1,
                address=node_id,
                rack="r",
                gpus=[Gpu(gpu_type="v100") for _ in range(count)],
                healthy={"v100": list(range(count))},
                ports=PORTS,
                next_port=PORTS.first,
            )
            self.cell.nodes[node_id] = node

    def queue(self, job_id: str, gpus: int = 1, **spec: Any) -> Job:
        """A job that may be placed."""
        made = JobSpec(name=job_id, command=["true"], gpus=GpuRequest(count=gpus), **spec)
        seq = len(self.cell.jobs)
        job = Job(job_id=job_id, spec=made, seq=seq, priority=0, phase=Phase.QUEUED, attempt=1)
        job.queued_since_s = self.now_s
        self.cell.jobs[job_id] = job
        enqueue(self.cell, job)
        return job

    def step(self, *, after_s: float = 0.0) -> list[Event]:
        """What the mechanism says after so much time."""
        self.now_s += after_s
        self.mechanism.time_passed(self.cell, self.now_s)
        turn = Turn(self.cell, self._take, self.now_s, "cause")
        carry_out(self.cell, self.mechanism.step(self.cell, Moment(self.now_s, "cause")), turn)
        assert not turn.refused
        return turn.outputs

    def end(self, job_id: str) -> None:
        """The job has ended, and its GPUs are free."""
        job = self.cell.jobs[job_id]
        dequeue(self.cell, job)
        self.mechanism.leaving(self.cell, job, self.now_s)
        self.cell.release(job, job.gang)
        self.cell.give(job, [])
        self.mechanism.ended(self.cell, job)
        del self.cell.jobs[job_id]

    @property
    def running(self) -> list[str]:
        """The jobs that hold GPUs."""
        return [job.job_id for job in self.cell.jobs.values() if job.phase is Phase.ACTIVE and not job.suspended]

    def _take(self, cell: Cell, event: Event, now_s: float) -> None:
        """The fake lifecycle: jobs do at once what is said of them. The mechanism's own events are its own."""
        match event:
            case JobPlaced():
                job = cell.jobs[event.job_id]
                dequeue(cell, job)
                job.phase, job.gpu_type = Phase.ACTIVE, "v100"
                cell.give(job, event.gang)
                cell.hold(job, job.gang)
                self.mechanism.placed(cell, job, now_s)
                self.mechanism.begun(cell, job, now_s)
            case JobQueued():
                knows(cell, cell.jobs[event.job_id], event.reason.code)
            case JobPreempted():
                cell.jobs[event.job_id].stopping = True
            case TimeSliceStarted():
                cell.begin_slice(event.server, Slice(number=event.number, ends_s=event.ends_s))
                for job_id in event.suspended:
                    self._suspend(cell.jobs[job_id])
                for resumed in event.resumed:
                    self._resume(cell.jobs[resumed.job_id], resumed)
            case _:
                machine.evolve(cell, event, now_s)

    def _suspend(self, job: Job) -> None:
        self.mechanism.suspending(self.cell, job, self.now_s)
        self.cell.release(job, job.gang)
        self.cell.suspend(job)
        self.mechanism.stands_still(self.cell, job, self.now_s)

    def _resume(self, job: Job, resumed: ResumedJob) -> None:
        self.cell.give(job, resumed.gang)
        self.cell.suspend(job, suspended=False)
        self.cell.hold(job, job.gang)
        self.mechanism.resumed(self.cell, job, self.now_s)
        self.mechanism.begun(self.cell, job, self.now_s)
