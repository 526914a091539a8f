"""What coordination remembers of a GPU. Nothing here decides."""

from __future__ import annotations

import msgspec

from libs.coordination.readings import Readings, TaskReading
from libs.coordination.settings import DEFAULTS, Settings


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a task was told to apply."""

    change: int
    limit_bytes: int | None
    at_s: float


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that a task wanted at a time; what was wanted before, and was not more, is forgotten."""

    at_s: float
    wanted_bytes: int


class Reported(msgspec.Struct, kw_only=True):
    """What the log has of a task, so that it gets one change per `fact_s`."""

    limit_bytes: int | None = None
    limit_s: float | None = None
    """When that was said; None: never."""
    share_ratio: float = 0.0
    share_s: float | None = None
    cause: str = ""
    """Why its share is what it is now: the code of a reason."""
    cause_s: float = 0.0
    """Since when,"""
    granted_s: float = 0.0
    """and that time, each part of it times the share that was in force."""


class Watch(msgspec.Struct, kw_only=True):
    """What a guest did since its last period of `strike_s` began."""

    since_s: float
    computed_s: float
    closed_s: float
    closed: bool = True
    """Its gates were closed all the time."""
    strikes: int = 0
    """Periods in a row in which it did not keep to them."""


class Occupant(msgspec.Struct, kw_only=True):
    """A task on the GPU, or one that waits for its admission."""

    seen: TaskReading
    since_s: float
    """When it came, or changed its role."""
    admitted: bool = False
    limit_bytes: int | None = None
    """The limit that it was told last."""
    change: int = 0
    confirmed_bytes: int | None = None
    """The limit of the newest change that it is known to have applied."""
    unconfirmed: list[Told] = []
    """Later ones, oldest first: any of them may be in force by now."""
    took_s: float = 0.0
    """From the newest confirmed change until it was applied."""
    peaks: list[Peak] = []
    """The largest, then the largest after that, and so on."""
    settled: bool = False
    """Of a guest: its owner has been stable beside it."""
    owner_minibatches: int = 0
    """Of a guest: those of its owner when both were there."""
    share_ratio: float = 0.0
    """In force."""
    level: float = 0.0
    """The share that it has when its gates are opened."""
    level_s: float = 0.0
    """When that changed, and below how many mini-batches the owner had done."""
    level_minibatches: int = 0
    level_tried: bool = False
    """It has had this share since."""
    yielded: bool = False
    """It was asked to leave the GPU."""
    paced: bool = False
    watch: Watch | None = None
    reported: Reported = msgspec.field(default_factory=Reported)
    cause: str = ""
    """Why its limit changed last: the code of a reason."""

    @property
    def task(self) -> str:
        """Names it."""
        return self.seen.task

    @property
    def guest(self) -> bool:
        """Its role."""
        return self.seen.guest

    @property
    def peak_bytes(self) -> int:
        """The most that it wanted recently; 0: nothing is known."""
        return self.peaks[0].wanted_bytes if self.peaks else 0


class Ledger(msgspec.Struct, kw_only=True):
    """What guests cost the owner, and what they may cost it; times in seconds of the owner's mini-batches."""

    minibatches: int
    """Of the owner, and those with closed gates, as accounted for."""
    closed_minibatches: int
    baseline: list[float] = []
    """Mini-batches with closed gates, oldest first."""
    opened: list[float] = []
    """The last three with open gates."""
    credit_s: float = 0.0
    reserved_s: float = 0.0
    """Expected cost of grants that no mini-batch has shown yet."""
    cost_ratio: float = 1.0
    """What guests cost per second of open gates and unit of share; 1 until it is known."""
    open_s: float = 0.0
    """Time with open gates that no mini-batch has shown yet,"""
    used_s: float = 0.0
    """and that time, each part of it times the share that was in force."""
    open_until_s: float | None = None
    """End of the grant in force."""
    recent_open: float = 0.0
    """Mini-batches of late with open gates, and with closed ones; older ones count less."""
    recent_closed: float = 0.0
    probes: int = 0
    """Mini-batches with closed gates to be waited for, because the owner seems to be in another phase."""


class Burst(msgspec.Struct, kw_only=True):
    """An owner's mini-batches that do not fit."""

    first_minibatch: int
    """Mini-batches that were whole before."""
    host_bytes: int
    limits: dict[str, int | None] = {}
    """{guest: its limit when it began}."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that could go from one guest to another."""

    giver: str
    taker: str
    steps: int
    """Of `trade_ratio` each."""


class Window(msgspec.Struct, kw_only=True):
    """A measurement of rates."""

    since_s: float
    minibatches: dict[str, int]
    """{guest: mini-batches when it began}."""
    durations_s: dict[str, list[float]]
    """{guest: its mini-batches since then, those that have been seen}."""
    last: dict[str, int]
    """{guest: mini-batches at the last look}."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What a window has measured."""

    per_s: dict[str, float]
    """{guest: its rate}, mini-batches per second."""
    errors: dict[str, float]
    """{guest: the standard error of that rate, as a part of it}."""


class Trial(msgspec.Struct, kw_only=True):
    """A move that is being tried."""

    move: Move
    moved_bytes: int
    is_moved: bool = False
    """The split in force is that with the move."""
    window: Window | None = None
    """None: limits are being applied."""
    with_move: list[Rates] = []
    """Oldest first; those without it are `Trading.without_move`."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A move that was tried at this split and taken back."""

    move: Move
    gain: float
    """Of the sum of rates, in the middle of all comparisons."""


class Trading(msgspec.Struct, kw_only=True):
    """How guests without an owner share the memory."""

    split: dict[str, int] = {}
    demands: dict[str, int] = {}
    """{guest: what it wanted when the split was made}; 0: unknown."""
    best: dict[str, float] = {}
    """{guest: its best rate}, mini-batches per second."""
    refused: list[Refusal] = []
    favoured: Move | None = None
    """The last one that was kept."""
    trial: Trial | None = None
    without_move: list[Rates] = []
    """The last ones that were measured with the split that trials begin with, oldest first."""
    next_s: float = 0.0
    """No trial begins before."""


class Coordination(msgspec.Struct, kw_only=True):
    """One GPU."""

    settings: Settings = DEFAULTS
    readings: Readings | None = None
    """The last look; None: there was none."""
    at_s: float = 0.0
    occupants: dict[str, Occupant] = {}
    """{task: what is known of it}, in the order of their coming."""
    ledger: Ledger | None = None
    """While there is an owner with a harness."""
    burst: Burst | None = None
    trading: Trading | None = None
    """While there are several guests and no owner."""

    @property
    def present(self) -> Readings:
        """The last look, while a step is taken: every step begins with one."""
        assert self.readings is not None, "nothing was looked at"
        return self.readings

    @property
    def grain_bytes(self) -> int:
        """Of the GPU's memory; less does not count."""
        return int(self.settings.grain_ratio * self.present.capacity_bytes)
