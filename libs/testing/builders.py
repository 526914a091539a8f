"""Fluent builders for tests: job specs, envelopes and records, and whole simulated scenarios.

log = Scenario().servers(v100=8).job("a", gpus=4, runs_s=100).cancel("a", at=50).run(SERVICES)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import msgspec

from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.gateway import (
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
    NodeDrainRequested,
    NodeUndrainRequested,
    SettingChanged,
    TenantConfigured,
)
from libs.contracts.jobs import ElasticRange, GpuRequest, JobSpec, SimulatedWork
from libs.contracts.placement import LaunchTask, StopTask
from libs.contracts.reasons import Number, Reason
from libs.inspect.logs import Log, simulated
from libs.kernel.ids import request_id
from libs.kernel.service import Service
from libs.sim.clusters import Cluster, Server, cluster_of
from libs.sim.leases import Lease
from libs.sim.options import Fault, FaultKind, Options
from libs.sim.simulation import Simulation
from libs.sim.workloads import Planned, Workload, arrival

OPERATOR = "ada"
"""The user that makes the requests of tests."""


class Spec:
    """Builds a job spec; a job on one GPU that takes 60 s, unless told otherwise."""

    def __init__(self, name: str = "train") -> None:
        self._fields: dict[str, Any] = {"name": name, "command": ["python", "train.py"]}
        self._gpus: dict[str, Any] = {"count": 1}
        self._work: dict[str, Any] = {"duration_s": 60.0}

    def gpus(self, count: int, *types: str, max_nodes: int | None = None) -> Self:
        """GPUs of the gang, and which types will do."""
        self._gpus = {"count": count, "types": list(types), "max_nodes": max_nodes}
        return self

    def elastic(self, least: int, most: int) -> Self:
        """So many GPUs it may have."""
        self._fields["elastic"] = ElasticRange(min_gpus=least, max_gpus=most)
        return self

    def tenant(self, name: str) -> Self:
        """The tenant of the job."""
        self._fields["tenant"] = name
        return self

    def retries(self, count: int) -> Self:
        """Failed attempts that are repeated."""
        self._fields["max_retries"] = count
        return self

    def priority(self, priority: int) -> Self:
        """Higher goes first."""
        self._fields["priority"] = priority
        return self

    def runs(self, duration_s: float) -> Self:
        """How long a simulated node needs for it."""
        self._work = {"duration_s": duration_s}
        return self

    def trains(self, model: str, batch_size: int | None, steps: float) -> Self:
        """Work in steps, at the rates of a throughput table."""
        self._work = {"model": model, "batch_size": batch_size, "total_steps": steps}
        return self

    def with_(self, **fields: Any) -> Self:
        """Any other fields of the spec."""
        self._fields |= fields
        return self

    def build(self) -> JobSpec:
        """The spec."""
        return JobSpec(gpus=GpuRequest(**self._gpus), simulated=SimulatedWork(**self._work), **self._fields)


def envelope(event: Event, number: int = 0, *, at: float = 0.0, source: str = "", cause: str = "") -> Envelope:
    """An event as its owner would have appended it; `number` makes the id."""
    return Envelope(
        id=request_id("test", str(number)),
        source=source or event.owner,
        time_s=at,
        event=event,
        causation_id=cause,
    )


def records(events: Iterable[Event | Envelope], *, step_s: float = 1.0) -> list[Record]:
    """A control log of these events, `step_s` apart; envelopes are taken as they are."""
    made = []
    for offset, item in enumerate(events):
        wrapped = item if isinstance(item, Envelope) else envelope(item, offset, at=offset * step_s)
        made.append(
            Record(topic=Topic.CONTROL, partition=0, offset=offset, appended_at_s=wrapped.time_s, envelope=wrapped)
        )
    return made


def launch(job_id: str, *command: str, gpus: int = 1, **changes: Any) -> LaunchTask:
    """An order to run a command on one node."""
    order = LaunchTask(
        node_id="n1",
        job_id=job_id,
        attempt=1,
        name=job_id,
        tenant="default",
        command=list(command),
        env={},
        working_dir=None,
        code_id=None,
        gpu_indices=list(range(gpus)),
        launcher="ranks",
        first_rank=0,
        world_size=gpus,
        node_rank=0,
        node_count=1,
        rendezvous_host=None,
        rendezvous_port=None,
        time_limit_s=None,
    )
    return msgspec.structs.replace(order, **changes)


def stop(job_id: str, grace_s: float = 5.0) -> StopTask:
    """An order to end what `launch` has begun; `grace_s`: how long the processes may take until they are killed."""
    return StopTask(node_id="n1", job_id=job_id, attempt=1, grace_s=grace_s, reason=Reason(code="Test", message=""))


class Scenario:
    """Builds and runs a simulation. Each call adds something; `run` gives the finished simulation."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._servers: tuple[Server, ...] = ()
        self._requests: list[Planned] = []
        self._faults: list[Fault] = []
        self._options = Options()

    def __repr__(self) -> str:
        """Everything that was added, for the reports of property tests."""
        servers = ", ".join(f"{server.node_id}({server.gpus}){server.pool and '!'}" for server in self._servers)
        parts = [f"servers: {servers}", f"seed: {self._seed}", str(self._options)]
        parts += [f"{planned.time_s:g} s: {planned.event}" for planned in self._requests]
        return "Scenario:\n  " + "\n  ".join(parts + [str(fault) for fault in self._faults])

    def servers(self, gpus_per_server: int = 4, /, **gpus: int) -> Self:
        """So many GPUs of each type, e.g. `servers(4, v100=8)`: nodes v100-000 and v100-001."""
        self._servers += cluster_of(gpus, gpus_per_server).servers
        return self

    def trial_pool(self, servers: int) -> Self:
        """So many of the servers until now, the last ones, are set apart for trials; at least one is not."""
        self._servers = Cluster(self._servers).with_trial_pool(min(servers, len(self._servers) - 1)).servers
        return self

    def job(
        self,
        job_id: str,
        gpus: int = 1,
        *,
        at: float = 0.0,
        runs_s: float = 60.0,
        spec: Spec | None = None,
        **fields: Any,
    ) -> Self:
        """A job that arrives; `spec` overrides the number of GPUs and the run time."""
        built = (spec or Spec(job_id).gpus(gpus).runs(runs_s)).with_(**fields).build()
        self._requests.append(arrival(at, job_id, built, OPERATOR))
        return self

    def plan(self, at: float, event: Event) -> Self:
        """Any other request."""
        self._requests.append(Planned(at, event))
        return self

    def cancel(self, job_id: str, *, at: float) -> Self:
        """A user wants the job gone."""
        return self.plan(at, JobCancelRequested(job_id=job_id, requested_by=OPERATOR))

    def pause(self, job_id: str, *, at: float, until: float | None = None) -> Self:
        """A user pauses the job, and resumes it."""
        self.plan(at, JobPauseRequested(job_id=job_id, requested_by=OPERATOR))
        return self if until is None else self.resume(job_id, at=until)

    def resume(self, job_id: str, *, at: float) -> Self:
        """A user lets the job go on."""
        return self.plan(at, JobResumeRequested(job_id=job_id, requested_by=OPERATOR))

    def drain(self, node_id: str, *, at: float, until: float | None = None, now: bool = True) -> Self:
        """An operator empties the node, and lets it work again."""
        self.plan(at, NodeDrainRequested(node_id=node_id, note="maintenance", requested_by=OPERATOR, now=now))
        if until is not None:
            self.plan(until, NodeUndrainRequested(node_id=node_id, requested_by=OPERATOR))
        return self

    def tenant(self, name: str, gpu_limit: int | None, *, at: float = 0.0, **share: Any) -> Self:
        """The tenant's limit, and the other fields of TenantConfigured."""
        return self.plan(at, TenantConfigured(tenant=name, gpu_limit=gpu_limit, requested_by=OPERATOR, **share))

    def setting(self, service: str, name: str, value: Number, *, at: float = 0.0) -> Self:
        """A number that a core decides by."""
        return self.plan(at, SettingChanged(service=service, name=name, value=value, requested_by=OPERATOR))

    def fault(self, kind: FaultKind, node_id: str, *, at: float, for_s: float, **more: float) -> Self:
        """Something happens to a node; `more`: other fields of the fault."""
        self._faults.append(Fault(time_s=at, node_id=node_id, kind=kind, duration_s=for_s, **more))
        return self

    @property
    def node_ids(self) -> list[str]:
        """Names of the servers, in order."""
        return [server.node_id for server in self._servers]

    @property
    def lease(self) -> Lease | None:
        """The lease of the nodes."""
        return self._options.lease

    def with_right_clocks(self) -> Scenario | None:
        """The same cell, but all of its clocks are right; None: they are here, too."""
        wrong = [fault for fault in self._faults if fault.offset_s or fault.drift_ratio]
        if not wrong:
            return None
        other = copy(self)
        other._faults = [replace(fault, offset_s=0.0, drift_ratio=0.0) for fault in self._faults]
        return other

    def options(self, **fields: Any) -> Self:
        """Options of the simulation."""
        self._options = Options(**{**_fields(self._options), **fields})
        return self

    def build(self, services: Sequence[Service[Any]]) -> Simulation:
        """The simulation, not yet run."""
        options = Options(**{**_fields(self._options), "faults": (*self._options.faults, *self._faults)})
        workload = Workload(tuple(self._requests))
        return Simulation(services, Cluster(self._servers), workload, seed=self._seed, options=options)

    def run(self, services: Sequence[Service[Any]]) -> Simulation:
        """The simulation, run to its end."""
        simulation = self.build(services)
        simulation.run()
        return simulation


def _fields(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def log_of(simulation: Simulation, cell: str = "simulated") -> Log:
    """The simulation's log, orders included, as if it had been exported at the end."""
    positions = {name: replica.next_offset for name, replica in simulation.replicas.items()}
    return simulated(cell, simulation.log.control, simulation.log.orders, positions)


def events(simulation: Simulation, *types: type[Event]) -> list[Any]:
    """The events of these types on control, in order."""
    return [e.event for e in simulation.log.control if isinstance(e.event, types)]


def altered(event: Event, **fields: Any) -> Event:
    """A copy of an event with other values."""
    return msgspec.structs.replace(event, **fields)
