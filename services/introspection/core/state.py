"""What the judging core knows: how fast jobs are alone, which share GPUs, what guests cost owners, how losses fall."""

from __future__ import annotations

import msgspec

from libs.contracts import settings
from libs.contracts.introspection import OWNER
from libs.lifecycle.curves import Curve
from libs.lifecycle.life import Life


class Pack(msgspec.Struct, kw_only=True):
    """Two jobs that share their GPUs."""

    jobs: tuple[str, str]
    since_s: float
    trial_ends_s: float
    together: dict[str, float] = {}
    """{job id: rate beside the other}; emptied by each verdict."""
    kept: bool = False
    """PackSucceeded has been said."""
    failed: bool = False
    """PackFailed has been said; placement is about to part them."""


class Resident(msgspec.Struct, kw_only=True):
    """A job's attempt on its GPUs."""

    gpus: list[str]
    """`NODE:INDEX` of each."""
    guest: bool
    runs: bool = True
    """It is not suspended."""
    changed_s: float = 0.0
    """Since when it has been on its GPUs with the guests that it has there now."""
    alone_s: list[float] = []
    """Of an owner: its mini-batch times without guests, one per profile, the latest ones."""
    in_a_row: int = 0
    """Profiles in a row, up to the newest, in which its guests slowed it down."""


class Followed(msgspec.Struct, kw_only=True):
    """A job that wants to know when its loss improves no more."""

    life: Life
    """For its GPU time."""
    metric: str
    stops: bool
    """It wants to be stopped then."""
    epochs: int | None = None
    """As it asked; None: the setting counts. So does `ratio`."""
    ratio: float | None = None
    curve: Curve = msgspec.field(default_factory=Curve)
    told: bool = False
    """JobConverged has been said."""


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    alone: dict[str, float] = {}
    """{job id: its rate while it had its GPUs to itself}."""
    packs: dict[str, Pack] = {}
    """{job id that the pack is called after: the pack}."""
    residents: dict[str, Resident] = {}
    """{job id: its attempt}, of jobs that have been placed and have not left."""
    on_gpu: dict[str, dict[str, None]] = {}
    """{`NODE:INDEX`: jobs of these that have the GPU}, of GPUs that any has."""
    followed: dict[str, Followed] = {}
    """{job id: its losses}, of jobs that asked for it and have not ended."""
    converge_ratio: float = settings.default(OWNER, "converge_ratio")
    converge_epochs: float = settings.default(OWNER, "converge_epochs")

    def settle(self, job_id: str, resident: Resident) -> Resident:
        """The job's attempt is on its GPUs from now on."""
        self.residents[job_id] = resident
        for gpu in resident.gpus:
            self.on_gpu.setdefault(gpu, {})[job_id] = None
        return resident

    def leave(self, job_id: str) -> Resident | None:
        """The job's attempt is on them no more. Returns what it was; None: it was on none."""
        resident = self.residents.pop(job_id, None)
        for gpu in resident.gpus if resident is not None else ():
            del self.on_gpu[gpu][job_id]
            if not self.on_gpu[gpu]:
                del self.on_gpu[gpu]
        return resident
