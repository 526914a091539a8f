"""What admission knows: the cluster as it could be, the tenants' limits, and the jobs that were not let through yet."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from libs.contracts import settings
from libs.contracts.admission import OWNER
from libs.contracts.features import missing
from libs.contracts.groups import Condition, Dependency
from libs.contracts.jobs import JobSpec
from libs.kernel.beside import gpus_beside
from libs.kernel.service import InvariantViolated
from services.admission.core.pending import Group, Pending, broken_by, meets, partly_failed
from services.admission.core.shares import Share, least_limit

REMEMBERED_ENDS = 10_000
"""Ends of jobs, arrays and DAGs that are kept. A request that names an older one says how it ended
(`Dependency.succeeded`): only what ends while a request is on its way to the log has to be found here."""


class Trial(msgspec.Struct, kw_only=True):
    """The trial of an admitted job, until it has passed or the job has ended."""

    gpus: int
    """World size."""
    attempt: int = 0
    """The latest that was placed; 0: none has been."""
    waits_since_s: float | None = None
    """Since when its attempt may be placed, and is not; None: it does not wait for GPUs."""
    placed_s: float | None = None
    """Since when its attempt has GPUs."""
    gpu_s: float = 0.0
    """GPU seconds of its attempts that are over."""
    steps: int = 0
    """Mini-batches that its latest attempt did."""
    hands_on: bool = False
    """The script of its latest attempt can go on from its checkpoint on another number of GPUs."""
    failure: str = ""
    """As the failure of its latest attempt was classified."""
    skipped: bool = False
    """It has waited for too long; it counts all the same if it had begun by then."""


class State(msgspec.Struct, kw_only=True, dict=True):
    """Initially empty: nothing is judged before the first node has joined."""

    nodes: dict[str, dict[str, int]] = {}
    """{node id: {GPU type: GPUs}}, for every node that has joined and not left; lost nodes are expected back. Those of
    the pool for trials are none of them: after its trial every job runs elsewhere."""
    hosts: dict[str, tuple[int, int]] = {}
    """{node id: CPUs and bytes of memory}, of the same nodes, as far as they say so."""
    features: dict[str, list[str]] = {}
    """{node id: what jobs may need of it beside GPUs}, of those of them that have any."""
    limits: dict[str, int] = {}
    """{tenant: most GPUs of its jobs together}, only where there is a limit."""
    shares: dict[str, Share] = {}
    """{tenant: its place in the tree and its other limits}, only where there are any."""
    guests: bool = False
    """Whether there may be guests: an automatic job that is larger than its tenant's limit can be one."""
    jobs: dict[str, str] = {}
    """{job id: its array or DAG, or ""} of the jobs that have not ended."""
    pending: dict[str, Pending] = {}
    """{job id: job} of those among them that have not been let through, in order of arrival."""
    unjudged: dict[str, None] = {}
    """Those among these that something has happened to while there was no node, in order."""
    groups: dict[str, Group] = {}
    """{id of an array or a DAG: what is known of it}."""
    waiters: dict[str, dict[str, None]] = {}
    """{id: the pending jobs that wait for its end, in order of arrival}."""
    quarantined: dict[str, str] = {}
    """{input in quarantine: why, as a sentence}: jobs that name one are held back."""
    ends: dict[str, bool] = {}
    """{id: whether it succeeded} of the latest ends of jobs, arrays and DAGs, the oldest first."""

    trials: dict[str, Trial] = {}
    """{job id: trial} of the admitted jobs with a gang that has not been let start."""
    trial_above_gpus: float = settings.default(OWNER, "trial_above_gpus")
    trial_steps: float = settings.default(OWNER, "trial_steps")
    trial_limit_s: float = settings.default(OWNER, "trial_limit_s")
    trial_patience_s: float = settings.default(OWNER, "trial_patience_s")

    @cached_property
    def sizes(self) -> dict[str, dict[int, int]]:
        """{GPU type: {GPUs: nodes that have so many}}. Derived of `nodes`, and no part of snapshots."""
        return _sizes(self.nodes.values())

    def sizes_for(self, spec: JobSpec) -> dict[str, dict[int, int]]:
        """The same as this job sees it: of each node with the features that it needs as many GPUs as there is enough
        beside."""
        needs = spec.needs
        if not needs and not spec.is_host_bound:
            return self.sizes
        able = (node_id for node_id in self.nodes if not missing(needs, self.features.get(node_id, ())))
        return _sizes(self._beside(node_id, spec) for node_id in able)

    def limit_of(self, spec: JobSpec) -> int | None:
        """Most GPUs that the job may ask for under its tenant's quota; None: any number, or it needs no quota."""
        return least_limit(spec, self.limits, self.shares) if spec.needs_quota(guests=self.guests) else None

    def _beside(self, node_id: str, spec: JobSpec) -> dict[str, int]:
        """{GPU type: GPUs of the node that have enough of what the job asks for beside them}."""
        host = self.hosts.get(node_id, (0, 0))
        return {gpu_type: gpus_beside(spec, gpus, *host) for gpu_type, gpus in self.nodes[node_id].items()}

    def join(
        self, node_id: str, gpus: dict[str, int], host: tuple[int, int] = (0, 0), features: Sequence[str] = ()
    ) -> None:
        """The node is there, with so many GPUs of each type, CPUs and memory, and these features."""
        self.nodes[node_id] = gpus
        self.hosts[node_id] = host
        self.features.pop(node_id, None)
        if features:
            self.features[node_id] = list(features)
        self.__dict__.pop("sizes", None)

    def leave(self, node_id: str) -> None:
        """The node is not expected back."""
        self.nodes.pop(node_id, None)
        self.hosts.pop(node_id, None)
        self.features.pop(node_id, None)
        self.__dict__.pop("sizes", None)

    def wait_for(self, job_id: str, pending: Pending, dependency: Dependency) -> None:
        """The job waits for what has not ended; the end of anything else is compared at once."""
        on = dependency.on
        if on in self.jobs or on in self.groups:
            pending.missing[on] = dependency.condition
            self.waiters.setdefault(on, {})[job_id] = None
            group = self.groups.get(on)
            if group is not None and group.failed and dependency.condition is Condition.OK:
                pending.broken = pending.broken or partly_failed(on)
            return
        succeeded = self.ends.get(on, dependency.succeeded)
        if succeeded is None:
            pending.broken = pending.broken or f"it was to run after {on}, which is not known"
        elif not meets(dependency.condition, succeeded):
            pending.broken = pending.broken or broken_by(on, dependency.condition)

    def forget_pending(self, job_id: str) -> None:
        """The job is let through, or ends."""
        pending = self.pending.pop(job_id, None)
        self.unjudged.pop(job_id, None)
        if pending is None:
            return
        for on in pending.missing:
            del self.waiters[on][job_id]
            if not self.waiters[on]:
                del self.waiters[on]
        self.leave_turnstile(job_id, pending)

    def join_turnstile(self, job_id: str, pending: Pending) -> None:
        """The job waits for nothing but its turn in its array."""
        group = self.group_of(pending)
        if group is not None and pending.group is not None:
            place = (pending.group.index, job_id)
            if place not in group.turnstile[bisect_left(group.turnstile, place) :][:1]:
                insort(group.turnstile, place)

    def leave_turnstile(self, job_id: str, pending: Pending) -> None:
        """The job does not wait for its turn any more, if it did."""
        group = self.group_of(pending)
        if group is None or pending.group is None:
            return
        place = (pending.group.index, job_id)
        found = bisect_left(group.turnstile, place)
        if group.turnstile[found : found + 1] == [place]:
            del group.turnstile[found]

    def group_of(self, pending: Pending) -> Group | None:
        """The array or DAG that the job is of."""
        return self.groups.get(pending.group.group_id) if pending.group is not None else None

    def end(self, job_id: str, *, succeeded: bool) -> list[str]:
        """A job has ended.

        Returns:
            The pending jobs for which something has changed, in the order in which they are to be looked at.
        """
        group_id = self.jobs.pop(job_id, None)
        if group_id is None:
            return []
        self.forget_pending(job_id)
        touched = self._tell(job_id, succeeded)
        group = self.groups.get(group_id)
        if group is not None:
            group.through.pop(job_id, None)
            touched |= self._count(group_id, group, succeeded=succeeded)
        self.put_off(touched)
        return list(touched)

    def put_off(self, job_ids: Iterable[str]) -> None:
        """While there is no node these are not judged: they are looked at when one has joined."""
        if not self.nodes:
            self.unjudged.update(dict.fromkeys(job_ids))

    def _count(self, group_id: str, group: Group, *, succeeded: bool) -> dict[str, None]:
        group.ended += 1
        group.failed += not succeeded
        if group.ended == group.size:
            del self.groups[group_id]
            return self._tell(group_id, not group.failed)
        touched: dict[str, None] = {}
        if group.failed == 1 and not succeeded:
            for job_id in self.waiters.get(group_id, ()):
                pending = self.pending[job_id]
                if pending.missing[group_id] is Condition.OK:
                    pending.broken = pending.broken or partly_failed(group_id)
                    touched[job_id] = None
        return touched | dict.fromkeys(group.next_in_turn())

    def _tell(self, on: str, succeeded: bool) -> dict[str, None]:
        """What waits for the end of `on` waits for it no more."""
        self.ends[on] = succeeded
        if len(self.ends) >= 2 * REMEMBERED_ENDS:  # many at once: the oldest of a dict is not found at once
            for old in list(self.ends)[:REMEMBERED_ENDS]:
                del self.ends[old]
        waiters = self.waiters.pop(on, {})
        for job_id in waiters:
            pending = self.pending[job_id]
            condition = pending.missing.pop(on)
            if not meets(condition, succeeded):
                pending.broken = pending.broken or broken_by(on, condition)
        return dict(waiters)


