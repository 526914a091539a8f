"""How a simulated cluster behaves: delays, speeds, failures. All numbers have defaults without any trouble."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from libs.sim.learning import Surface, no_surface
from libs.sim.leases import Lease
from libs.sim.sharing.beside import Beside
from libs.sim.sharing.demands import JobModels


class FaultKind(StrEnum):
    """What can happen to a node."""

    CRASH = "crash"
    """The node dies with its tasks and is back after `duration_s`."""
    SILENCE = "silence"
    """The network is cut for `duration_s`: agent and tasks go on, nothing is heard or said."""
    AGENT_RESTART = "agent_restart"
    """The agent is away for `duration_s` and adopts its tasks when it is back."""
    LEAVE = "leave"
    """The agent shuts down in order, its tasks are ended; it joins again after `duration_s`."""
    GPU_UNHEALTHY = "gpu_unhealthy"
    """The node's first GPU must not be used for `duration_s`."""
    FREEZE = "freeze"
    """The agent alone stands still for `duration_s`, as after SIGSTOP; its tasks go on, and nobody sees to them."""
    REFUSED_TOKEN = "refused_token"
    """The log takes nothing from the agent for `duration_s`; then it starts anew, with a token that is good."""
    DISK_FULL = "disk_full"
    """For `duration_s` the agent can journal nothing: it takes no orders and says nothing; its heart beats, and shims
    keep the results of tasks that end. An agent that has died meanwhile starts when there is room."""
    JOURNAL_LOST = "journal_lost"
    """The agent is away for `duration_s`; then its journal is gone, or damaged and set aside, and it is made anew from
    the folders of the tasks."""
    LATE = "late"
    """For `duration_s` the node's facts come to the log later by `delay_s`, in their order."""
    DOUBLED = "doubled"
    """For `duration_s` each of the node's facts is reported twice, under two ids, as from a journal made anew."""
    CLOCK = "clock"
    """For `duration_s` the node's clock is wrong: `offset_s` ahead, and `drift_ratio` of the time fast."""


SILENCING = (
    FaultKind.CRASH,
    FaultKind.SILENCE,
    FaultKind.AGENT_RESTART,
    FaultKind.LEAVE,
    FaultKind.FREEZE,
    FaultKind.REFUSED_TOKEN,
    FaultKind.JOURNAL_LOST,
)
"""Kinds in which nothing is heard of the node; one at a time befalls it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Trouble at a given time."""

    time_s: float
    node_id: str
    kind: FaultKind
    duration_s: float
    delay_s: float = 0.0
    offset_s: float = 0.0
    drift_ratio: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Doom:
    """How an attempt fails by itself."""

    at_ratio: float
    """Part of the attempt's work that is done by then."""
    exit_code: int | None
    signal: int | None
    stderr_tail: str
    after_s: float | None = None
    """Seconds of work from its start, in the place of the part; not beyond its end."""
    reason: str = ""
    """Why, where that is drawn: what an analysis is to find. Nothing in the simulation reads it."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a job ends, where that is known beforehand: it fails so many times, then succeeds or is cancelled."""

    dooms: tuple[Doom, ...] = ()
    """Of its failures, in order; attempts that end for other reasons use up none."""
    is_killed: bool = False
    """Its user cancels it where its work would be done."""


class TakeoverFailure(StrEnum):
    """How a task fails to take over the state of an earlier attempt."""

    ENDS = "ends"
    """It ends before it waits for the state."""
    HANGS = "hangs"
    """It never waits for the state."""


WAYS_TO_FAIL = (
    (1, None, "Traceback (most recent call last):\nRuntimeError: simulated failure of the training script"),
    (1, None, "Traceback (most recent call last):\nFileNotFoundError: simulated: no such input"),
    (None, 9, ""),
    (None, 11, "simulated segmentation fault"),
)
"""Exit code, signal and end of stderr of attempts that fail, equally likely."""


