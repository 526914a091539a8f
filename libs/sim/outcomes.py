"""What came of the jobs of a run: the fold of their lives, as results tell it."""

from __future__ import annotations

import msgspec

from libs.contracts.read_models import STATUS_BY_STATE
from libs.lifecycle import Life


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One job so far. Times on the virtual clock."""

    job_id: str
    submit_s: float
    status: str = "UNFINISHED"
    """SUCCEEDED, FAILED, CANCELLED, REJECTED, or UNFINISHED when the run ended first."""
    study_status: str = ""
    """`passed`, `killed` or `unsuccessful` (`STATUS_BY_STATE`); empty for the others."""
    retries: int = 0
    """How often it was tried again after a failure."""
    gpu_s_by_attempt: dict[int, float] = {}
    """{number of the attempt: part of `gpu_s`}."""
    first_start_s: float | None = None
    """When all tasks of its gang ran for the first time."""
    finish_s: float | None = None
    gpu_s: float = 0.0
    """GPUs held, times how long, up to the last change."""
    cost_gpu_s: dict[str, float] = {}
    """`gpu_s` by GPU type."""
    preemptions: int = 0
    migrations: int = 0
    queue_s: float = 0.0
    """Time without GPUs, from submission to the end; without the time between two time slices."""
    waits_s: dict[str, float] = {}
    """{cause: part of `queue_s`}; together all of it."""
    fair_share_s: float = 0.0
    """Part of `queue_s` for which its tenant's jobs and the job itself were more than the tenant's quota."""
    fragmentation_s: float = 0.0
    """The rest of the time for which it asked for GPUs and had none (`libs/lifecycle/shares.py`)."""
    starts: int = 0
    """How often it was placed."""
    starts_out_of_order: int = 0
    """How often before a waiting job that comes before it in the queue; counted under `philly` alone."""
    starts_delaying: int = 0
    """How often that delayed such a job."""
    tenant: str = ""
    gpus: int = 0
    """Asked for."""


def outcome_of(life: Life) -> Outcome:
    """What a result says of the job."""
    books = life.books
    return Outcome(
        job_id=life.job_id,
        submit_s=life.submitted_s,
        status=life.state.value if life.has_ended else "UNFINISHED",
        study_status=STATUS_BY_STATE.get(life.state, ""),
        retries=books.retries,
        gpu_s_by_attempt=books.gpu_s_by_attempt,
        first_start_s=books.whole_gang_s,
        finish_s=life.finished_s,
        gpu_s=books.gpu_s,
        cost_gpu_s=books.gpu_s_by_type,
        preemptions=life.preemptions,
        migrations=books.migrations,
        queue_s=books.queue_s,
        waits_s=books.waits_s,
        fair_share_s=books.fair_share_s,
        fragmentation_s=books.fragmentation_s,
        starts=books.starts,
        starts_out_of_order=books.starts_out_of_order,
        starts_delaying=books.starts_delaying,
        tenant=life.tenant,
        gpus=books.gpus,
    )
