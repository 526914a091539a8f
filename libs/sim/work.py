"""How long simulated jobs take: what is left of each job, and how fast an attempt gets through it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from libs.contracts.jobs import JobSpec
from libs.contracts.placement import Role
from libs.sim.learning import LearningCurve
from libs.sim.options import Doom, Ending
from libs.sim.throughputs import Throughputs
from libs.sim.witness import Witness

TRIAL_STEP_S = 1.0
"""Length of a mini-batch of a job of which only the time is known."""
EARLY_STEPS = 100.0
"""`steps_100_s` of a result: how long users wait for the first sign of life."""


class Job:
    """One job's work, over all of its attempts. Measured in steps where its rate is known, else in seconds."""

    __slots__ = (
        "_rates",
        "config",
        "curve",
        "done",
        "doomed_at",
        "failures",
        "gpus",
        "in_steps",
        "job_id",
        "model",
        "reported",
        "restartable",
        "steps_100_s",
        "total",
    )

    def __init__(
        self, job_id: str, spec: JobSpec, throughputs: Throughputs, curve: LearningCurve | None = None
    ) -> None:
        self.curve = curve
        """What it reports of itself; None: nothing."""
        self.reported = 0
        """The last step that it has reported, in whichever attempt."""
        work = spec.simulated
        config = (work.model, work.batch_size, spec.gpus.count) if work is not None else None
        self.job_id, self.gpus, self.config = job_id, spec.gpus.count, config
        self.model = work.model if work is not None else ""
        self.restartable = spec.restartable
        self.in_steps = False
        self.total = 0.0
        """Steps or seconds; a job without any simulated work is done at once."""
        self._rates: dict[tuple[str, bool, int], float] = {}
        if work is not None and work.total_steps is not None and config is not None and throughputs.knows(config):
            self.in_steps, self.total = True, work.total_steps
            for gpu_type in throughputs.gpu_types:
                for consolidated in (True, False):
                    for gpus in spec.widths:
                        rate = _rate_with(gpus, config, gpu_type, consolidated, throughputs)
                        self._rates[gpu_type, consolidated, gpus] = rate
        elif work is not None and work.duration_s is not None:
            self.total = work.duration_s
        self.done = 0.0
        """What earlier attempts have left behind as a checkpoint."""
        self.failures = 0
        """Of those that its `Ending` plans, so many have happened."""
        self.doomed_at: float | None = None
        """The next of them happens when so much is done; None: that is not fixed yet, or there is none."""
        self.steps_100_s: float | None = None
        """When the 100th step was done."""

    def planned_doom(self, ending: Ending) -> Doom | None:
        """How it fails next; None: it does not."""
        return ending.dooms[self.failures] if self.failures < len(ending.dooms) else None

    def has_failed(self) -> None:
        """A planned failure has happened."""
        self.failures, self.doomed_at = self.failures + 1, None

    def packed_ratio(self, others: Sequence[Job], gpu_type: str, throughputs: Throughputs) -> float:
        """What is left of its speed while it shares its GPUs: as measured for pairs, else an equal part."""
        if not others:
            return 1.0
        other = others[0]
        if len(others) == 1 and self.config is not None and other.config is not None:
            alone = self.rate(gpu_type, True, self.gpus)
            packed = throughputs.packed_rate(self.config, other.config, gpu_type)
            if packed is not None and alone > 0:
                return packed / alone
        return 1.0 / (1 + len(others))

    def work_of(self, steps: int) -> float:
        """So many mini-batches, no more than all of it, in the unit of its work."""
        return min(self.total, steps if self.in_steps else steps * TRIAL_STEP_S)

    def trial_rate(self, gpu_type: str) -> float:
        """Work per second of its trial there: a mini-batch of it takes as long as one of the gang's does. 0: the job
        cannot run on this type."""
        return self.rate(gpu_type, True, self.gpus)

    def rate(self, gpu_type: str, consolidated: bool, gpus: int) -> float:
        """Steps (or seconds of work) per second on so many GPUs there; 0: the job cannot run on this type."""
        return self._rates.get((gpu_type, consolidated, gpus), 0.0) if self.in_steps else gpus / self.gpus


def _rate_with(
    gpus: int, config: tuple[str, int | None, int], gpu_type: str, consolidated: bool, throughputs: Throughputs
) -> float:
    """Steps per second of an elastic job: its steps do as much on any number of GPUs.

    A table's steps do more on more GPUs: each takes a batch of its own. What it does not say is taken to be linear.
    """
    model, batch_size, asked = config
    measured = throughputs.rate((model, batch_size, gpus), gpu_type, consolidated)
    if measured is None:
        measured = throughputs.rate(config, gpu_type, consolidated)
    return (measured or 0.0) * gpus / asked


