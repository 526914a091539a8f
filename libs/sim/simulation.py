"""A whole cell on a virtual clock: services, gateway and nodes in one process, one thread, without a clock."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from libs.contracts import wire
from libs.contracts.catalogue import TERMINAL
from libs.contracts.envelope import Envelope, Record, not_before
from libs.contracts.gateway import OWNER as GATEWAY
from libs.contracts.gateway import JobArrived
from libs.kernel.ids import request_id
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.kernel.words import counted
from libs.lifecycle import Lives
from libs.sim.agenda import Agenda
from libs.sim.clusters import Cluster
from libs.sim.dispatch import Dispatcher, InOrder, Interleaved
from libs.sim.log import Log
from libs.sim.options import Options
from libs.sim.outcomes import Outcome, outcome_of
from libs.sim.results import result
from libs.sim.searches import Searches
from libs.sim.throughputs import NO_THROUGHPUTS, Throughputs
from libs.sim.workloads import Planned, Workload
from libs.sim.world import World

PLACEMENT = "placement"
IDLE_STEPS = 20_000
"""So many timers and background events in a row without any news of a job: the run will never end."""
LONGEST_LAG_S = 60.0
"""No service lags behind for longer while nothing else happens."""


class Stalled(Exception):
    """The run will not end by itself; the message says what keeps it going and which jobs wait."""


class Simulation:
    """One run. The same arguments give the same log, byte for byte.

    Args:
        services: the cores, in the order in which they take turns.
        cluster: the simulated servers.
        workload: what users and operators ask for, and when.
        seed: of everything that happens by chance.
        options: delays, failures, how much is kept.
        throughputs: rates of the jobs that are given in steps.
    """

    def __init__(
        self,
        services: Sequence[Service[Any]],
        cluster: Cluster,
        workload: Workload,
        *,
        seed: int = 0,
        options: Options | None = None,
        throughputs: Throughputs = NO_THROUGHPUTS,
    ) -> None:
        self.options = options or Options()
        self.cluster, self.workload, self.seed = cluster, workload, seed
        self.agenda = Agenda()
        self.world = World(cluster, self.agenda, self.options, throughputs, seed)
        self.lives, self.searches = Lives(), Searches()
        self.log = Log(self.agenda, self._appended, self.world.order, keep=self.options.keep_log)
        self.dispatcher = self._dispatcher(services)
        self.world.is_answered = lambda: not self.dispatcher.is_behind(PLACEMENT)
        self._requests = 0
        self._idle_steps = 0
        self._awaited_jobs: dict[str, None] = {}
        self.world.begin()
        self._plan_workload()

    def _dispatcher(self, services: Sequence[Service[Any]]) -> Dispatcher:
        if self.options.interleaving is None:
            return InOrder(services, self.log)
        return Interleaved(services, self.log, self.options.interleaving)

    def _plan_workload(self) -> None:
        planned = sorted(self.workload.requests, key=lambda request: request.time_s)
        for request in planned:
            self.agenda.at(request.time_s, self._accept, request)
        jobs = [request.event.job_id for request in planned if isinstance(request.event, JobArrived)]
        first, end = self.options.measure or (0, len(jobs))
        self._awaited_jobs = dict.fromkeys(jobs[first:end])
        if len(self._awaited_jobs) != len(jobs[first:end]):
            raise ValueError("two jobs of the workload have the same id")

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self.agenda.now_s

    @property
    def replicas(self) -> dict[str, Replica[Any]]:
        """{name: the service's core}, at its position on the log."""
        return self.dispatcher.replicas

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """{job id: what came of it so far}, in order of arrival; made at each call."""
        return {job_id: outcome_of(life) for job_id, life in self.lives.jobs.items()}

    def run(self, watch: Callable[[Simulation], None] | None = None) -> None:
        """Run to the end: every awaited job has ended and nothing is under way.

        Args:
            watch: called after each step, for progress bars and tests.

        Raises:
            Stalled: it would never end.
            ImpossibleEvent: a service has met an event that cannot be in its state; the message has the story of
                what the event is about.
        """
        # What is there before a run outlives it: the collector of cycles need not walk it again and again.
        gc.freeze()
        try:
            while self.advance():
                if watch is not None:
                    watch(self)
        finally:
            gc.unfreeze()
        self._settle_positions()

    def advance(self) -> bool:
        """Let the services settle, then jump to what happens next. False when the run has ended."""
        self.dispatcher.settle()
        if self._has_ended():
            return False
        timer, due_s = self.dispatcher.next_timer(), self.agenda.next_s
        if self.dispatcher.behind and self._is_far(timer, due_s):
            return True
        if timer is not None and (due_s is None or timer[0] < due_s):
            if self._beyond_horizon(timer[0]):
                return False
            self._fire(*timer)
        elif due_s is not None:
            if self._beyond_horizon(due_s):
                return False
            self.agenda.do_next()
            self._fetch_facts()
        else:
            return self.dispatcher.behind
        self._idle_steps += 1
        if self._idle_steps >= IDLE_STEPS:
            raise self._stalled(timer)
        return True

    def _is_far(self, timer: tuple[float, str] | None, due_s: float | None) -> bool:
        """Whether nothing happens for so long that services which lag read on before it."""
        following = [time_s for time_s in (timer[0] if timer is not None else None, due_s) if time_s is not None]
        return min(following, default=self.now_s) > self.now_s + LONGEST_LAG_S

    def _beyond_horizon(self, time_s: float) -> bool:
        """Whether nothing more happens before the horizon; then the clock stops there."""
        horizon_s = self.options.horizon_s
        if horizon_s is None or time_s <= horizon_s:
            return False
        self.agenda.advance_to(horizon_s)
        return True

    def _has_ended(self) -> bool:
        if self._awaited_jobs or self.dispatcher.behind:
            return False
        return self.options.measure is not None or self.agenda.awaited == 0

    def _fire(self, due_s: float, name: str) -> None:
        self.agenda.advance_to(not_before(due_s))
        self.dispatcher.fire(name, due_s, self.agenda.now_s)

    def _fetch_facts(self) -> None:
        facts = self.world.facts.fetch()
        for fact in facts:
            self.dispatcher.append(fact)

    def _accept(self, planned: Planned) -> None:
        """The gateway accepts a request: it stands on the log as if it had come over the wire."""
        event = wire.decode_data(planned.event.wire_type, wire.encode_data(planned.event))
        key = event.job_id if isinstance(event, JobArrived) else f"request/{self._requests}"
        self._requests += 1
        self.dispatcher.append(
            Envelope(id=request_id(GATEWAY, key), source=GATEWAY, time_s=self.agenda.now_s, event=event)
        )

    def _appended(self, envelope: Envelope) -> None:
        """Count what is on the control log. A job that a service has submitted is awaited as well."""
        event = envelope.event
        if isinstance(event, JobArrived):
            self.world.arrived(event)
            if envelope.source != GATEWAY:
                self._awaited_jobs[event.job_id] = None
        self.lives.take(event, envelope.time_s)
        self.searches.take(event, envelope.time_s)
        if event.subject_field == "job_id":
            self._idle_steps = 0
            if type(event) in TERMINAL:
                self._awaited_jobs.pop(event.subject, None)

    def _stalled(self, timer: tuple[float, str] | None) -> Stalled:
        waiting = ", ".join(list(self._awaited_jobs)[:5]) or "none"
        driver = f"{timer[1]} wants to be woken at {timer[0]}" if timer is not None else "only nodes come and go"
        return Stalled(
            f"nothing has happened to any job for {IDLE_STEPS} steps up to {self.now_s} s: {driver}; "
            f"{counted(len(self._awaited_jobs), 'job has', 'jobs have')} not ended ({waiting})"
        )

    def _settle_positions(self) -> None:
        """Every service has read to the end: records of no concern to a service count as read."""
        for replica in self.replicas.values():
            replica.next_offset = self.log.end

    def records(self) -> Iterator[Record]:
        """The control log, in order."""
        return self.log.records()

    def restart(self, name: str) -> None:
        """Replace a service's replica by one restored from its snapshot, as after a crash."""
        old = self.replicas[name]
        self.dispatcher.replace(name, Replica.restore(old.service, old.snapshot()))

    def result(
        self,
        *,
        policy: str,
        options: Mapping[str, Any],
        cost_per_hour: Mapping[str, float] | None = None,
        wall_s: float | None = None,
    ) -> dict[str, Any]:
        """The `simulation-result/1` document of the run so far; see `results.result`."""
        document = result(
            list(self.outcomes.values()),
            self.cluster,
            events=self.lives.events,
            policy=policy,
            options=options,
            seed=self.seed,
            simulated_s=self.now_s,
            steps_100_s={job_id: job.steps_100_s for job_id, job in self.world.jobs.items()},
            measure=self.options.measure,
            cost_per_hour=cost_per_hour,
            wall_s=wall_s,
        )
        return document | {"sweeps": self.searches.rows()} if self.searches.sweeps else document
