"""How attempts are doomed: at which point of their work they fail by themselves, or hang."""

from __future__ import annotations

from collections.abc import Mapping

from libs.sim.failing import shows_in_trial
from libs.sim.options import Doom, Options
from libs.sim.processes import Key
from libs.sim.work import Attempt, Job


class Dooms:
    """Of the jobs of a simulation."""

    def __init__(self, options: Options, seed: int, jobs: Mapping[str, Job]) -> None:
        self._options, self._seed, self._jobs = options, seed, jobs

    def plan(self, key: Key, attempt: Attempt) -> None:
        """At which point of the work that is left the attempt fails by itself or hangs, if it does."""
        doom = self.of(key)
        if attempt.trial:
            attempt.doomed_at = attempt.total if doom is not None and shows_in_trial(doom, attempt) else None
            return
        attempt.doomed_at = None if doom is None else attempt.point_of(doom)
        if key[0] in self._options.endings:
            # An attempt that goes on from a checkpoint, or elsewhere, fails where the one before would have.
            job = attempt.job
            job.doomed_at = attempt.doomed_at if job.doomed_at is None else job.doomed_at
            attempt.doomed_at = job.doomed_at
        hang = self._options.failures.hang(self._seed, *key)
        if hang is not None:
            attempt.hangs_at = attempt.done + hang * (attempt.job.total - attempt.done)

    def of(self, key: Key) -> Doom | None:
        """How the attempt fails by itself, if it does."""
        ending = self._options.endings.get(key[0])
        if ending is not None:
            return self._jobs[key[0]].planned_doom(ending)
        return self._options.failures.doom(self._seed, *key)
