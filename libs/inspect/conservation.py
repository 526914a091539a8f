"""The conservation check: every job in exactly one state, every GPU accounted for, no more CPUs and memory promised
than there are, and no more granted than tenants and users may have (`granted.py`). From the log alone.

An independent witness on purpose: it knows nothing of placement's books, and its books of GPUs are not those of the one
fold of lives (`libs/lifecycle/`) that read models, results and reports share. It keeps its own from the decisions, and
holds facts against them. Only the states that it counts are that fold's: they are what is witnessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from libs.contracts.admission import JobRejected, TrialOrdered, TrialPassed, TrialSkipped
from libs.contracts.agent import JobExited, JobResumed, JobSuspended, NodeJoined, NodeLeft
from libs.contracts.base import Event, Topic
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Record
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import JobArrived
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import (
    AttemptFailed,
    DestinationReserved,
    JobCancelled,
    JobMoved,
    JobPlaced,
    JobQueued,
    JobSucceeded,
    MoveAbandoned,
    Role,
    TimeSliceStarted,
    UpgradeOffered,
    UpgradeWithdrawn,
)
from libs.contracts.quota import JobUpgraded
from libs.contracts.read_models import JobState
from libs.inspect.granted import Granted
from libs.inspect.jobs import Jobs
from libs.kernel.words import counted, either


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """The log contradicts itself here."""

    offset: int
    message: str


class Conservation(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts after the last record."""

    violations: list[Violation]
    jobs: dict[str, int]
    """{state: jobs}, only states that some job is in; they add up to the jobs that arrived."""
    jobs_total: int
    gpus_total: int
    """Of all nodes that have ever joined."""
    gpus_held: int
    gpus_free: int
    """On nodes that are there."""
    gpus_away: int
    """On nodes that were lost or have left, and held by no job."""

    @property
    def ok(self) -> bool:
        """Whether everything adds up."""
        return not self.violations


class Hold(msgspec.Struct, kw_only=True):
    """An attempt that holds GPUs."""

    attempt: int
    gpus: list[str]
    """None while it is suspended between two time slices."""
    running: dict[str, None]
    """Nodes with a task that has not ended."""
    still: dict[str, None] = {}
    """Nodes with a task that stands still, as they have reported."""
    seats: list[str] = []
    """GPUs that it holds, or held before it was suspended: its processes, and so its memory, are beside them."""
    reserved: list[str] = []
    """GPUs that are kept for a move, if one is under way."""
    migration_id: str = ""
    """Of that move."""
    guest: bool = False
    """It has its GPUs beside their owners, if they have any, and is promised nothing else."""
    offered: bool = False
    """It may become their owner: that has been offered, and not withdrawn."""
    upgraded_at: int = -1
    """Offset at which it was said to be that: what has been decided on what came before does not know of it."""


