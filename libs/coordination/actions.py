"""What a step asks for."""

from __future__ import annotations

import msgspec

from libs.contracts.base import Event


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """To be done for one task; harmless when repeated."""

    task: str


class SetLimit(Action, frozen=True, kw_only=True, tag="set_limit"):
    """Its processes on this GPU are to apply this limit at their next boundary."""

    limit_bytes: int | None
    """Of each process's memory on the GPU; None: unlimited."""
    change: int
    """Number of the change, from 1."""


class SetShare(Action, frozen=True, kw_only=True, tag="set_share"):
    """Of the GPU's time outside of the owner's gaps; 0: its gates are closed there."""

    share_ratio: float


class Admit(Action, frozen=True, kw_only=True, tag="admit"):
    """It may begin, or go on. The limit that it begins with precedes this."""


class Suspend(Action, frozen=True, kw_only=True, tag="suspend"):
    """Its memory is to leave the GPU; it goes on when it is admitted again."""

    why: str


class Stop(Action, frozen=True, kw_only=True, tag="stop"):
    """It cannot be suspended and must end; its job is not to blame."""

    why: str


class Pace(Action, frozen=True, kw_only=True, tag="pace"):
    """Whether its processes are stopped and continued from outside, because its gates do not hold."""

    paced: bool


AnyAction = SetLimit | SetShare | Admit | Suspend | Stop | Pace


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one look at a GPU."""

    actions: list[AnyAction] = []
    open_guests: int = 0
    """Guests with gates that may be open outside of gaps from now on."""
    facts: list[Event] = []
