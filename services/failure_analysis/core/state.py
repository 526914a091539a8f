"""What failure analysis knows: how often each live job may fail, how often it did, and what its lines have told."""

from __future__ import annotations

import msgspec

from libs.contracts import settings
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import OWNER, FailureObserved
from libs.contracts.placement import AttemptFailed, Overlap


class Waiting(msgspec.Struct, kw_only=True):
    """An attempt that has failed, and of which not all lines have been read."""

    failed: AttemptFailed
    until_s: float
    """Then it is judged by what there is, in seconds since the epoch."""


class Changes(msgspec.Struct, kw_only=True):
    """What may be changed of a job for its next attempt."""

    allowed: bool = False
    """It lets its memory and its allocator be changed."""
    memory_bytes: int | None = None
    """Of the host, for each GPU, that it has now; None: it has not said how much it needs."""
    allocator: str = ""
    """Its `PYTORCH_CUDA_ALLOC_CONF`."""


class History(msgspec.Struct, kw_only=True):
    """One job's failures so far."""

    max_retries: int
    failures: int = 0
    """The job's own; what the infrastructure lost does not count."""
    losses: int = 0
    """Attempts that vanished without an exit status (a node that rebooted)."""
    overlaps: int = 0
    """Failures of attempts that ran, or may have run, beside an older one."""
    excused_by: Overlap | None = None
    """The older attempt that the latest failure is put down to; None: it is the attempt's own."""
    tried: int | None = None
    """The attempt to come after one that was the job's trial; None: the latest was none."""
    excused: int | None = None
    """The same, when the failure of the trial says nothing of the job: admission has the word first."""
    gpus: int = 1
    user: str = ""
    data: list[str] = []
    """Inputs that it names."""
    restartable: bool = False
    changes: Changes = msgspec.field(default_factory=Changes)
    gang: list[TaskPlacement] = []
    """Where its attempt runs, or ran last; only while lines are followed."""
    avoided: list[str] = []
    """Nodes that its next attempt avoids, ascending."""
    observed: FailureObserved | None = None
    """What the lines of its attempt have told last."""


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that hardware is to blame for."""

    at_s: float
    job_id: str
    user: str
    cause: str
    gpu_index: int | None
    """None: which GPU it was is not known."""


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that is a user's to mend."""

    at_s: float
    job_id: str
    user: str
    cause: str


class Host(msgspec.Struct, kw_only=True):
    """What a node could promise to jobs, were it empty."""

    gpus: int
    memory_bytes: int


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    jobs: dict[str, History] = {}
    """{job id: history} of every job that has not ended."""
    waiting: dict[str, Waiting] = {}
    """{job id: its attempt that has not been judged yet}, of the same jobs, in order of failing."""
    rules: str = ""
    """Digest of the rules by which lines are followed; empty: they are not."""
    consequences: dict[str, str] = {}
    """The operators' own table (`libs/failures/consequences.py`)."""
    hosts: dict[str, Host] = {}
    """{node id: host} of the nodes that are there."""
    blames: dict[str, list[Blame]] = {}
    """{node id: failures there that hardware is to blame for}, in order of time, of the last `blame_window_s`."""
    repeats: dict[str, list[Repeat]] = {}
    """{user: failures of the user's jobs that are the user's to mend}, likewise."""
    inputs: dict[str, list[Repeat]] = {}
    """{input: failures of jobs that name it and found it wrong}, likewise; of those that are not in quarantine."""
    quarantined: dict[str, None] = {}
    repeat_jobs: float = settings.default(OWNER, "repeat_jobs")
    input_users: float = settings.default(OWNER, "input_users")
    blame_failures: float = settings.default(OWNER, "blame_failures")
    blame_window_s: float = settings.default(OWNER, "blame_window_s")
    retry_base_s: float = settings.default(OWNER, "retry_base_s")
    retry_cap_s: float = settings.default(OWNER, "retry_cap_s")
    lines_patience_s: float = settings.default(OWNER, "lines_patience_s")
