"""Tasks that hang: what agents would say of them, judged as introspection judges it."""

from __future__ import annotations

from collections import Counter

from libs.contracts.agent import RankSample, TaskSampled
from libs.contracts.introspection import GpuIdle
from libs.node.alarms import Alarm, Alarms, Limits, Watched
from libs.sim.agenda import Agenda
from libs.sim.facts import Facts
from libs.sim.processes import Key
from libs.sim.work import Attempt

SAMPLE_S = 2.0
"""How often agents sample their tasks; only hanging ones are sampled here, of others nothing would follow."""


class Hanging:
    """Watches the attempts that hang."""

    def __init__(self, agenda: Agenda, facts: Facts) -> None:
        self._agenda, self._facts = agenda, facts
        self._alarms = Alarms(Limits())

    def watch(self, key: Key, attempt: Attempt) -> None:
        """Sample it from now on, until all is said of it or it moves on."""
        # Not awaited, as its end: the job is.
        due_s = self._agenda.now_s + SAMPLE_S
        self._agenda.at(due_s, self._sample, key, attempt, attempt.turn, awaited=False)

    def _sample(self, key: Key, attempt: Attempt, turn: int) -> None:
        if attempt.turn != turn or not attempt.complete:
            return
        attempt.hung_s += SAMPLE_S
        done, gpus = int(attempt.done), Counter(node_id for node_id, _ in attempt.gpus)
        rank = RankSample(
            rank=0,
            minibatches_total=done,
            quiet_s=attempt.hung_s,
            longest_quiet_s=0.0,
            p99_s=1.0 / attempt.rate_alone,
        )
        told: list[Alarm] = []
        for node_id in gpus:
            sample = TaskSampled(
                job_id=key[0],
                attempt=key[1],
                node_id=node_id,
                running=True,
                ranks=[rank],
                computing=False,
                idle_s=attempt.hung_s,
            )
            for fact_key, fact in self._alarms.take(sample, Watched(key[1], gpus)):
                told.append(fact)
                self._facts.find(fact_key, fact)
        if not any(isinstance(fact, GpuIdle) for fact in told):  # the last that is to be said of it
            self.watch(key, attempt)
