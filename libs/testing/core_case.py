"""Feeds one core with events, by hand, and checks its state after every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from libs.contracts import wire
from libs.contracts.agent import NodeJoined
from libs.contracts.base import Event, Topic
from libs.contracts.cluster import GpuInfo, PortRange, TaskRef
from libs.contracts.envelope import Envelope, Record
from libs.contracts.gateway import JobArrived
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.runtime import TimerFired
from libs.inspect.refusing import refusing
from libs.kernel.ids import request_id
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.testing.purity import watched

E = TypeVar("E", bound=Event)


class CoreCase:
    """One service's core at a virtual time.

    `give` returns what the core decided; `all` keeps everything it ever decided, in order. An event that is impossible
    in the core's state raises with the story of its subject.
    """

    def __init__(self, service: Service[Any]) -> None:
        self.log: list[Record] = []
        """What would stand on control: what was given, and what was decided on it."""
        self.replica = Replica(watched(service), refusing(lambda: self.log))
        self.now_s = 0.0
        self.all: list[Event] = []
        self._given = 0

    def give(self, event: Event, *, at: float | None = None) -> list[Event]:
        """Let the core take one event, at time `at` (default: the time of the event before)."""
        self.now_s = self.now_s if at is None else at
        self._given += 1
        # As a core gets it from the log: where a number should be a float, 1 is 1.0.
        event = wire.decode_data(event.wire_type, wire.encode_data(event))
        envelope = Envelope(id=request_id("test", str(self._given)), source=event.owner, time_s=self.now_s, event=event)
        self._append(envelope)
        outputs = self.replica.take(envelope)
        for output in outputs:
            self._append(output)
        self.replica.check()
        events = [output.event for output in outputs]
        self.all += events
        return events

    def _append(self, envelope: Envelope) -> None:
        if envelope.event.topic is Topic.CONTROL:
            self.log.append(
                Record(
                    topic=Topic.CONTROL,
                    partition=0,
                    offset=len(self.log),
                    appended_at_s=envelope.time_s,
                    envelope=envelope,
                )
            )

    def wake(self) -> list[Event]:
        """Let the time pass until the core's next wake-up."""
        due_s = self.replica.next_wakeup
        assert due_s is not None, "the core has not asked to be woken"
        return self.give(TimerFired(service=self.replica.service.name, due_s=due_s), at=due_s)

    def decided(self, cls: type[E]) -> list[E]:
        """Everything of one type that was decided so far."""
        return [event for event in self.all if isinstance(event, cls)]


def only(events: list[Event], cls: type[E]) -> E:
    """The one event of this type."""
    found = [event for event in events if isinstance(event, cls)]
    assert len(found) == 1, f"expected one {cls.__name__}, got {[type(e).__name__ for e in events]}"
    return found[0]


def node(
    node_id: str,
    gpus: int,
    *,
    gpu_type: str = "v100",
    rack: str = "r1",
    incarnation: int = 1,
    tasks: list[TaskRef] | None = None,
    remaps: bool = False,
    cpus: int = 0,
    memory_bytes: int = 0,
    features: Sequence[str] = (),
) -> NodeJoined:
    """A node with GPUs of one type."""
    return NodeJoined(
        node_id=node_id,
        incarnation=incarnation,
        address=f"{node_id}.test",
        rack=rack,
        gpus=[GpuInfo(index=i, gpu_type=gpu_type, memory_bytes=16 << 30) for i in range(gpus)],
        tasks=tasks or [],
        rendezvous_ports=PortRange(first=29500, last=29509),
        virtual=True,
        remaps=remaps,
        cpus=cpus,
        memory_bytes=memory_bytes,
        features=list(features),
    )


def arrival(job_id: str, gpus: int | GpuRequest = 1, **fields: Any) -> JobArrived:
    """A job that wants so many GPUs; further fields are the spec's."""
    request = gpus if isinstance(gpus, GpuRequest) else GpuRequest(count=gpus)
    spec = JobSpec(name=job_id, command=["python", "train.py"], gpus=request, **fields)
    return JobArrived(job_id=job_id, spec=spec, submitted_by="test")
