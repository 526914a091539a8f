"""The book of sharing: which jobs are on the same GPUs as which others, and on what grounds."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Grounds(StrEnum):
    """Why two jobs share GPUs."""

    ALLOCATION = "allocation"
    """They are a row of the allocation in force and have this round together (Gavel, section 3.1)."""
    TRIAL = "trial"
    """They are packed, and introspection has not judged yet (Gandiva, section 4.2)."""
    PACK = "pack"
    """They are packed, and do more together than by turns."""


PACKED = (Grounds.TRIAL, Grounds.PACK)


class Companion(msgspec.Struct, frozen=True, kw_only=True):
    """The job that another one shares its GPUs with."""

    job_id: str
    grounds: Grounds


class Book(msgspec.Struct, kw_only=True):
    """A job has one companion at most."""

    companions: dict[str, Companion] = {}
    """{job id: the job that it shares its GPUs with}, both ways."""
    incompatible: dict[str, None] = {}
    """Pairs that did less together than by turns."""

    def paired(self, job_id: str) -> str | None:
        """The job with which this one has its round, by the allocation."""
        companion = self.companions.get(job_id)
        return companion.job_id if companion is not None and companion.grounds is Grounds.ALLOCATION else None

    def packed(self, job_id: str) -> str | None:
        """The job with which this one is packed, on trial or for good."""
        companion = self.companions.get(job_id)
        return companion.job_id if companion is not None and companion.grounds in PACKED else None

    def on_trial(self, job_id: str) -> bool:
        """Whether the job is packed, and there is no verdict yet."""
        companion = self.companions.get(job_id)
        return companion is not None and companion.grounds is Grounds.TRIAL

    def packs(self) -> Iterator[tuple[str, str]]:
        """Each pack once, in the order in which they began: the job that was on the GPUs first, and the other."""
        seen: dict[str, None] = {}
        for job_id, companion in self.companions.items():
            if companion.grounds in PACKED and companion.job_id not in seen:
                seen[job_id] = None
                yield job_id, companion.job_id

    def pair(self, job_id: str, other: str, grounds: Grounds) -> None:
        """The two share GPUs from now on."""
        self.companions[job_id] = Companion(job_id=other, grounds=grounds)
        self.companions[other] = Companion(job_id=job_id, grounds=grounds)

    def keep(self, job_id: str, other: str) -> None:
        """The two are a good pack: their trial is over. Nothing happens when they have been parted meanwhile."""
        if self.packed(job_id) == other:
            self.pair(job_id, other, Grounds.PACK)

    def part(self, job_id: str) -> None:
        """The job is packed with no other any more."""
        other = self.packed(job_id)
        if other is not None:
            del self.companions[job_id]
            self.companions.pop(other, None)

    def end_pairs(self) -> list[str]:
        """No allocation pairs jobs any more; returns those that were paired."""
        gone = [job_id for job_id, companion in self.companions.items() if companion.grounds is Grounds.ALLOCATION]
        for job_id in gone:
            del self.companions[job_id]
        return gone