class Attempt:
    """One attempt of a gang at its place. It makes progress while all of its tasks run."""

    __slots__ = (
        "_going_since_s",
        "attempt",
        "broken",
        "done",
        "doomed_at",
        "fenced",
        "gpu_type",
        "gpus",
        "hangs_at",
        "hung_s",
        "job",
        "nodes",
        "rate",
        "rate_alone",
        "role",
        "total",
        "trial",
        "turn",
        "width",
        "witness",
    )

    def __init__(
        self,
        job: Job,
        attempt: int,
        width: int,
        role: str = Role.OWNER,
        trial_steps: int | None = None,
        witness: Witness | None = None,
    ) -> None:
        """Begin an attempt that has done nothing yet.

        Args:
            trial_steps: it is the job's trial, and does so much from the beginning, for itself alone.
            witness: records its progress; None: nothing does.
        """
        self.witness = witness
        self.trial = trial_steps is not None
        self.total = job.total if trial_steps is None else job.work_of(trial_steps)
        self.job, self.attempt, self.width, self.role = job, attempt, width, role
        self.nodes: dict[str, bool] = {}
        """{node id: its task runs (False: it is suspended)} of the tasks that have started and not ended."""
        self.fenced: dict[str, None] = {}
        """Nodes without a lease: their tasks are stopped, whatever is wanted of them."""
        self.rate = 0.0
        """Units of work per second, with what is packed with it."""
        self.rate_alone = 0.0
        self.gpu_type = ""
        self.gpus: list[tuple[str, int]] = []
        """(Node id, index) of its GPUs."""
        self.done = 0.0 if self.trial else job.done
        self.doomed_at: float | None = None
        """The attempt fails by itself when so much is done."""
        self.hangs_at: float | None = None
        """It hangs when so much is done."""
        self.hung_s = 0.0
        """How long it has hung while its tasks ran."""
        self.broken = False
        """A task has ended: there is no progress any more."""
        self.turn = 0
        """Counts starts and halts, so that what was planned before a halt can be told from what counts."""
        self._going_since_s: float | None = None

    @property
    def going(self) -> bool:
        """Whether there is progress now."""
        return self._going_since_s is not None

    @property
    def complete(self) -> bool:
        """Whether all tasks run, so that there is progress."""
        return not self.broken and len(self.nodes) == self.width and all(self.nodes.values()) and not self.fenced

    @property
    def steps(self) -> int:
        """Whole steps done; 0 where only the time is known."""
        return int(self.done + 1e-6) if self.job.in_steps else 0

    @property
    def hangs(self) -> bool:
        """Whether it has come to where it hangs."""
        return self.hangs_at is not None and self.done >= self.hangs_at - 1e-6

    def steps_at(self, now_s: float) -> int:
        """Whole steps done by now, while there is progress."""
        return int(self.done_by(now_s) + 1e-6) if self.job.in_steps else 0

    def done_by(self, now_s: float) -> float:
        """Work done by now."""
        return self.done + (0.0 if self._going_since_s is None else (now_s - self._going_since_s) * self.rate)

    @property
    def makes_progress(self) -> bool:
        """Whether it uses its GPUs, or is about to."""
        return self.complete and self.rate_alone > 0 and not self.hangs

    def alone_s(self, now_s: float) -> float:
        """How long what is done by now takes on these GPUs alone."""
        return self.done_by(now_s) / self.rate_alone

    def go(self, now_s: float) -> float:
        """Progress begins. Returns the seconds until the attempt is done or fails; jobs that do not fit on a GPU
        together get nowhere, and it is infinite."""
        self.turn += 1
        self._going_since_s = now_s
        goal = min(goal for goal in (self.total, self.doomed_at, self.hangs_at) if goal is not None)
        return max(0.0, goal - self.done) / self.rate if self.rate > 0 else math.inf

    def point_of(self, doom: Doom) -> float:
        """How much is done when it fails so, if the attempt goes on from where it is now."""
        left = self.total - self.done
        return self.done + (doom.at_ratio * left if doom.after_s is None else min(left, doom.after_s * self.rate_alone))

    def halt(self, now_s: float) -> None:
        """Progress ends, for now or for good. Nothing happens when there was none."""
        if self._going_since_s is None:
            return
        before, since_s = self.done, self._going_since_s
        self.testify(now_s)
        self.done = min(self.total, before + (now_s - since_s) * self.rate)
        self._going_since_s = None
        self.turn += 1
        counts = self.job.in_steps and not self.trial
        if counts and self.job.steps_100_s is None and before < EARLY_STEPS <= self.done:
            self.job.steps_100_s = since_s + (EARLY_STEPS - before) / self.rate

    def testify(self, now_s: float) -> None:
        """Have the witness record what has been done since there is progress, if there is."""
        if self.witness is not None and self._going_since_s is not None and not self.trial:
            times, done = (self._going_since_s, now_s), (self.done, min(self.total, self.done_by(now_s)))
            self.witness.note((self.job.job_id, self.attempt), tuple(self.nodes), times, done, self.total)

    def leave_checkpoint(self) -> None:
        """A later attempt goes on from here: the tasks were stopped on purpose, in one piece, and save their work."""
        if not self.broken and self.job.restartable and not self.trial:
            self.job.done = self.done
