"""Whether a job is left standing: nothing that is awaited will bring it on, and nobody has noticed.

Pure. The books (`awaited.py`) tell what is to come next; here it is measured how long that has not come, on the clock
of who looks, so that no clock of a node or of another service counts. A job stands for as long as no event has brought
it on; where a refusal or an event names the moment until which that is in order, the bound begins there.
"""

from __future__ import annotations

from typing import NamedTuple

from libs.contracts.introspection import JobRecovered, JobStuck
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.words import counted
from libs.lifecycle.awaited import PLACEMENT, STUCK, Awaited, Books, Server

STUCK_AFTER_S = 300.0
"""So long may what is awaited be overdue. More than agents have patience with anything but a move."""
MOVE_S = 2400.0
"""So much longer may a live move take: the time of its tasks to start, and to wait for each other."""

ELSEWHERE = frozenset(
    {
        PendingReason.ON_HOLD,
        PendingReason.TRIAL_PENDING,
        PendingReason.WAITING_FOR_VICTIMS,
        PendingReason.INSUFFICIENT_CPUS,
        PendingReason.INSUFFICIENT_MEMORY,
        PendingReason.NO_GUEST_SEAT,
        PendingReason.NO_RENDEZVOUS_PORT,
    }
)
"""Causes of a wait that free GPUs do not contradict."""

Fact = JobStuck | JobRecovered


class Overdue(NamedTuple):
    """What is awaited of a job."""

    awaited: str
    owed_by: list[str]
    message: str
    extra_s: float = 0.0
    """Beyond the bound."""


