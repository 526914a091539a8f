"""What the judging core knows: how fast jobs are alone, which share GPUs, what guests cost owners, how losses fall."""

from __future__ import annotations

import msgspec

from libs.contracts import settings
from libs.contracts.introspection import OWNER
from libs.lifecycle.curves import Curve
from libs.lifecycle.life import Life
from libs.lifecycle.residents import Residents


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


class Owner(msgspec.Struct, kw_only=True):
    """How an owner of GPUs does where it is."""

    alone_s: list[float] = []
    """Its mini-batch times without guests, one per profile, the latest ones."""
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
    residents: Residents = msgspec.field(default_factory=Residents)
    """Which jobs share GPUs."""
    owners: dict[str, Owner] = {}
    """{job id: what was measured of it where it is now}."""
    followed: dict[str, Followed] = {}
    """{job id: its losses}, of jobs that asked for it and have not ended."""
    converge_ratio: float = settings.default(OWNER, "converge_ratio")
    converge_epochs: float = settings.default(OWNER, "converge_epochs")