def _sizes(nodes: Iterable[Mapping[str, int]]) -> dict[str, dict[int, int]]:
    """{GPU type: {GPUs: nodes that have so many}}."""
    found: dict[str, dict[int, int]] = {}
    for node in nodes:
        for gpu_type, gpus in node.items():
            of_type = found.setdefault(gpu_type, {})
            of_type[gpus] = of_type.get(gpus, 0) + 1
    return found


def check(state: State) -> None:
    """Raises InvariantViolated when what waits and what is waited for disagree, or an array lets too many through."""
    waiters = {(on, job_id) for on, jobs in state.waiters.items() for job_id in jobs}
    missing = {(on, job_id) for job_id, pending in state.pending.items() for on in pending.missing}
    if waiters != missing:
        on, job_id = sorted(waiters ^ missing)[0]
        raise InvariantViolated(f"job {job_id} and what it waits for, {on}, disagree")
    for group_id, group in state.groups.items():
        gone = [job_id for job_id in group.through if job_id not in state.jobs or job_id in state.pending]
        if gone:
            raise InvariantViolated(f"{group_id} has let job {gone[0]} through, which has ended or was not admitted")
        if group.at_once is not None and len(group.through) > group.at_once:
            raise InvariantViolated(
                f"{group_id} has let {len(group.through)} jobs through, at most {group.at_once} are allowed"
            )
        if group.next_in_turn() and state.nodes:
            raise InvariantViolated(f"{group_id} has room for job {group.turnstile[0][1]}, which waits for its turn")
