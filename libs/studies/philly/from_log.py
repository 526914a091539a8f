"""Jobs as a log shows them: one walk over control for their lives, one for their losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from libs.contracts.agent import NodeJoined
from libs.contracts.base import Event
from libs.contracts.envelope import Record
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.gateway import JobArrived, PolicyChanged
from libs.contracts.introspection import HostProfiled, JobProfiled
from libs.contracts.placement import JobPlaced
from libs.contracts.read_models import STATUS_BY_STATE
from libs.inspect.convergence import curves_of
from libs.inspect.logs import Log
from libs.lifecycle import Lives
from libs.lifecycle.books import Attempt, Holding
from libs.policies.table import POLICIES
from libs.studies.philly.loads import beside_small, loads_of
from libs.studies.philly.observed import Failure, Host, Load, Observed, Start, StudyJob, Use


def observed_log(log: Log, source: str) -> Observed:
    """What a log says.

    Args:
        log: from its beginning.
        source: its name, for the report.
    """
    walk = _Walk()
    for record in log.control():
        walk.take(record)
    curves = curves_of(record.envelope for record in log.control())
    return Observed(
        source=source,
        jobs=walk.jobs(),
        hosts=walk.hosts,
        curves=curves,
        starts=walk.starts,
        loads=walk.loads(),
        beside_small_ratio=walk.beside_small_ratio(),
    )


class _Walk:
    """Gathers what the events of control say of jobs and servers."""

    def __init__(self) -> None:
        self.hosts: list[Host] = []
        self.starts: list[Start] = []
        self._lives = Lives()
        self._asked: dict[str, tuple[int, str]] = {}
        """{job id: (GPUs asked for, user)}."""
        self._within_quota: dict[str, bool] = {}
        self._first: dict[str, Holding] = {}
        """{job id: what it held first}."""
        self._holdings: list[Holding] = []
        self._servers: dict[str, int] = {}
        self._counts_passed = False
        """Whether the policy is in force under which placement says which waiting job another one passes."""
        self._run_s: defaultdict[str, float] = defaultdict(float)
        self._uses: defaultdict[str, list[Use]] = defaultdict(list)
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._reasons: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._now_s = 0.0

    def take(self, record: Record) -> None:
        """The next record."""
        event, self._now_s = record.envelope.event, record.envelope.time_s
        self._close(self._lives.take(event, self._now_s))
        self._look_at(event)

    def _look_at(self, event: Event) -> None:
        if isinstance(event, JobArrived):
            self._asked.setdefault(event.job_id, (event.spec.gpus.count, event.spec.user))
            queues = self._lives.jobs[event.job_id].books.queues
            if queues is not None:
                room = queues.shares.has_room(event.spec.tenant, event.spec.gpus.count)
                self._within_quota.setdefault(event.job_id, room)
        elif isinstance(event, PolicyChanged):
            self._counts_passed = event.policy in POLICIES and POLICIES[event.policy].acquires
        elif isinstance(event, JobPlaced) and self._counts_passed:
            passed_gpus, _ = self._asked.get(event.passed, (0, ""))
            self.starts.append(Start(passed_gpus, bool(event.delays)))
        elif isinstance(event, NodeJoined):
            self._servers[event.node_id] = len(event.gpus)
        elif isinstance(event, JobProfiled):
            self._use(event)
        elif isinstance(event, HostProfiled) and event.memory_bytes > 0:
            memory = event.memory_used_mean_bytes / event.memory_bytes
            self.hosts.append(Host(event.cpu_utilisation_ratio, memory))
        elif isinstance(event, FailureClassified):
            self._reasons[event.job_id][event.attempt] = event.failure

    def _use(self, event: JobProfiled) -> None:
        life = self._lives.jobs.get(event.job_id)
        if event.gpu_utilisation_ratio is not None and life is not None:
            servers = len({task.node_id for task in life.gang})
            self._uses[event.job_id].append(Use(event.gpu_utilisation_ratio, event.window_s, servers))

    def _close(self, closed: Iterable[Attempt | Holding]) -> None:
        for each in closed:
            if isinstance(each, Attempt):
                self._attempts[each.job_id, each.number] = each
            else:
                self._first.setdefault(each.job_id, each)
                self._holdings.append(each)
                self._run_s[each.job_id] += (self._now_s if each.end_s is None else each.end_s) - each.begin_s

    def jobs(self) -> list[StudyJob]:
        """All of them, in order of arrival; what still runs counts up to the end of the log."""
        self._close(self._lives.open())
        return [self._job(job_id) for job_id in self._lives.jobs]

    def loads(self) -> list[Load]:
        """Over time; after `jobs`."""
        return loads_of(self._holdings, self._servers, self._now_s)

    def beside_small_ratio(self) -> float | None:
        """See `Observed`; after `jobs`."""
        return beside_small(self._holdings, self._now_s)

    def _job(self, job_id: str) -> StudyJob:
        life = self._lives.jobs[job_id]
        gpus, user = self._asked[job_id]
        first = self._first.get(job_id)
        return StudyJob(
            job_id=job_id,
            tenant=life.tenant,
            user=user,
            gpus=gpus,
            status=STATUS_BY_STATE.get(life.state, ""),
            delay_s=None if first is None else first.begin_s - life.submitted_s,
            servers=None if first is None else len({task.node_id for task in first.gang}),
            run_s=self._run_s.get(job_id, 0.0),
            retries=life.books.retries,
            within_quota=self._within_quota.get(job_id),
            fair_share_s=life.books.fair_share_s,
            fragmentation_s=life.books.fragmentation_s,
            uses=tuple(self._uses.get(job_id, ())),
            failures=tuple(
                Failure(reason, self._runtime_s(job_id, number))
                for number, reason in sorted(self._reasons.get(job_id, {}).items())
            ),
        )

    def _runtime_s(self, job_id: str, number: int) -> float | None:
        attempt = self._attempts.get((job_id, number))
        if attempt is None:
            return None
        began = attempt.placed_s if attempt.started_s is None else attempt.started_s
        ended = attempt.released_s if attempt.ended_s is None else attempt.ended_s
        return None if ended is None else max(0.0, ended - began)
