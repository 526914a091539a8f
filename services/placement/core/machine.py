"""The whole table of placement: importing the subjects fills it."""

from __future__ import annotations

from services.placement.core import scheduler
from services.placement.core.lifecycle import abandoning, arrivals, attempts, nodes, requests, transitions
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.moving import handing_over, starting
from services.placement.core.lifecycle.table import machine, reactions
from services.placement.core.mechanisms.queueing.walk import Reservations
from services.placement.core.mechanisms.rounds.ledger import Accounts
from services.placement.core.mechanisms.slicing.service_time import ServiceTime
from services.placement.core.sharing import observing
from services.placement.core.sharing.packs import Packs

__all__ = [
    "abandoning",
    "arrivals",
    "attempts",
    "handing_over",
    "machine",
    "nodes",
    "observing",
    "requests",
    "scheduler",
    "starting",
    "transitions",
]

listeners.extend((Accounts(), Packs(), ServiceTime(), Reservations()))
scheduler.decide_with(reactions)
