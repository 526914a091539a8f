"""The record that simulated tasks keep of themselves, as a script that appends to a file; no service reads it.

It is about what has happened to the work, not about what was decided or reported: it shows a job that two attempts
train at the same time, or that is trained to its end twice, though the log agrees with itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DONE = 1e-3
"""Seconds, or units of work, that rounding may hide."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Progress of an attempt without a break."""

    job_id: str
    attempt: int
    nodes: tuple[str, ...]
    """Nodes of the tasks that have made it."""
    from_s: float
    to_s: float
    done_from: float
    """Steps, or seconds of work, done before; counted from the beginning of the job."""
    done_to: float
    total: float
    """All of the attempt's work."""

    def __str__(self) -> str:
        """The line of it in a story."""
        where = ", ".join(self.nodes)
        times, work = f"{self.from_s:.6g} to {self.to_s:.6g} s", f"{self.done_from:.6g} to {self.done_to:.6g}"
        return f"attempt {self.attempt} of {self.job_id} on {where}: {times}, {work} of {self.total:.6g} done"

    @property
    def ends_the_work(self) -> bool:
        """Whether the work of the attempt was over with it."""
        return self.done_to >= self.total - DONE


class Witness:
    """All stretches of a run, in order of their ends. Trials are left out: they are no part of the job's work."""

    def __init__(self, *, keep: bool = True) -> None:
        """`keep`: False records nothing, for runs that are too long to be remembered."""
        self._keep = keep
        self.stretches: list[Stretch] = []

    def note(
        self,
        key: tuple[str, int],
        nodes: tuple[str, ...],
        times_s: tuple[float, float],
        done: tuple[float, float],
        total: float,
    ) -> None:
        """Record what an attempt has done between two moments."""
        if self._keep and times_s[1] > times_s[0]:
            self.stretches.append(
                Stretch(
                    job_id=key[0],
                    attempt=key[1],
                    nodes=nodes,
                    from_s=times_s[0],
                    to_s=times_s[1],
                    done_from=done[0],
                    done_to=done[1],
                    total=total,
                )
            )

    def of(self, job_id: str) -> list[Stretch]:
        """The stretches of a job, in order of their beginnings."""
        return sorted((each for each in self.stretches if each.job_id == job_id), key=lambda each: each.from_s)

    def overlaps(self, margin_s: float = 0.0) -> list[str]:
        """Name the stretches of two attempts of one job that overlap by more than `margin_s`, a sentence each."""
        found = []
        for job_id in dict.fromkeys(each.job_id for each in self.stretches):
            stretches = self.of(job_id)
            for number, one in enumerate(stretches):
                for other in stretches[number + 1 :]:
                    if other.from_s >= one.to_s - margin_s - DONE:
                        break
                    if other.attempt != one.attempt:
                        both_s = min(one.to_s, other.to_s) - other.from_s
                        if both_s > margin_s + DONE:
                            found.append(f"{both_s:.6g} s at the same time: {one}; {other}")
        return found

    def after(self, ends_s: Mapping[str, float], margin_s: float = 0.0) -> list[str]:
        """Name the stretches that go on for more than `margin_s` after the end of their job, a sentence each.

        Args:
            ends_s: {job id: time of its terminal event}.
        """
        return [
            f"progress after the job's end at {ends_s[each.job_id]:.6g} s: {each}"
            for each in self.stretches
            if each.job_id in ends_s and each.to_s > ends_s[each.job_id] + margin_s + DONE
        ]

    def finishes(self, job_id: str) -> list[Stretch]:
        """The stretches that have ended the work of a job: one, if it was done once."""
        return [each for each in self.of(job_id) if each.ends_the_work]

    def unfinished(self, job_ids: Sequence[str]) -> list[str]:
        """The jobs of these whose work has begun, and has not come to its end."""
        return [job_id for job_id in job_ids if self.of(job_id) and not self.finishes(job_id)]

    def gaps(self, job_id: str) -> list[str]:
        """Name the work of a job that is missing before its last stretch, a sentence each.

        An attempt goes on from the beginning, or from where an earlier one has stopped.
        """
        found, stopped_at = [], [0.0]
        last_of: dict[int, Stretch] = {}
        for each in self.of(job_id):
            before = last_of.get(each.attempt)
            known = stopped_at if before is None else [before.done_to]
            if all(abs(each.done_from - done) > DONE for done in known):
                found.append(f"begins where nothing had stopped: {each}")
            last_of[each.attempt] = each
            stopped_at.append(each.done_to)
        return found