@dataclass(frozen=True, kw_only=True)
class FailureModel:
    """What goes wrong at random. Each draw has a generator of its own, named after what it is about.

    So one job more, or one failure more, does not change the luck of the others.
    """

    attempt_failure_ratio: float = 0.0
    """Probability that an attempt fails by itself."""
    hang_ratio: float = 0.0
    """Probability that an attempt hangs somewhere in its work, and keeps its GPUs until it is stopped."""
    straggler_ratio: float = 0.0
    """Probability that an attempt is slow."""
    straggler_speed: float = 0.5
    """Speed of a slow attempt, 1 being normal."""
    takeover_failure_ratio: float = 0.0
    """Probability that a task that is to take over from another one fails before it has."""
    node_mtbf_s: float | None = None
    """Mean time between two crashes of one node; None: nodes don't crash."""
    node_repair_s: float = 1800.0
    """Mean time until a crashed node is back."""

    def doom(self, seed: int, job_id: str, attempt: int) -> Doom | None:
        """Whether and how this attempt fails by itself."""
        if self.attempt_failure_ratio <= 0:
            return None
        luck = random.Random(f"{seed}/attempt/{job_id}/{attempt}")
        if luck.random() >= self.attempt_failure_ratio:
            return None
        exit_code, signal, stderr_tail = luck.choice(WAYS_TO_FAIL)
        return Doom(at_ratio=luck.random(), exit_code=exit_code, signal=signal, stderr_tail=stderr_tail)

    def hang(self, seed: int, job_id: str, attempt: int) -> float | None:
        """The part of this attempt's work after which it hangs; None: it does not."""
        if self.hang_ratio <= 0:
            return None
        luck = random.Random(f"{seed}/hang/{job_id}/{attempt}")
        return luck.random() if luck.random() < self.hang_ratio else None

    def speed(self, seed: int, job_id: str, attempt: int) -> float:
        """Speed of this attempt, 1 being normal."""
        if self.straggler_ratio <= 0:
            return 1.0
        luck = random.Random(f"{seed}/straggler/{job_id}/{attempt}")
        return self.straggler_speed if luck.random() < self.straggler_ratio else 1.0

    def takeover(self, seed: int, job_id: str, attempt: int, node_id: str) -> TakeoverFailure | None:
        """How the node's task of this attempt fails to take over; None: it does not."""
        if self.takeover_failure_ratio <= 0:
            return None
        luck = random.Random(f"{seed}/takeover/{job_id}/{attempt}/{node_id}")
        return luck.choice(list(TakeoverFailure)) if luck.random() < self.takeover_failure_ratio else None

    def crash(self, seed: int, node_id: str, number: int) -> tuple[float, float] | None:
        """The node's `number`-th crash: seconds of life before it, and seconds until it is back."""
        if self.node_mtbf_s is None:
            return None
        luck = random.Random(f"{seed}/node/{node_id}/{number}")
        return luck.expovariate(1 / self.node_mtbf_s), luck.expovariate(1 / self.node_repair_s)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the simulation runs. Times in seconds."""

    start_delay_s: float = 0.0
    """From the order to the start of a task."""
    stop_delay_s: float = 0.0
    """From the order to the end of a task."""
    suspend_delay_s: float = 0.0
    """From the order to suspend a task to its memory being off the GPU; it makes progress meanwhile."""
    resume_delay_s: float = 0.0
    """From free GPUs to a suspended task going on."""
    limit_delay_s: float = 0.0
    """From another limit of a task's memory to its processes keeping to it. Where `models` are given, the speeds of
    jobs that share a GPU have that in them already."""
    move_delay_s: float | None = None
    """From the order to fetch the state of a task elsewhere to its being loaded; None: tasks cannot move live."""
    checkpoint_overhead_s: float = 0.0
    """Added to the start of an attempt that goes on where an earlier one was taken off its GPUs."""
    scales: bool = False
    """Whether nodes make guests as small and as slow as need be, so that they may be beside owners."""
    self_test_s: float = 0.0
    """How long a node tries out GPUs that are suspected to be broken."""
    detect_s: float = 30.0
    """How long a node is silent before introspection calls it lost, where nodes have no lease."""
    lease: Lease | None = None
    """What stops the tasks of a silent node before it is called lost; None: nothing does."""
    profile_every_s: float | None = None
    """How often a running job's rate is reported (`JobProfiled`); None: never."""
    utilisations: Mapping[str, float] = field(default_factory=dict)
    """{model: part of a GPU that a job of it uses alone}, for the reports; models that are missing: unknown."""
    models: JobModels | None = None
    """What jobs ask of their GPUs; None: two on a GPU have what the table says, else equal parts, and memory has no
    size."""
    beside: Beside = Beside.ANTMAN
    """How jobs on a GPU are kept from each other, where `models` are given."""
    parks: bool = True
    """Whether the memory of a suspended task can be taken off its GPUs."""
    surface: Surface = no_surface
    """What jobs report of how good they are."""
    interleaving: int | None = None
    """Seed of an order in which services take their turns with some lag; None: each is always up to date."""
    keep_log: bool = True
    """False: forget records once they are handled (results are still counted)."""
    horizon_s: float | None = None
    """Virtual time at which the run is ended in any case."""
    measure: tuple[int, int] | None = None
    """The summary is over these jobs in order of arrival (first, end), and the run ends when they have."""
    failures: FailureModel = field(default_factory=FailureModel)
    endings: Mapping[str, Ending] = field(default_factory=dict)
    """{job id: how it ends}; `failures` draws how the attempts of other jobs fail."""
    faults: tuple[Fault, ...] = ()
