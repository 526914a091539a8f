"""What is heard of attempts that make progress: how good their scripts say they are, and their profiles."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from libs.contracts.introspection import JobProfiled
from libs.sim.agenda import Agenda
from libs.sim.facts import Facts
from libs.sim.nodes import Node
from libs.sim.options import Options
from libs.sim.processes import Key
from libs.sim.work import Attempt


class Progress:
    """Says it while the attempts go on."""

    def __init__(
        self,
        agenda: Agenda,
        options: Options,
        seed: int,
        nodes: Mapping[str, Node],
        facts: Facts,
        neighbours: Callable[[Attempt], list[Attempt]],
    ) -> None:
        """Of the jobs of a cluster.

        Args:
            agenda: of the simulation.
            options: how often jobs are profiled, and how busy models keep a GPU.
            seed: of the noise of reports.
            nodes: by id.
            facts: where profiles are said.
            neighbours: attempts that make progress on some of the same GPUs.
        """
        self._agenda, self._options, self._seed = agenda, options, seed
        self._nodes, self._facts, self._neighbours = nodes, facts, neighbours

    def plan(self, key: Key, attempt: Attempt) -> None:
        """The gang makes progress from now on."""
        if self._options.profile_every_s is not None:
            self._agenda.after(self._options.profile_every_s, self._profile, key, attempt, attempt.turn)
        self._plan_report(key, attempt)

    def _plan_report(self, key: Key, attempt: Attempt) -> None:
        """Its script says how good it is at the next step of its curve."""
        job = attempt.job
        if job.curve is None or attempt.rate <= 0 or attempt.trial:
            return
        step = job.reported + 1
        if step <= job.curve.reports:
            left = job.curve.done_at(step, job.total) - attempt.done_by(self._agenda.now_s)
            due_s = self._agenda.now_s + max(0.0, left) / attempt.rate
            # Not awaited, as its end: a job that is stopped needs no more reports.
            self._agenda.at(due_s, self._report, key, attempt, attempt.turn, step, awaited=False)

    def _report(self, key: Key, attempt: Attempt, turn: int, step: int) -> None:
        if attempt.turn != turn:
            return
        curve = attempt.job.curve
        assert curve is not None
        attempt.job.reported = step
        value = curve.value(step, random.Random(f"{self._seed}/report/{key[0]}/{step}"))
        self._nodes[next(iter(attempt.nodes))].report(key, float(step), {curve.metric: value})
        self._plan_report(key, attempt)

    def _profile(self, key: Key, attempt: Attempt, turn: int) -> None:
        every_s = self._options.profile_every_s
        if attempt.turn != turn or every_s is None:
            return
        now_s = self._agenda.now_s
        self._facts.find_progress(
            JobProfiled(
                job_id=key[0],
                attempt=key[1],
                window_start_s=now_s - every_s,
                window_s=float(every_s),
                minibatches_total=attempt.steps_at(now_s),
                rate_per_s=attempt.rate if attempt.job.in_steps else 0.0,
                loss=None,
                memory_peak_bytes=0,
                memory_min_bytes=0,
                gpu_utilisation_ratio=self._utilisation(attempt),
            )
        )
        self._agenda.after(every_s, self._profile, key, attempt, turn)

    def _utilisation(self, attempt: Attempt) -> float | None:
        """Of the attempt's GPUs, with everything that runs there."""
        models = [each.job.model for each in [attempt, *self._neighbours(attempt)]]
        known = [self._options.utilisations.get(model) for model in models]
        return None if None in known else min(1.0, sum(ratio for ratio in known if ratio is not None))