class Watch:
    """Looks at the books now and then, and says which jobs stand and which go on again."""

    def __init__(self, stuck_after_s: float = STUCK_AFTER_S) -> None:
        """`stuck_after_s`: how long what is awaited may be overdue."""
        self._stuck_after_s = stuck_after_s
        self._jobs: dict[str, tuple[int, float]] = {}
        """{job: number of the event that has brought it on last, when that was seen}."""
        self._servers: dict[str, tuple[int, float]] = {}
        self._told: dict[str, int] = {}
        """{job: facts about it}, as in the books, with what has not been read back from the log yet."""

    def not_listening(self) -> None:
        """The log was away, or the looker is behind: what stands has its full time again."""
        self._jobs, self._servers = {}, {}

    def look(self, books: Books, now_s: float) -> list[tuple[str, Fact]]:
        """The facts that are new, each with its key: the same for the same fact after a restart.

        Args:
            books: as of now.
            now_s: the looker's time, never less than at the look before.
        """
        self._jobs = {job.job_id: _seen(self._jobs.get(job.job_id), job.number, now_s) for job in books.jobs.values()}
        servers = books.servers.items()
        self._servers = {node_id: _seen(self._servers.get(node_id), each.number, now_s) for node_id, each in servers}
        self._told = {job_id: told for job_id, told in self._told.items() if job_id in books.jobs}
        found: list[tuple[str, Fact]] = []
        for job in books.jobs.values():
            told = max(job.told, self._told.get(job.job_id, 0))
            if told > job.told:
                continue  # what was said last is not read back yet
            fact = self._fact(books, job, now_s)
            if fact is not None:
                self._told[job.job_id] = told + 1
                found.append((f"{job.job_id}/{STUCK}/{told + 1}", fact))
        return found

    def _fact(self, books: Books, job: Awaited, now_s: float) -> Fact | None:
        if job.stuck_at is not None:
            if job.number == job.stuck_at:
                return None
            return JobRecovered(
                job_id=job.job_id,
                attempt=job.attempt,
                alarm=STUCK,
                minibatches_total=0,
                reason=Reason(code="Recovered", message="something has brought it on"),
            )
        stood_s = now_s - self._jobs[job.job_id][1]
        if stood_s < self._stuck_after_s + job.extra_s:
            return None
        overdue = self._overdue(books, job, now_s)
        if overdue is None or stood_s < (limit_s := self._stuck_after_s + job.extra_s + overdue.extra_s):
            return None
        holds = sum(len(task.gpu_indices) for task in job.gang) if job.gang and not job.suspended else 0
        return JobStuck(
            job_id=job.job_id,
            attempt=job.attempt,
            awaited=overdue.awaited,
            owed_by=overdue.owed_by,
            stood_s=round(stood_s, 3),
            limit_s=round(limit_s, 3),
            gpus=holds,
            reason=Reason(
                code="JobStuck",
                message=f"{overdue.message}; it has stood for {stood_s:.0f} s"
                + (f" with {counted(holds, 'GPU')}" if holds else ""),
                numbers={"stood_s": round(stood_s, 3), "limit_s": round(limit_s, 3), "gpus": holds},
            ),
        )

    def _overdue(self, books: Books, job: Awaited, now_s: float) -> Overdue | None:
        """What is awaited of the job; None: nothing, or what only other jobs or people can bring."""
        if job.is_unjudged and not books.has_node():
            return None
        if job.word:
            return Overdue("word", [job.word], f"{job.word} is to say what follows, and has said nothing")
        if job.gang:
            return self._of_placed(books, job, now_s)
        if job.queued and not job.seeks_seat:
            return self._of_waiting(books, job, now_s)
        return None

    def _of_placed(self, books: Books, job: Awaited, now_s: float) -> Overdue | None:
        live = job.live
        if not live:
            return Overdue("word", [PLACEMENT], "all of its tasks have ended, and its GPUs have not been taken back")
        if job.leaving:
            return _agents("end", live, "its tasks have been told to end, and have not")
        if job.destination:
            return Overdue("move", [PLACEMENT], "its move has neither come further nor been given up", MOVE_S)
        restless = [node_id for node_id in live if node_id in job.started and node_id not in job.still]
        if job.suspended:
            if restless:
                return _agents("suspension", restless, "it has been told to stand still, and does not")
            return None if job.held or job.awaits_quota else self._of_resting(books, job, now_s)
        if job.held:
            return _agents("suspension", restless, "it has been paused, and does not stand still") if restless else None
        if waiting := [node_id for node_id in live if node_id not in job.started]:
            return _agents("start", waiting, "it has been told to start, and has neither started nor failed")
        if resting := [node_id for node_id in live if node_id in job.still]:
            return _agents("resumption", resting, "it has been told to go on, and stands still")
        return None

    def _of_resting(self, books: Books, job: Awaited, now_s: float) -> Overdue | None:
        """A suspended job of which all GPUs that it needs are free on its servers."""
        if job.guest or job.is_host_bound or not self._may_start(books, job):
            return None
        for task in job.gang:
            server = books.servers[task.node_id]
            gpu_type = server.gpu_types[task.gpu_indices[0]]
            free = server.free(gpu_type) if self._is_quiet(task.node_id, now_s) else []
            left = len(free) - books.reserved_of(task.node_id, gpu_type, but=job.job_id)
            fits = server.remaps or all(index in free for index in task.gpu_indices)
            if left < len(task.gpu_indices) or not fits:
                return None
        where = ", ".join(task.node_id for task in job.gang)
        return Overdue("place", [PLACEMENT], f"it stands still, and the GPUs that it needs on {where} are free")

    def _of_waiting(self, books: Books, job: Awaited, now_s: float) -> Overdue | None:
        """A queued job that would fit on GPUs that have been free for as long as it may stand."""
        if job.relaxes and job.cause == PendingReason.LOCALITY_RELAXING and not job.held:
            return Overdue("place", [PLACEMENT], "it was told that it fits, and the time is over that it was to wait")
        if job.is_host_bound or job.on_trial or not self._may_start(books, job):
            return None
        quiet = [node_id for node_id in books.servers if self._is_quiet(node_id, now_s) and books.suits(job, node_id)]
        types = dict.fromkeys(gpu_type for node_id in quiet for gpu_type in books.servers[node_id].gpu_types)
        for gpu_type in filter(job.request.accepts, types):
            free = {node_id: _free(books, books.servers[node_id], node_id, gpu_type, job) for node_id in quiet}
            most = sorted((node for node in free if free[node] > 0), key=lambda node: (-free[node], node))
            chosen = most[: job.request.max_nodes]
            if sum(free[node_id] for node_id in chosen) >= job.request.count:
                where = ", ".join(f"{free[node_id]} {gpu_type} on {node_id}" for node_id in chosen)
                message = f"needs {counted(job.request.count, 'GPU')}, and there are free ones: {where}"
                return Overdue("place", [PLACEMENT], message)
        return None

    def _may_start(self, books: Books, job: Awaited) -> bool:
        """Whether free GPUs contradict what the job was told: it goes behind no job that waits itself."""
        if job.held or job.cause in ELSEWHERE:
            return False
        if job.cause != PendingReason.BEHIND:
            return True
        ahead = books.jobs.get(books.first_of(job))
        return ahead is None or ahead is job or not (ahead.queued or ahead.suspended)

    def _is_quiet(self, node_id: str, now_s: float) -> bool:
        return node_id in self._servers and now_s - self._servers[node_id][1] >= self._stuck_after_s


def _seen(before: tuple[int, float] | None, number: int, now_s: float) -> tuple[int, float]:
    return before if before is not None and before[0] == number else (number, now_s)


def _free(books: Books, server: Server, node_id: str, gpu_type: str, job: Awaited) -> int:
    return len(server.free(gpu_type)) - books.reserved_of(node_id, gpu_type, but=job.job_id)


def _agents(awaited: str, nodes: list[str], what: str) -> Overdue:
    return Overdue(awaited, [f"agent of {node_id}" for node_id in nodes], f"{what} on {', '.join(nodes)}")
