"""How far expected starts were from the starts that came."""

from __future__ import annotations

from collections import deque
from statistics import median

import msgspec

REMEMBERED = 500
"""Errors that are kept, the latest ones."""
MOST_OF_ONE = 20
"""Expectations that are kept of one job, the latest ones."""
SHORTEST_S = 1.0
"""Waits that are shorter count as this long: of them no error in parts of the wait says anything."""


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the error so far, as parts of the waits that came."""

    basis: str = ""
    """What these expectations rested on; empty: on anything."""
    expectations: int = 0
    """Expectations of which the start has come; at most the latest 500."""
    median_ratio: float | None = None
    """Half of them were off by less; None: none has come yet."""
    p90_ratio: float | None = None


class Said(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An expectation of which the start has not come yet."""

    now_s: float
    at_s: float
    basis: str


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """All that a track knows."""

    said: dict[str, list[Said]] = {}
    """{job that waits: what was said of it}, in order."""
    errors: list[tuple[str, float]] = []
    """Basis and error of expectations of which the start has come, in order."""


class Track:
    """What was said of jobs that wait, until they start.

    Args:
        kept: what an earlier one knew.
    """

    def __init__(self, kept: Kept | None = None) -> None:
        before = kept or Kept()
        self._said = {job_id: deque(said, maxlen=MOST_OF_ONE) for job_id, said in before.said.items()}
        self._errors = deque(before.errors, maxlen=REMEMBERED)

    def said(self, job_id: str, now_s: float, at_s: float, basis: str = "") -> None:
        """It was said at `now_s` that the job is expected to start at `at_s`."""
        said = Said(now_s=now_s, at_s=at_s, basis=basis)
        self._said.setdefault(job_id, deque(maxlen=MOST_OF_ONE)).append(said)

    def started(self, job_id: str, time_s: float) -> None:
        """The job has started."""
        for said in self._said.pop(job_id, ()):
            self._errors.append((said.basis, abs(said.at_s - time_s) / max(SHORTEST_S, time_s - said.now_s)))

    def ended(self, job_id: str) -> None:
        """The job will not start."""
        self._said.pop(job_id, None)

    @property
    def errors(self) -> Errors:
        """So far, of all."""
        return _errors("", [error for _, error in self._errors])

    def errors_by(self, basis: str) -> Errors:
        """So far, of expectations that rested on this; of all, as long as the start of none of those has come."""
        of_basis = [error for on, error in self._errors if on == basis]
        return _errors(basis, of_basis) if of_basis else self.errors

    @property
    def kept(self) -> Kept:
        """What it knows, for the next one."""
        return Kept(said={job_id: list(said) for job_id, said in self._said.items()}, errors=list(self._errors))


def _errors(basis: str, found: list[float]) -> Errors:
    if not found:
        return Errors()
    ascending = sorted(found)
    p90 = ascending[min(len(ascending) - 1, len(ascending) * 9 // 10)]
    return Errors(basis=basis, expectations=len(ascending), median_ratio=median(ascending), p90_ratio=p90)
