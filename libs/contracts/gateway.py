"""Requests of users and operators, as accepted by the gateway. All are appended by the gateway alone."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.jobs import JobSpec
from libs.contracts.reasons import Number

OWNER = "gateway"

POLICY_NAMES = ("backfill", "fifo")
"""The placement policies that an operator can choose."""


@event("job.arrived.v1", owner=OWNER, subject="job_id")
class JobArrived(Event, frozen=True, kw_only=True):
    """A valid job was accepted for the cell. From here on it is never lost; nothing is decided yet."""

    job_id: str
    spec: JobSpec
    submitted_by: str
    request_digest: str = ""
    """Hash of the request body: a repeated idempotency key with another body is refused."""


@event("job.cancel_requested.v1", owner=OWNER, subject="job_id")
class JobCancelRequested(Event, frozen=True, kw_only=True):
    """Somebody wants the job gone. Placement answers with JobCancelled unless the job ends by itself first."""

    job_id: str
    requested_by: str
    grace_s: float = 10.0
    """Time between the polite and the forceful signal to running tasks."""
    note: str = ""


@event("job.pause_requested.v1", owner=OWNER, subject="job_id")
class JobPauseRequested(Event, frozen=True, kw_only=True):
    """Hold the job: a waiting job is not placed, a running one is suspended where it is."""

    job_id: str
    requested_by: str


@event("job.resume_requested.v1", owner=OWNER, subject="job_id")
class JobResumeRequested(Event, frozen=True, kw_only=True):
    """Let a held job go on."""

    job_id: str
    requested_by: str


@event("job.priority_changed.v1", owner=OWNER, subject="job_id")
class JobPriorityChanged(Event, frozen=True, kw_only=True):
    """The job's priority is now `priority`; it takes effect at the next decision."""

    job_id: str
    priority: int
    requested_by: str


@event("tenant.configured.v1", owner=OWNER, subject="tenant")
class TenantConfigured(Event, frozen=True, kw_only=True):
    """The tenant's limits from now on. Running jobs are not stopped when a limit shrinks below their use."""

    tenant: str
    gpu_limit: int | None
    """Most GPUs that the tenant's granted jobs may ask for together; None: no limit."""
    requested_by: str
    weight: float = 1.0


@event("policy.changed.v1", owner=OWNER, subject="policy")
class PolicyChanged(Event, frozen=True, kw_only=True):
    """Placement uses this policy from its next decision on."""

    policy: str
    requested_by: str
    note: str = ""


@event("setting.changed.v1", owner=OWNER, subject="service")
class SettingChanged(Event, frozen=True, kw_only=True):
    """A number that a core decides by has changed. Settings travel on the log so that a replay has them too."""

    service: str
    name: str
    value: Number
    requested_by: str


@event("node.drain_requested.v1", owner=OWNER, subject="node_id")
class NodeDrainRequested(Event, frozen=True, kw_only=True):
    """Give the node no new work and move away what runs there."""

    node_id: str
    note: str
    """Why; required of the operator."""
    requested_by: str


@event("node.undrain_requested.v1", owner=OWNER, subject="node_id")
class NodeUndrainRequested(Event, frozen=True, kw_only=True):
    """The node may be used again."""

    node_id: str
    requested_by: str
