"""What the study is made of: jobs as a log or a trace shows them. What is not known is None, or not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from libs.inspect.convergence import JobCurve


class Needs(StrEnum):
    """Kinds of data that tables and figures are made of; each says what is meant."""

    STATUS = "how jobs ended"
    GPU_TIME = "how long jobs had GPUs"
    DELAY = "when jobs began"
    CAUSES = "why jobs waited"
    USE = "how busy GPUs were, per job"
    SERVERS = "on how many servers jobs ran"
    HOSTS = "how busy the servers' CPUs and memory were"
    LOSSES = "losses per epoch"
    RETRIES = "how often jobs were tried again"
    REASONS = "why attempts failed"
    STARTS = "before which waiting jobs others were placed"


STATUSES = ("passed", "killed", "unsuccessful")
"""The study's, in its order."""


@dataclass(frozen=True)
class Use:
    """How busy the GPUs of a job were over a window."""

    ratio: float
    window_s: float
    servers: int


@dataclass(frozen=True)
class Failure:
    """A failed attempt and its reason."""

    reason: str
    runtime_s: float | None
    """From its start to its failure; None: not known."""


@dataclass(frozen=True)
class Start:
    """A decision to place a job."""

    passed_gpus: int = 0
    """Asked for by the first waiting job that comes before it in the queue; 0: it is placed in order."""
    delays: bool = False
    """Whether that job loses free GPUs by it."""


@dataclass(frozen=True)
class Load:
    """How much of a cell is in use over a stretch of time."""

    used_ratio: float
    """Of the GPUs."""
    empty_ratio: float
    """Of the servers: those without any job."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StudyJob:
    """One job."""

    job_id: str
    tenant: str
    user: str = ""
    gpus: int
    status: str = ""
    """`passed`, `killed` or `unsuccessful`; empty: it has not ended, or that is not known."""
    delay_s: float | None = None
    """From its submission to its first GPUs."""
    servers: int | None = None
    """That it was first placed on."""
    run_s: float | None = None
    """With GPUs, all attempts together."""
    retries: int | None = None
    within_quota: bool | None = None
    """Whether its virtual cluster had room for it within its quota when it was submitted; None: not known."""
    fair_share_s: float = 0.0
    fragmentation_s: float = 0.0
    uses: tuple[Use, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def gpu_s(self) -> float | None:
        """GPU seconds."""
        return None if self.run_s is None else self.run_s * self.gpus


@dataclass(frozen=True)
class Host:
    """A server over a window."""

    cpu_ratio: float
    memory_ratio: float


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A log or a trace."""

    source: str
    jobs: list[StudyJob]
    hosts: list[Host] = field(default_factory=list)
    curves: list[JobCurve] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    beside_small_ratio: float | None = None
    """Part of the GPU time of gangs that they had on servers beside jobs of one GPU; None: not known."""
    lacks: dict[Needs, str] = field(default_factory=dict)
    """{kind of data: what would have it}, where the source cannot have it."""
