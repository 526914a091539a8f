"""What is chosen for a run, beside its jobs and their rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from libs.sim.sharing.beside import Beside


class Failures(StrEnum):
    """Where the failures of a run come from."""

    NONE = "none"
    """No job fails."""
    TRACE = "trace"
    """From the columns `status`, `attempts` and `duration_s` of the trace."""
    TABLE6 = "table6"
    """Drawn as the Philly study counted them."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Policy, cluster and delays; times in seconds."""

    policy: str
    cluster: str
    gpus_per_server: int = 4
    seed: int = 0
    guests: str | None = None
    """Whether opportunistic jobs run beside those that the policy places: `none` or `antman`; None: as it is made."""
    space_sharing: bool = False
    heterogeneity_agnostic: bool = False
    water_filling: bool = False
    round_s: float = 360.0
    slice_s: float = 60.0
    """Of the policies that let jobs take turns."""
    max_height: float | None = None
    """How many GPUs' worth of jobs may take turns on a GPU; None: the default of the setting."""
    start_delay_s: float = 0.0
    """From the order to the start of a task."""
    suspend_delay_s: float = 0.0
    """From the order to suspend a job to its memory being off the GPU."""
    resume_delay_s: float = 0.0
    """From free GPUs to a suspended job going on."""
    move_delay_s: float | None = None
    """For a job that stands still, until it can go on on another server; None: jobs cannot be moved live."""
    checkpoint_overhead_s: float = 0.0
    restartable: bool = True
    """Whether jobs keep checkpoints; without, they stay on their servers and are suspended between their rounds."""
    references: int | None = None
    """How many configurations were measured beside each other, per number of GPUs; how the others share GPUs is
    estimated. None: all were measured."""
    profiled: float = 0.0
    """With `references`: this part of what the other configurations keep beside references was measured in advance."""
    utilisations: Mapping[str, float] = field(default_factory=dict)
    """{model: part of a GPU that a job of it uses alone}, as it would be measured."""
    profile_every_s: float | None = None
    """How often running jobs are measured (`JobProfiled`); None: where a decision follows from it."""
    models: str | None = None
    """A `job-models/1` file: what jobs ask of their GPUs. None: two on a GPU have what the rates say, else equal
    parts."""
    beside: Beside = Beside.ANTMAN
    """How jobs on a GPU are kept from each other, where it is known what they ask for."""
    parks: bool = True
    """Whether guests that have to leave keep their work; without, they start anew."""
    max_guests: float | None = None
    """On a GPU; None: the default of the setting."""
    guest_utilisation: float | None = None
    """How busy a GPU may have been that takes another guest; None: the default of the setting (the paper's M)."""
    failures: Failures = Failures.NONE
    trial_above_gpus: int = 0
    """Jobs of more GPUs run a trial on one of them first; 0: none does."""
    trial_pool: int = 0
    """So many servers, the last ones of the cluster, are set apart for trials."""
    measure: tuple[int, int] | None = None
    """The summary is over these jobs in order of arrival (first, end), and the run ends when they have."""

    def named(self) -> dict[str, Any]:
        """The options as a result names them."""
        named: dict[str, Any] = {
            "gpus_per_server": self.gpus_per_server,
            "space_sharing": self.space_sharing,
            "heterogeneity_agnostic": self.heterogeneity_agnostic,
            "water_filling": self.water_filling,
            "round_s": self.round_s,
            "slice_s": self.slice_s,
            "start_delay_s": self.start_delay_s,
            "suspend_delay_s": self.suspend_delay_s,
            "resume_delay_s": self.resume_delay_s,
            "checkpoint_overhead_s": self.checkpoint_overhead_s,
        }
        given = {
            "failures": None if self.failures is Failures.NONE else self.failures.value,
            "trial_above_gpus": self.trial_above_gpus or None,
            "trial_pool": self.trial_pool or None,
            "guests": self.guests,
            "references": self.references,
            "profiled": self.profiled or None,
            "move_delay_s": self.move_delay_s,
            "max_height": self.max_height,
            "restartable": None if self.restartable else False,
            "profile_every_s": self.profile_every_s,
            "models": self.models,
            "beside": None if self.beside is Beside.ANTMAN else self.beside.value,
            "parks": None if self.parks else False,
            "max_guests": self.max_guests,
            "guest_utilisation": self.guest_utilisation,
        }
        return named | {name: value for name, value in given.items() if value is not None}
