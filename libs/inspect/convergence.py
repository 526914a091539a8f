"""How the jobs of a log have converged: the Philly study's figure 9 (ATC'19, section 4.2), for any log with losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from libs.contracts.agent import MetricsReported
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import JobArrived
from libs.contracts.read_models import STATUS_BY_STATE
from libs.lifecycle import Lives, curves
from libs.lifecycle.curves import Curve, Epoch


class JobCurve(msgspec.Struct, frozen=True, kw_only=True):
    """What the losses of one job say."""

    job_id: str
    status: str
    """`passed`, `killed` or `unsuccessful`; empty where it has not ended."""
    epochs: float
    """The last epoch, as the script counts; where it counts from 0, one more."""
    best_epoch: float
    near_epoch: float
    """The first within 0.1 % of the lowest loss."""
    gpu_s: float
    """GPU seconds until the end of the last epoch."""
    gpu_s_after: float
    """Of these, after `near_epoch`."""


class Convergence(msgspec.Struct, frozen=True, kw_only=True):
    """The four numbers of the figure for jobs of one status. Ratios from 0 to 1; None where there is no such job."""

    jobs: int
    best_at_last_ratio: float | None
    """Jobs with their lowest loss in their last epoch."""
    near_by_ratio: float | None
    """Jobs that were within 0.1 % of it after the given part of their epochs."""
    gpu_time_after_ratio: float | None
    """GPU time of all of them after that, of their GPU time."""


EPOCHS_OF_PASSED, EPOCHS_OF_KILLED = 0.40, 0.50
"""The parts of the epochs at which the study looks: 75 % of the passed and 70 % of the killed jobs were near then."""


def curves_of(log: Iterable[Envelope]) -> list[JobCurve]:
    """The jobs of a control log, from its beginning, that have reported their loss; in order of arrival.

    The loss is the metric that the job says it is (`loss_metric`).
    """
    lives, found = Lives(), dict[str, Curve]()
    metrics: dict[str, str] = {}
    first: dict[str, float] = {}
    for envelope in log:
        event = envelope.event
        lives.take(event, envelope.time_s)
        if isinstance(event, JobArrived):
            metrics.setdefault(event.job_id, event.spec.loss_metric)
        elif (
            isinstance(event, MetricsReported) and (loss := event.values.get(metrics.get(event.job_id, ""))) is not None
        ):
            gpu_s = lives.jobs[event.job_id].books.gpu_s_until(envelope.time_s)
            epoch = Epoch(epoch=event.step, loss=loss, gpu_s=gpu_s)
            found[event.job_id] = curves.take(found.get(event.job_id, Curve()), epoch)
            first[event.job_id] = min(first.get(event.job_id, event.step), event.step)
    return [_job_curve(lives, job_id, found[job_id], first[job_id]) for job_id in lives.jobs if job_id in found]


def figure_9(jobs: Sequence[JobCurve], status: str, epochs_ratio: float) -> Convergence:
    """The numbers of the figure, for the jobs of one status.

    Args:
        jobs: of a log.
        status: `passed` or `killed`.
        epochs_ratio: the part of the epochs at which is looked whether jobs are near their lowest loss.
    """
    chosen = [job for job in jobs if job.status == status]
    gpu_s = sum(job.gpu_s for job in chosen)
    return Convergence(
        jobs=len(chosen),
        best_at_last_ratio=_ratio([job.best_epoch == job.epochs for job in chosen]),
        near_by_ratio=_ratio([job.near_epoch <= epochs_ratio * job.epochs for job in chosen]),
        gpu_time_after_ratio=sum(job.gpu_s_after for job in chosen) / gpu_s if gpu_s > 0 else None,
    )


def _job_curve(lives: Lives, job_id: str, curve: Curve, first: float) -> JobCurve:
    last, best, near = curve.last, curve.best, curve.near_best
    assert last is not None and best is not None and near is not None
    shift = 1.0 if first == 0 else 0.0
    return JobCurve(
        job_id=job_id,
        status=STATUS_BY_STATE.get(lives.jobs[job_id].state, ""),
        epochs=last.epoch + shift,
        best_epoch=best.epoch + shift,
        near_epoch=near.epoch + shift,
        gpu_s=last.gpu_s,
        gpu_s_after=last.gpu_s - near.gpu_s,
    )


def _ratio(holds: Sequence[bool]) -> float | None:
    return sum(holds) / len(holds) if holds else None
