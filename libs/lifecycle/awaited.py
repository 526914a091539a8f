"""What is awaited of each job next, and of whom: the books of the watch for jobs that are left standing (`stuck.py`).

A witness of its own, as conservation is: it knows nothing of placement's books, and not those of the one fold of lives.
It keeps from the events alone who owes the next word about a job, what agents have been told to do with its tasks and
have not reported, and which GPUs are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from libs.contracts.admission import JobAdmitted, JobHeldBack, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import (
    GpuRecovered,
    GpuUnhealthy,
    JobExited,
    JobResumed,
    JobSettingUp,
    JobStarted,
    JobSuspended,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
)
from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import RetryScheduled
from libs.contracts.features import OUTSIDE_POOLS, is_in_pool, missing, other_than
from libs.contracts.gateway import (
    JobArrived,
    JobCancelRequested,
    JobPauseRequested,
    JobResumeRequested,
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
)
from libs.contracts.introspection import JobRecovered, JobStuck, NodeLost
from libs.contracts.jobs import GpuRequest
from libs.contracts.placement import (
    AttemptFailed,
    DestinationReserved,
    GangReleased,
    GangReserved,
    JobMoved,
    JobPlaced,
    JobPreempted,
    JobQueued,
    MoveAbandoned,
    NodeCordoned,
    NodeReturned,
    Role,
    TimeSliceStarted,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.quota import JobUpgraded, OpportunityGranted, QuotaDeferred, QuotaGranted, UpgradeDeclined
from libs.contracts.reasons import CAUSES, PendingReason

ADMISSION, QUOTA, PLACEMENT, FAILURES = "admission", "quota", "placement", "failure_analysis"
STUCK = "stuck"
"""Of JobRecovered: which episode is over."""


class Server(msgspec.Struct, kw_only=True):
    """The GPUs of a node that has joined."""

    number: int
    """Of the last event that has changed what is free here."""
    incarnation: int
    gpu_types: list[str]
    features: list[str] = []
    remaps: bool = False
    present: bool = True
    left: bool = False
    """Not expected back, as a node that is lost is."""
    draining: bool = False
    sick: dict[int, None] = {}
    cordoned: dict[int, None] = {}
    holders: dict[int, dict[str, None]] = {}
    """{index: jobs but guests that have the GPU, or to which it is promised by name}."""

    def free(self, gpu_type: str) -> list[int]:
        """Indices of the GPUs of this type that a job could be given, ascending."""
        if not self.present or self.draining:
            return []
        closed = (self.sick, self.cordoned)
        return [
            index
            for index, each in enumerate(self.gpu_types)
            if each == gpu_type and not self.holders.get(index) and not any(index in those for those in closed)
        ]


class Awaited(msgspec.Struct, kw_only=True):
    """How far a job that has not ended is, by what was said of it."""

    job_id: str
    request: GpuRequest
    needs: list[str] = []
    is_host_bound: bool = False
    number: int
    """Of the last event that has brought it on: the same as long as it stands."""
    extra_s: float = 0.0
    """So much longer than the bound it may stand, by that event."""
    word: str = ADMISSION
    """The service that is to say what follows; empty: none owes a word."""
    attempt: int = 0
    on_trial: bool = False
    seeks_seat: bool = False
    """As a guest."""
    queued: bool = False
    """It may be placed, and is not."""
    cause: str = ""
    """What it was told that it waits for."""
    relaxes: bool = False
    """It was told that it fits, and when it accepts that."""
    line: str = ""
    leads: bool = False
    behind: str = ""
    held: bool = False
    cancelled: bool = False
    avoided: list[str] = []
    gang: list[TaskPlacement] = []
    """Where its attempt is, or stands still."""
    guest: bool = False
    offered: bool = False
    destination: list[TaskPlacement] = []
    """Where a move is to take it."""
    started: dict[str, None] = {}
    """Nodes with a task of the gang that has started."""
    still: dict[str, None] = {}
    """Those where it stands still."""
    gone: dict[str, None] = {}
    """Those where it has ended, or that are lost."""
    suspended: bool = False
    awaits_quota: bool = False
    leaving: bool = False
    """Its tasks have been told to end."""
    stuck_at: int | None = None
    """The `number` at which JobStuck was said, until JobRecovered."""
    told: int = 0
    """JobStuck and JobRecovered on the log, of the job."""

    @property
    def is_unjudged(self) -> bool:
        """Whether admission is to say whether it fits."""
        return self.word == ADMISSION and not self.attempt

    @property
    def live(self) -> list[str]:
        """Nodes with a task that has not ended."""
        return [task.node_id for task in self.gang if task.node_id not in self.gone]


class Books(msgspec.Struct, kw_only=True):
    """All jobs that have not ended, and the GPUs. Initially empty."""

    number: int = 0
    """Events so far that changed anything."""
    jobs: dict[str, Awaited] = {}
    servers: dict[str, Server] = {}
    reserved: dict[str, dict[str, dict[str, int]]] = {}
    """{waiting gang: {node: {GPU type: GPUs that are kept for it}}}."""
    lines: dict[str, str] = {}
    """{line: the job that leads it}."""

    def take(self, event: Event, now_s: float) -> None:
        """Fold the next event of control.

        Args:
            event: one that is about no job's way changes nothing.
            now_s: the time at which the log took it; only spans are made of it.
        """
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            self.number += 1
            handler(self, event, now_s)

    def reserved_of(self, node_id: str, gpu_type: str, but: str) -> int:
        """GPUs of this type on the node that are kept for other gangs than this one and those that are behind it."""
        kept = (
            of_gang.get(node_id, {})
            for job_id, of_gang in self.reserved.items()
            if job_id != but and (job_id not in self.jobs or self.first_of(self.jobs[job_id]) != but)
        )
        return sum(of_node.get(gpu_type, 0) for of_node in kept)

    def first_of(self, job: Awaited) -> str:
        """The job that this one was told it is behind, or that leads its line now; empty: it is behind none."""
        if job.cause != PendingReason.BEHIND:
            return ""
        return job.behind if job.leads or not job.line else self.lines.get(job.line, "")

    def has_node(self) -> bool:
        """Whether there is a node that jobs can be judged by: without one admission owes no word."""
        return any(not (each.left or is_in_pool(each.features)) for each in self.servers.values())

    def suits(self, job: Awaited, node_id: str) -> bool:
        """Whether the node has what the job needs beside GPUs, and is none that it avoids or that is set apart."""
        needs = [*job.needs, OUTSIDE_POOLS, *map(other_than, job.avoided)]
        return not missing(needs, self.servers[node_id].features, node_id)

    def _of(self, job_id: str, attempt: int | None = None) -> Awaited | None:
        """The job, if it has not ended; with an attempt: if that is its latest. It is brought on by this event."""
        job = self.jobs.get(job_id)
        if job is None or (attempt is not None and job.attempt != attempt):
            return None
        job.number, job.extra_s = self.number, 0.0
        return job

    def _hold(self, job: Awaited, gang: Iterable[TaskPlacement], *, held: bool) -> None:
        for task in gang:
            server = self.servers.get(task.node_id)
            if server is None:
                continue
            server.number = self.number
            for index in task.gpu_indices:
                if held:
                    server.holders.setdefault(index, {})[job.job_id] = None
                else:
                    server.holders.get(index, {}).pop(job.job_id, None)

    def _give_up(self, job: Awaited) -> None:
        """It has no GPUs, tasks or move any more."""
        self._hold(job, job.gang, held=False)
        self._hold(job, job.destination, held=False)
        job.gang, job.destination, job.started, job.still, job.gone = [], [], {}, {}, {}
        job.guest = job.offered = job.suspended = job.awaits_quota = job.leaving = False

    def _place(self, job: Awaited, gang: list[TaskPlacement], *, guest: bool) -> None:
        self._hold(job, job.gang, held=False)
        job.gang, job.guest, job.suspended = gang, guest, False
        if not guest:
            self._hold(job, gang, held=True)

    def _arrived(self, event: JobArrived, now_s: float) -> None:
        spec = event.spec
        self.jobs.setdefault(
            event.job_id,
            Awaited(
                job_id=event.job_id,
                request=spec.gpus,
                needs=spec.needs,
                is_host_bound=spec.is_host_bound,
                number=self.number,
            ),
        )

    def _held_back(self, event: JobHeldBack, now_s: float) -> None:
        """For other jobs, or an operator; a cancellation is answered all the same."""
        if (job := self._of(event.job_id)) is not None:
            job.word = ""

    def _admitted(self, event: JobAdmitted, now_s: float) -> None:
        if (job := self._of(event.job_id)) is not None and not job.attempt:
            job.word = QUOTA

    def _trial(self, event: TrialOrdered, now_s: float) -> None:
        if (job := self._of(event.job_id)) is not None:
            job.on_trial = True

    def _trial_over(self, event: TrialPassed | TrialSkipped, now_s: float) -> None:
        job = self._of(event.job_id)
        if job is None:
            return
        job.on_trial = False
        if job.word == ADMISSION and not job.gang and job.attempt:
            job.word, job.queued = PLACEMENT, True

    def _granted(self, event: QuotaGranted | OpportunityGranted, now_s: float) -> None:
        job = self._of(event.job_id)
        if job is None or event.attempt < job.attempt:
            return
        job.attempt = event.attempt
        if job.gang:  # it stands still on its servers, and may go on there
            job.awaits_quota, job.word, job.cause = False, "", ""
            return
        job.word, job.queued, job.cause, job.line = PLACEMENT, True, "", ""
        job.seeks_seat = isinstance(event, OpportunityGranted)

    def _deferred(self, event: QuotaDeferred, now_s: float) -> None:
        """Of a retry quota is to say more when that is due; all else waits for other jobs."""
        if (job := self._of(event.job_id)) is not None and event.attempt >= job.attempt:
            job.attempt = event.attempt
            is_timed = event.reason.code == PendingReason.BACKOFF
            job.word = QUOTA if is_timed else ""
            until_s = event.reason.until_s
            job.extra_s = max(0.0, until_s - now_s) if is_timed and until_s is not None else 0.0

    def _retried(self, event: RetryScheduled, now_s: float) -> None:
        if (job := self._of(event.job_id)) is not None:
            job.word, job.avoided = QUOTA, event.avoided_nodes
            job.extra_s = max(0.0, event.not_before_s - now_s)

    def _queued(self, event: JobQueued, now_s: float) -> None:
        job = self._of(event.job_id)
        if job is None or event.attempt < job.attempt:
            return
        if event.returns_to_quota:
            job.word, job.queued = QUOTA, False
            if event.suspended:
                job.awaits_quota = True
                return
        if event.attempt > job.attempt or (event.returns_to_quota and not event.suspended):
            self._give_up(job)
        job.attempt = event.attempt
        if event.tried:
            job.word = ADMISSION
            return
        if event.returns_to_quota:
            return
        cause = event.waits_for or event.reason.code
        told = cause in CAUSES
        job.queued = not job.gang
        job.word = "" if told or job.gang or job.held else PLACEMENT
        job.cause, job.line, job.leads, job.behind = cause if told else "", event.line, event.leads, event.behind
        until_s = event.reason.until_s
        job.extra_s = max(0.0, until_s - now_s) if until_s is not None else 0.0
        job.relaxes = cause == PendingReason.LOCALITY_RELAXING and until_s is not None
        if event.leads:
            self.lines[event.line] = event.job_id

    def _gang_kept(self, event: GangReserved, now_s: float) -> None:
        self._unreserve(event.job_id)
        kept: dict[str, dict[str, int]] = {}
        for part in event.parts:
            kept[part.node_id] = {event.gpu_type: part.gpus}
        self.reserved[event.job_id] = kept
        self._touch(kept)
        if (job := self._of(event.job_id)) is not None and event.until_s is not None:
            job.extra_s = max(0.0, event.until_s - now_s)

    def _gang_released(self, event: GangReleased, now_s: float) -> None:
        self._unreserve(event.job_id)
        if (job := self._of(event.job_id)) is not None and event.retry_s is not None:
            job.extra_s = max(0.0, event.retry_s - now_s)

    def _unreserve(self, job_id: str) -> None:
        self._touch(self.reserved.pop(job_id, {}))

    def _touch(self, nodes: Iterable[str]) -> None:
        for node_id in nodes:
            if (server := self.servers.get(node_id)) is not None:
                server.number = self.number

    def _placed(self, event: JobPlaced, now_s: float) -> None:
        job = self._of(event.job_id)
        if job is None or event.attempt < job.attempt:
            return
        self._give_up(job)
        self._go_first(job)
        job.attempt, job.word, job.queued, job.cause = event.attempt, "", False, ""
        self._place(job, event.gang, guest=event.role == Role.GUEST)
        self._lose_absent(job)

    def _go_first(self, gone: Awaited) -> None:
        """Those behind a job that waits no more are about to be looked at."""
        for job in self.jobs.values():
            if job.cause == PendingReason.BEHIND and gone.job_id in (job.behind, self.lines.get(job.line)):
                job.number = self.number

    def _lose_absent(self, job: Awaited) -> None:
        """A node may have been lost before placement could know of it."""
        for task in job.gang:
            server = self.servers.get(task.node_id)
            if server is None or not server.present:
                job.gone[task.node_id] = None

    def _preparing(self, event: JobSettingUp, now_s: float) -> None:
        """Also of the attempt that is to take over."""
        if (job := self._of(event.job_id)) is not None:
            job.extra_s = event.limit_s

    def _started(self, event: JobStarted, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None:
            job.started[event.node_id] = None

    def _stands_still(self, event: JobSuspended, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None:
            job.started[event.node_id] = job.still[event.node_id] = None

    def _goes_on(self, event: JobResumed, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None:
            job.still.pop(event.node_id, None)

    def _exited(self, event: JobExited, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None:
            job.gone[event.node_id] = None
            # One that ends badly takes its peers along.
            job.leaving = job.leaving or event.exit_code != 0 or event.outcome != "exited"

    def _preempted(self, event: JobPreempted, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None:
            job.leaving = True

    def _cancelled(self, event: JobCancelRequested, now_s: float) -> None:
        job = self._of(event.job_id)
        if job is None:
            return
        job.cancelled, job.extra_s = True, event.grace_s
        if job.gang:
            job.leaving = True
        elif not job.word:
            job.word = PLACEMENT if job.attempt else ADMISSION

    def _paused(self, event: JobPauseRequested | JobResumeRequested, now_s: float) -> None:
        job, held = self._of(event.job_id), isinstance(event, JobPauseRequested)
        if job is None or job.cancelled or job.held is held:
            return
        job.held = held
        if not held and job.queued:
            job.word, job.cause = PLACEMENT, ""

    def _sliced(self, event: TimeSliceStarted, now_s: float) -> None:
        for job_id in event.suspended:
            if (job := self._of(job_id)) is not None:
                self._hold(job, job.gang, held=False)
                job.suspended, job.offered, job.cause = True, False, ""
        for resumed in event.resumed:
            if (job := self._of(resumed.job_id)) is not None:
                self._place(job, resumed.gang, guest=job.guest)
                job.cause = ""

    def _moving(self, event: DestinationReserved, now_s: float) -> None:
        if (job := self._of(event.job_id, event.from_attempt)) is not None:
            job.destination = event.gang
            self._hold(job, event.gang, held=True)

    def _moved(self, event: JobMoved, now_s: float) -> None:
        job = self._of(event.job_id)
        if job is None:
            return
        self._give_up(job)
        job.attempt, job.word = event.attempt, ""
        self._place(job, event.gang, guest=False)
        # Its new tasks have the state, and stand still until they are told to go on.
        job.started = dict.fromkeys(task.node_id for task in event.gang)
        job.still = dict(job.started)
        self._lose_absent(job)

    def _stays(self, event: MoveAbandoned, now_s: float) -> None:
        if (job := self._of(event.job_id, event.from_attempt)) is not None and job.destination:
            self._hold(job, job.destination, held=False)
            job.destination = []
            if not job.suspended:
                self._hold(job, job.gang, held=True)  # a resize keeps the GPUs that both have

    def _failed(self, event: AttemptFailed, now_s: float) -> None:
        if (job := self._of(event.job_id)) is not None:
            self._give_up(job)
            job.word, job.queued = FAILURES, False

    def _ended(self, event: Event, now_s: float) -> None:
        job = self.jobs.pop(event.subject, None)
        if job is None:
            return
        self._give_up(job)
        self._unreserve(job.job_id)
        self._go_first(job)
        self.lines = {line: job_id for line, job_id in self.lines.items() if job_id != event.subject}

    def _offered(self, event: UpgradeOffered, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None:
            job.offered = True
            self._hold(job, job.gang, held=True)

    def _answered(self, event: UpgradeDeclined | UpgradeWithdrawn, now_s: float) -> None:
        """Also an upgrade of which placement had not heard."""
        if (job := self._of(event.job_id)) is not None and job.offered:
            self._hold(job, job.gang, held=False)
            job.offered, job.guest = isinstance(event, UpgradeDeclined), True

    def _upgraded(self, event: JobUpgraded, now_s: float) -> None:
        if (job := self._of(event.job_id, event.attempt)) is not None and job.offered:
            job.guest = False
            if not job.suspended:
                self._hold(job, job.gang, held=True)

    def _joined(self, event: NodeJoined, now_s: float) -> None:
        known = self.servers.get(event.node_id)
        if not self.has_node():
            for job in self.jobs.values():
                if job.is_unjudged:
                    job.number = self.number
        self.servers[event.node_id] = Server(
            number=self.number,
            incarnation=event.incarnation,
            gpu_types=[gpu.gpu_type for gpu in event.gpus],
            features=event.features,
            remaps=event.remaps,
            draining=known is not None and known.draining,
            cordoned=known.cordoned if known is not None else {},
            holders=known.holders if known is not None else {},
        )
        there = [(task.job_id, task.attempt) for task in event.tasks]
        for job in self._on(event.node_id):
            job.number = self.number
            if event.node_id in job.started and (job.job_id, job.attempt) not in there:
                job.gone[event.node_id], job.leaving = None, True

    def _away(self, event: NodeLost | NodeLeft | NodeLeaving, now_s: float) -> None:
        server = self.servers.get(event.node_id)
        if server is None or event.incarnation < server.incarnation:
            return
        server.present, server.number = False, self.number
        server.left = isinstance(event, NodeLeft)
        for job in self._on(event.node_id):
            job.number = self.number
            if not isinstance(event, NodeLeaving):
                job.gone[event.node_id], job.leaving = None, True

    def _on(self, node_id: str) -> list[Awaited]:
        return [job for job in self.jobs.values() if any(task.node_id == node_id for task in job.gang)]

    def _drained(self, event: NodeDrainRequested | NodeUndrainRequested, now_s: float) -> None:
        if (server := self.servers.get(event.node_id)) is not None:
            server.draining, server.number = isinstance(event, NodeDrainRequested), self.number

    def _health(self, event: GpuUnhealthy | GpuRecovered, now_s: float) -> None:
        self._mark("sick", event.node_id, [event.index], isinstance(event, GpuUnhealthy))

    def _cordoned(self, event: NodeCordoned | NodeReturned, now_s: float) -> None:
        self._mark("cordoned", event.node_id, event.gpu_indices, isinstance(event, NodeCordoned))

    def _mark(self, name: str, node_id: str, indices: Iterable[int], so: bool) -> None:
        if (server := self.servers.get(node_id)) is not None:
            server.number = self.number
            left = {index: None for index in getattr(server, name) if index not in indices}
            setattr(server, name, left | dict.fromkeys(indices) if so else left)

    def _set(self, event: SettingChanged | PolicyChanged, now_s: float) -> None:
        """What was told of the time that is left may hold no more."""
        if isinstance(event, PolicyChanged) or event.service == PLACEMENT:
            for job in self.jobs.values():
                if job.relaxes:
                    job.relaxes, job.number = False, self.number

    def _said(self, event: JobStuck | JobRecovered, now_s: float) -> None:
        job = self.jobs.get(event.job_id)
        if job is None:
            return
        if isinstance(event, JobStuck):
            job.stuck_at, job.told = job.number, job.told + 1
        elif event.alarm == STUCK:
            job.stuck_at, job.told = None, job.told + 1


_HANDLERS: dict[type[Event], Callable[[Books, Any, float], None]] = {
    JobArrived: Books._arrived,
    JobHeldBack: Books._held_back,
    JobAdmitted: Books._admitted,
    TrialOrdered: Books._trial,
    **dict.fromkeys((TrialPassed, TrialSkipped), Books._trial_over),
    **dict.fromkeys((QuotaGranted, OpportunityGranted), Books._granted),
    QuotaDeferred: Books._deferred,
    RetryScheduled: Books._retried,
    JobQueued: Books._queued,
    GangReserved: Books._gang_kept,
    GangReleased: Books._gang_released,
    JobPlaced: Books._placed,
    JobSettingUp: Books._preparing,
    JobStarted: Books._started,
    JobSuspended: Books._stands_still,
    JobResumed: Books._goes_on,
    JobExited: Books._exited,
    JobPreempted: Books._preempted,
    JobCancelRequested: Books._cancelled,
    **dict.fromkeys((JobPauseRequested, JobResumeRequested), Books._paused),
    TimeSliceStarted: Books._sliced,
    DestinationReserved: Books._moving,
    JobMoved: Books._moved,
    MoveAbandoned: Books._stays,
    AttemptFailed: Books._failed,
    **dict.fromkeys(TERMINAL, Books._ended),
    UpgradeOffered: Books._offered,
    **dict.fromkeys((UpgradeDeclined, UpgradeWithdrawn), Books._answered),
    JobUpgraded: Books._upgraded,
    NodeJoined: Books._joined,
    **dict.fromkeys((NodeLost, NodeLeft, NodeLeaving), Books._away),
    **dict.fromkeys((NodeDrainRequested, NodeUndrainRequested), Books._drained),
    **dict.fromkeys((GpuUnhealthy, GpuRecovered), Books._health),
    **dict.fromkeys((NodeCordoned, NodeReturned), Books._cordoned),
    **dict.fromkeys((SettingChanged, PolicyChanged), Books._set),
    **dict.fromkeys((JobStuck, JobRecovered), Books._said),
}

HEARD = tuple(_HANDLERS)
"""Types of the events that change the books."""
