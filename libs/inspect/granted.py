"""What quota has granted, as the conservation check counts it: from the log alone, and not with quota's own books.

A service decides on what was on the log up to the cause of its decision. What has ended behind that makes a sum
smaller, never larger; limits and tenants are taken as they were then.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from libs.contracts.base import Event
from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import ANY_TYPE, JobArrived, TenantConfigured
from libs.contracts.placement import AttemptFailed, JobPlaced, JobQueued, TimeSliceStarted, UpgradeWithdrawn
from libs.contracts.quota import GUARANTEED, JobUpgraded, QuotaGranted, QuotaReclaimed
from libs.inspect.usable import Usable
from libs.kernel.words import counted

Wrong = Callable[[str], None]


class Granted:
    """Folds control records; `wrong` is told of each contradiction."""

    def __init__(self, wrong: Wrong) -> None:
        self._wrong = wrong
        self._users: dict[str, tuple[str, str]] = {}
        """{job id: its tenant and its user}."""
        self._claims: dict[str, tuple[int, QuotaGranted | JobUpgraded]] = {}
        """{job id: offset and grant that counts}."""
        self._tenants: dict[str, list[tuple[int, TenantConfigured]]] = {}
        """{tenant: (offset, how it was configured from there on)}."""
        self._usable = Usable()
        self._victims: dict[str, None] = {}
        """Jobs that are to give back what they have borrowed."""
        self._returned: dict[str, None] = {}
        """Those that have, and were not granted anything since."""
        self._ended: dict[str, float] = {}
        """{job id: latest attempt that is over; infinite: the job has ended}. A grant of one of those crosses with its
        end on the log, and counts for nothing."""
        self._withdrawals: dict[str, int] = {}
        """{job id: offset of the last withdrawal of an upgrade}. One that was decided before crosses with it."""
        self._handlers: dict[type[Event], Callable[[Any, int, int], None]] = {
            JobArrived: self._arrived,
            TenantConfigured: self._configured,
            QuotaGranted: self._granted,
            JobUpgraded: self._granted,
            QuotaReclaimed: self._reclaimed,
            JobQueued: self._queued,
            JobPlaced: self._placed,
            TimeSliceStarted: self._resumed,
            AttemptFailed: self._failed,
            UpgradeWithdrawn: self._withdrawn,
            **dict.fromkeys(TERMINAL, self._has_ended),
        }

    def take(self, event: Event, offset: int, cause: int) -> None:
        """The next record of control; `cause`: the offset of what it was decided on."""
        self._usable.take(event, offset)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, offset, cause)

    def _arrived(self, event: JobArrived, offset: int, cause: int) -> None:
        self._users.setdefault(event.job_id, (event.spec.tenant, event.spec.user or event.submitted_by))

    def _configured(self, event: TenantConfigured, offset: int, cause: int) -> None:
        self._tenants.setdefault(event.tenant, []).append((offset, event))

    def _granted(self, event: QuotaGranted | JobUpgraded, offset: int, cause: int) -> None:
        if event.attempt <= self._ended.get(event.job_id, 0):
            return
        if isinstance(event, JobUpgraded) and cause < self._withdrawals.get(event.job_id, -1):
            return
        self._claims[event.job_id] = offset, event
        self._returned.pop(event.job_id, None)
        self._usable.up_to(cause)
        if isinstance(event, QuotaGranted) and event.share:
            self._must_be_there(event)
        name, seen = event.tenant, dict[str, None]()
        while (tenant := self._tenant(name, cause)) is not None and name not in seen:
            seen[name] = None
            self._must_be_within(event, tenant, cause)
            name = tenant.parent

    def _must_be_there(self, event: QuotaGranted) -> None:
        """GPUs that nothing can be placed on are none, neither of the cell nor of the jobs that hold them."""
        usable, of_type = self._usable, event.gpu_type
        together = sum(
            max(0, grant.gpus - usable.lost(job_id, grant.gpus))
            for job_id, (_, grant) in self._claims.items()
            if usable.type_of(job_id, getattr(grant, "gpu_type", "")) == of_type
        )
        there = usable.gpus(of_type)
        if together > there:
            gpus = counted(together, f"GPU of type {of_type} is", f"GPUs of type {of_type} are")
            self._wrong(f"{gpus} granted with that to job {event.job_id}, and {there} can be used")

    def _must_be_within(self, event: QuotaGranted | JobUpgraded, tenant: TenantConfigured, cause: int) -> None:
        """The limits of a tenant count it and all below it."""
        if tenant.gpu_limit is None and not tenant.per_user:
            return
        jobs = [job_id for job_id in self._claims if self._is_below(self._users[job_id][0], tenant.tenant, cause)]
        used = self._used(jobs)
        if tenant.gpu_limit is not None and used > tenant.gpu_limit:
            self._wrong(f"tenant {tenant.tenant} has {used} GPUs granted, and may have {tenant.gpu_limit}")
        user = self._users[event.job_id][1]
        of_user = self._used([job_id for job_id in jobs if self._users[job_id][1] == user])
        most = tenant.per_user.get(ANY_TYPE)
        if most is not None and of_user > most:
            self._wrong(f"user {user} of tenant {tenant.tenant} has {of_user} GPUs granted, and may have {most}")

    def _used(self, jobs: list[str]) -> int:
        return sum(self._claims[job_id][1].gpus for job_id in jobs)

    def _is_below(self, name: str, above: str, cause: int) -> bool:
        seen = dict[str, None]()
        while name and name != above and name not in seen:
            seen[name] = None
            tenant = self._tenant(name, cause)
            name = tenant.parent if tenant is not None else ""
        return name == above

    def _tenant(self, name: str, cause: int) -> TenantConfigured | None:
        found = [event for offset, event in self._tenants.get(name, ()) if offset <= cause]
        return found[-1] if found else None

    def _reclaimed(self, event: QuotaReclaimed, offset: int, cause: int) -> None:
        for victim in event.victims:
            self._victims[victim.job_id] = None
            since, grant = self._claims.get(victim.job_id, (0, None))
            if not isinstance(grant, QuotaGranted) or grant.gpu_type != event.gpu_type:
                continue
            changed = any(at > since for configured in self._tenants.values() for at, _ in configured)
            if grant.share == GUARANTEED and not changed:
                self._wrong(f"job {victim.job_id} is to give back GPUs within a guarantee of {grant.guarantee_of}")

    def _queued(self, event: JobQueued, offset: int, cause: int) -> None:
        if not event.returns_to_quota:
            return
        if event.job_id not in self._victims:
            self._wrong(f"job {event.job_id} gives GPUs back that were not reclaimed")
        self._returned[event.job_id] = None
        if not event.suspended:
            self._ended[event.job_id] = event.attempt - 1
        self._over(event, offset, cause)

    def _placed(self, event: JobPlaced, offset: int, cause: int) -> None:
        if event.job_id in self._returned:
            self._wrong(f"job {event.job_id} is placed, and quota has not granted it anything since it gave GPUs back")

    def _resumed(self, event: TimeSliceStarted, offset: int, cause: int) -> None:
        for resumed in event.resumed:
            if resumed.job_id in self._returned:
                self._wrong(f"job {resumed.job_id} goes on, and quota has not granted it anything since its reclaim")

    def _failed(self, event: AttemptFailed, offset: int, cause: int) -> None:
        self._ended[event.job_id] = event.attempt
        self._over(event, offset, cause)

    def _has_ended(self, event: Event, offset: int, cause: int) -> None:
        self._ended[event.subject] = inf
        self._over(event, offset, cause)

    def _withdrawn(self, event: UpgradeWithdrawn, offset: int, cause: int) -> None:
        self._withdrawals[event.job_id] = offset
        self._over(event, offset, cause)

    def _over(self, event: Event, offset: int, cause: int) -> None:
        self._claims.pop(event.subject, None)
        self._victims.pop(event.subject, None)
