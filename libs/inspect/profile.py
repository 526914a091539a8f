"""What was measured of one job: its mini-batches, its memory, its GPUs, and when it stood still."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libs.contracts.envelope import Record
from libs.contracts.introspection import JobProfiled
from libs.lifecycle import Lives, Suspension


class Profile(msgspec.Struct, kw_only=True):
    """How fast a job has trained, with how much memory, and when it stood still: over all of its attempts."""

    began_s: float | None = None
    """When its first task ran; None: none has."""
    points: list[JobProfiled] = []
    stood_still: list[Suspension] = []

    @property
    def memory_peak_bytes(self) -> int:
        """The most within a mini-batch."""
        return max((point.memory_peak_bytes for point in self.points), default=0)

    @property
    def memory_min_bytes(self) -> int:
        """The least between two mini-batches: what a suspension has to move."""
        return min((point.memory_min_bytes for point in self.points), default=0)

    @property
    def rate_per_s(self) -> float | None:
        """Mini-batches per second over all that was measured."""
        measured_s = sum(point.window_s for point in self.points)
        return sum(p.rate_per_s * p.window_s for p in self.points) / measured_s if measured_s else None

    @property
    def utilisation_ratio(self) -> float | None:
        """Mean GPU utilisation where it is known."""
        known = [point.gpu_utilisation_ratio for point in self.points if point.gpu_utilisation_ratio is not None]
        return sum(known) / len(known) if known else None


def profile_of(records: Iterable[Record], job_id: str) -> Profile | None:
    """Fold a control log; None when nothing is said of such a job."""
    profile, lives, known = Profile(), Lives(), False
    for record in records:
        event = record.envelope.event
        if event.subject != job_id:
            continue
        known = True
        lives.take(event, record.envelope.time_s)
        if isinstance(event, JobProfiled):
            profile.points.append(event)
        if (life := lives.jobs.get(job_id)) is None:
            continue
        profile.began_s = life.books.first_task_s
        still = life.books.suspension
        if still is not None and (not profile.stood_still or profile.stood_still[-1] is not still):
            profile.stood_still.append(still)
    return profile if known else None