class Ledger:
    """Folds control records into accounts."""

    def __init__(self) -> None:
        self._jobs = Jobs()
        self._widths: dict[str, list[int]] = {}
        """{job id: how many GPUs it may have} of every job that arrived."""
        self._trials: dict[str, int] = {}
        """{job id: GPUs of its trial} of the jobs that run one first, until it has passed."""
        self._may_skip: dict[str, None] = {}
        """Those of them that have been let start without it: a trial that had begun goes on."""
        self._last_attempt: dict[str, int] = {}
        self._over: dict[str, str] = {}
        """{job id: terminal event}."""
        self._gpus: dict[str, list[str]] = {}
        """{GPU id: jobs that hold it}: one, or several that a policy has packed, and guests beside it."""
        self._asked: dict[str, tuple[int, int]] = {}
        """{job id: CPUs and bytes of memory for each of its GPUs} of the jobs that ask for any."""
        self._hosts: dict[str, tuple[int, int]] = {}
        """{node id: CPUs and bytes of memory, the most that it has ever had}."""
        self._nodes: dict[str, bool] = {}
        """{node id: it is there}."""
        self._gone_at: dict[str, int] = {}
        """{node id: offset at which it was last said to be lost or gone}."""
        self._offsets: dict[str, int] = {}
        """{event id: offset}: a decision knows what was on the log up to its cause."""
        self._holds: dict[str, Hold] = {}
        self._violations: list[Violation] = []
        self._offset = 0
        self._cause = 0
        """Offset of the present record's cause."""
        self._granted = Granted(self._wrong)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            JobArrived: self._arrived,
            TrialOrdered: self._trial_ordered,
            TrialPassed: self._trial_passed,
            TrialSkipped: self._trial_skipped,
            NodeJoined: self._joined,
            NodeLost: self._gone,
            NodeLeft: self._gone,
            JobPlaced: self._placed,
            DestinationReserved: self._reserved,
            JobMoved: self._moved,
            MoveAbandoned: self._stays,
            UpgradeOffered: self._offered,
            JobUpgraded: self._upgraded,
            UpgradeWithdrawn: self._withdrawn,
            JobSuspended: self._still,
            JobResumed: self._goes_on,
            TimeSliceStarted: self._sliced,
            JobExited: self._exited,
            JobQueued: self._queued,
            AttemptFailed: self._attempt_failed,
            JobSucceeded: self._ended,
            JobCancelled: self._ended,
            JobAbandoned: self._ended,
            JobRejected: self._ended,
        }

    def take(self, record: Record) -> None:
        """The next record; those of other topics change nothing."""
        if record.topic != Topic.CONTROL:
            return
        self._offset = record.offset
        self._offsets[record.envelope.id] = record.offset
        self._cause = self._offsets.get(record.envelope.causation_id, record.offset)
        self._granted.take(record.envelope.event, self._offset, self._cause)
        handler = self._handlers.get(type(record.envelope.event))
        if handler is not None:
            handler(record.envelope.event)
        self._jobs.take(record)

    def close(self) -> Conservation:
        """The accounts as of now."""
        states = [job.state for job in self._jobs.jobs.values()]
        if len(states) != len(self._widths):
            arrived = counted(len(self._widths), "job has", "jobs have")
            self._wrong(f"{arrived} arrived, {len(states)} with a state")
        held = sum(1 for holders in self._gpus.values() if holders)
        away = sum(1 for gpu, holders in self._gpus.items() if not holders and not self._nodes[_node_of(gpu)])
        return Conservation(
            violations=list(self._violations),
            jobs={state.value: states.count(state) for state in JobState if state in states},
            jobs_total=len(self._widths),
            gpus_total=len(self._gpus),
            gpus_held=held,
            gpus_free=len(self._gpus) - held - away,
            gpus_away=away,
        )

    def _wrong(self, message: str) -> None:
        self._violations.append(Violation(offset=self._offset, message=message))

    def _arrived(self, event: JobArrived) -> None:
        if event.job_id in self._widths:
            self._wrong(f"job {event.job_id} arrives a second time")
        self._widths[event.job_id] = event.spec.widths
        if event.spec.is_host_bound:
            self._asked[event.job_id] = (event.spec.cpus or 0, event.spec.memory_bytes or 0)

    def _trial_ordered(self, event: TrialOrdered) -> None:
        self._trials[event.job_id] = event.gpus

    def _trial_passed(self, event: TrialPassed) -> None:
        self._trials.pop(event.job_id, None)

    def _trial_skipped(self, event: TrialSkipped) -> None:
        self._may_skip[event.job_id] = None

    def _joined(self, event: NodeJoined) -> None:
        self._nodes[event.node_id] = True
        cpus, memory_bytes = self._hosts.get(event.node_id, (0, 0))
        self._hosts[event.node_id] = max(cpus, event.cpus), max(memory_bytes, event.memory_bytes)
        for gpu in event.gpus:
            self._gpus.setdefault(f"{event.node_id}:{gpu.index}", [])
        there = [(task.job_id, task.attempt) for task in event.tasks]
        for job_id, hold in self._holds.items():
            if (job_id, hold.attempt) not in there:
                hold.running.pop(event.node_id, None)

    def _gone(self, event: NodeLost | NodeLeft) -> None:
        self._nodes[event.node_id] = False
        self._gone_at[event.node_id] = self._offset
        for hold in self._holds.values():
            hold.running.pop(event.node_id, None)

    def _placed(self, event: JobPlaced) -> None:
        job_id = event.job_id
        self._must_live(job_id, "placed")
        if job_id in self._holds:
            self._wrong(f"job {job_id} is placed while attempt {self._holds[job_id].attempt} holds GPUs")
        if event.attempt <= self._last_attempt.get(job_id, 0):
            self._wrong(f"attempt {event.attempt} of job {job_id} is placed after {self._last_attempt[job_id]}")
        self._last_attempt[job_id] = event.attempt
        gpus = _gpu_ids(event.gang)
        self._must_suit(job_id, gpus)
        guest = event.role == Role.GUEST
        self._give(job_id, gpus, event.packed_with, guest=guest)
        nodes = [task.node_id for task in event.gang]
        running = dict.fromkeys(node_id for node_id in nodes if self._gone_at.get(node_id, -1) <= self._cause)
        self._holds[job_id] = Hold(attempt=event.attempt, gpus=gpus, running=running, seats=gpus, guest=guest)
        self._must_have_enough(job_id, nodes)

    def _reserved(self, event: DestinationReserved) -> None:
        hold = self._holds.get(event.job_id)
        if hold is None or hold.attempt != event.from_attempt or hold.reserved:
            self._wrong(f"attempt {event.from_attempt} of job {event.job_id} is to move and is not placed, or moves")
            return
        if event.attempt <= self._last_attempt[event.job_id]:
            self._wrong(f"attempt {event.attempt} of job {event.job_id} is prepared a second time")
        self._last_attempt[event.job_id] = event.attempt
        hold.reserved, hold.migration_id = _gpu_ids(event.gang), event.migration_id
        self._must_suit(event.job_id, hold.reserved)
        self._give(event.job_id, hold.reserved, [event.job_id])
        self._must_have_enough(event.job_id, [task.node_id for task in event.gang])

    def _moved(self, event: JobMoved) -> None:
        """From here on the earlier attempt's tasks do nothing: all of them must have been standing still."""
        hold = self._holds.get(event.job_id)
        if hold is None or hold.reserved != _gpu_ids(event.gang):
            self._wrong(f"job {event.job_id} has moved to GPUs that were not reserved for it")
            return
        restless = [node_id for node_id in hold.running if node_id not in hold.still]
        if restless:
            self._wrong(f"job {event.job_id} goes on elsewhere while its task on {restless[0]} may be running")
        self._take(event.job_id, hold.gpus)
        nodes = dict.fromkeys(task.node_id for task in event.gang)
        running = {node_id: None for node_id in nodes if self._gone_at.get(node_id, -1) <= self._cause}
        seats = hold.reserved
        self._holds[event.job_id] = Hold(attempt=event.attempt, gpus=seats, running=running, still=nodes, seats=seats)

    def _stays(self, event: MoveAbandoned) -> None:
        hold = self._holds.get(event.job_id)
        if hold is not None and hold.migration_id == event.migration_id:
            self._take(event.job_id, hold.reserved)
            hold.reserved, hold.migration_id = [], ""

    def _still(self, event: JobSuspended) -> None:
        hold = self._holds.get(event.job_id)
        if hold is not None and hold.attempt == event.attempt:
            hold.still[event.node_id] = None

    def _goes_on(self, event: JobResumed) -> None:
        hold = self._holds.get(event.job_id)
        if hold is not None and hold.attempt == event.attempt:
            hold.still.pop(event.node_id, None)

    def _offered(self, event: UpgradeOffered) -> None:
        hold = self._holds.get(event.job_id)
        if hold is None or hold.attempt != event.attempt or not hold.guest:
            self._wrong(f"attempt {event.attempt} of job {event.job_id} is offered to be an owner and is no guest")
            return
        hold.offered = True
        for gpu in hold.gpus:
            if owner := self._owner_of(gpu, but=event.job_id):
                self._wrong(f"GPU {gpu} of job {event.job_id} is said to have no owner while job {owner} holds it")

    def _upgraded(self, event: JobUpgraded) -> None:
        hold = self._holds.get(event.job_id)
        if hold is not None and hold.attempt == event.attempt and hold.offered:
            hold.guest, hold.upgraded_at = False, self._offset

    def _withdrawn(self, event: UpgradeWithdrawn) -> None:
        """Also an upgrade of which placement had not heard."""
        hold = self._holds.get(event.job_id)
        if hold is not None and hold.attempt == event.attempt and hold.offered:
            hold.guest, hold.offered, hold.upgraded_at = True, False, -1

    def _owner_of(self, gpu: str, but: str) -> str | None:
        """The first other job that holds the GPU, and is no guest there."""
        others = [job_id for job_id in self._gpus.get(gpu, ()) if job_id != but]
        return next((job_id for job_id in others if not self._is_guest(job_id)), None)

    def _is_guest(self, job_id: str) -> bool:
        """As a decision on what was on the log up to the present cause has to take it."""
        hold = self._holds.get(job_id)
        return hold is not None and (hold.guest or hold.upgraded_at > self._cause)

    def _give(self, job_id: str, gpus: list[str], packed_with: list[str], *, guest: bool = False) -> None:
        for gpu in gpus:
            if gpu not in self._gpus:
                self._wrong(f"job {job_id} is given GPU {gpu}, which does not exist")
                continue
            for holder in self._gpus[gpu]:
                if holder not in packed_with and not guest and not self._is_guest(holder):
                    self._wrong(f"GPU {gpu} is given to job {job_id} while job {holder} holds it")
            self._gpus[gpu].append(job_id)

    def _must_suit(self, job_id: str, gpus: list[str]) -> None:
        widths = self._widths.get(job_id, [])
        if (trial := self._trials.get(job_id)) is not None:
            widths = [trial, *(widths if job_id in self._may_skip else ())]
        if widths and len(gpus) not in widths:
            self._wrong(f"job {job_id} may have {either(widths, 'GPU')} and is given {len(gpus)}")

    def _must_have_enough(self, job_id: str, node_ids: Iterable[str]) -> None:
        """After a job was given GPUs: these nodes have the CPUs and the memory that are promised there together."""
        for node_id in node_ids if job_id in self._asked and not self._is_guest(job_id) else ():
            cpus = sum(
                max((self._asked.get(holder, (0, 0))[0] for holder in holders if not self._is_guest(holder)), default=0)
                for gpu, holders in self._gpus.items()
                if _node_of(gpu) == node_id
            )
            memory = sum(
                self._asked[other][1] * max(_on(node_id, hold.seats), _on(node_id, hold.reserved))
                for other, hold in self._holds.items()
                if other in self._asked and not self._is_guest(other)
            )
            has = self._hosts.get(node_id, (0, 0))
            if cpus > has[0] or memory > has[1]:
                given = f"{cpus} CPUs and {memory} bytes of memory of {node_id} are promised"
                self._wrong(f"{given} with job {job_id}, and it has {has[0]} and {has[1]}")

    def _take(self, job_id: str, gpus: list[str]) -> None:
        for gpu in gpus:
            if job_id in self._gpus.get(gpu, ()):
                self._gpus[gpu].remove(job_id)

    def _sliced(self, event: TimeSliceStarted) -> None:
        """Suspended jobs give their GPUs up and keep their processes; resumed ones may move within their servers."""
        leaving = [*event.suspended, *(resumed.job_id for resumed in event.resumed)]
        for job_id in leaving:
            if job_id not in self._holds:
                self._wrong(f"job {job_id} takes its turn on {event.server} without being placed")
                return
            self._take(job_id, self._holds[job_id].gpus)
        for job_id in event.suspended:
            self._holds[job_id].gpus = []
        for resumed in event.resumed:
            gpus = _gpu_ids(resumed.gang)
            self._must_suit(resumed.job_id, gpus)
            self._holds[resumed.job_id].gpus = self._holds[resumed.job_id].seats = gpus
            self._give(resumed.job_id, gpus, resumed.packed_with, guest=self._is_guest(resumed.job_id))
        for resumed in event.resumed:
            self._must_have_enough(resumed.job_id, [task.node_id for task in resumed.gang])

    def _exited(self, event: JobExited) -> None:
        hold = self._holds.get(event.job_id)
        if hold is not None and hold.attempt == event.attempt:
            hold.running.pop(event.node_id, None)

    def _queued(self, event: JobQueued) -> None:
        self._must_live(event.job_id, "queued")
        hold = self._holds.get(event.job_id)
        if hold is None or (event.attempt == hold.attempt and not hold.gpus):
            return  # a suspended attempt waits for its GPUs: its tasks are still there
        if event.attempt <= hold.attempt:
            self._wrong(f"job {event.job_id} is queued while its attempt {hold.attempt} holds GPUs")
        self._release(event.job_id)

    def _attempt_failed(self, event: AttemptFailed) -> None:
        self._must_live(event.job_id, "called failed")
        hold = self._holds.get(event.job_id)
        if hold is None or hold.attempt != event.attempt:
            self._wrong(f"attempt {event.attempt} of job {event.job_id} fails without holding GPUs")
        self._release(event.job_id)

    def _ended(self, event: JobSucceeded | JobCancelled | JobAbandoned | JobRejected) -> None:
        self._must_live(event.job_id, f"ended by {type(event).__name__}")
        if isinstance(event, JobSucceeded) and event.job_id not in self._holds:
            self._wrong(f"job {event.job_id} succeeds without holding GPUs")
        self._over[event.job_id] = type(event).__name__
        self._release(event.job_id)

    def _release(self, job_id: str) -> None:
        hold = self._holds.pop(job_id, None)
        if hold is None:
            return
        if hold.running:
            self._wrong(f"the GPUs of job {job_id} are given back while its task on {next(iter(hold.running))} runs")
        if hold.reserved:
            self._wrong(f"job {job_id} gives its GPUs back while others are kept for its move")
        self._take(job_id, hold.gpus)

    def _must_live(self, job_id: str, what: str) -> None:
        if job_id in self._over:
            self._wrong(f"job {job_id} is {what} after it has ended by {self._over[job_id]}")
        elif job_id not in self._widths:
            self._wrong(f"job {job_id} is {what} and has never arrived")


def conservation(records: Iterable[Record]) -> Conservation:
    """The accounts after these records, from the beginning of a log."""
    ledger = Ledger()
    for record in records:
        ledger.take(record)
    return ledger.close()


def _gpu_ids(gang: list[TaskPlacement]) -> list[str]:
    return [f"{task.node_id}:{index}" for task in gang for index in task.gpu_indices]


def _node_of(gpu: str) -> str:
    return gpu.rpartition(":")[0]


def _on(node_id: str, gpus: list[str]) -> int:
    """How many of these GPUs are of the node."""
    return sum(_node_of(gpu) == node_id for gpu in gpus)
