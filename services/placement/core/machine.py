"""The whole table of placement: importing the subjects fills it."""

from __future__ import annotations

from services.placement.core import scheduler
from services.placement.core.lifecycle import (
    abandoning,
    alarms,
    arrivals,
    attempts,
    bounding,
    cordoning,
    nodes,
    reclaiming,
    requests,
    transitions,
    trials,
)
from services.placement.core.lifecycle.hearing import listeners
from services.placement.core.lifecycle.moving import handing_over, starting
from services.placement.core.lifecycle.suspending import changes
from services.placement.core.lifecycle.table import machine, reactions
from services.placement.core.mechanisms.table import MECHANISMS
from services.placement.core.sharing import observing
from services.placement.core.sharing.accounts import Accounts
from services.placement.core.sharing.guests import expelling, loads, upgrading
from services.placement.core.sharing.packs import Packs

__all__ = [
    "abandoning",
    "alarms",
    "arrivals",
    "attempts",
    "bounding",
    "changes",
    "cordoning",
    "expelling",
    "handing_over",
    "loads",
    "machine",
    "nodes",
    "observing",
    "reclaiming",
    "requests",
    "scheduler",
    "starting",
    "transitions",
    "trials",
    "upgrading",
]

# Mechanisms before accounts: the rounds charge a row's credit with what a job has received since the last booking,
# which is nothing any more once the accounts have booked it.
listeners.extend((*MECHANISMS.values(), Accounts(), Packs(), upgrading.Offers()))
scheduler.decide_with(reactions)
