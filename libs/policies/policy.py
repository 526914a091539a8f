"""What a policy is: a row that says its name, its kind and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a policy answers, and so which mechanism realises it; each mechanism says of which kind it is."""

    ORDER = "order"
    """Which job is placed next; a job that is placed keeps its GPUs to its end."""
    SHARES = "shares"
    """How much of each GPU type's time each job gets; rounds realise it."""
    TURNS = "turns"
    """Which jobs take turns on which servers; time slices realise it."""


class Way(StrEnum):
    """How a job that holds GPUs is made to give some up for others. Placement says which are open to a job."""

    SHRINK = "shrink"
    """An elastic job goes on with fewer GPUs (Gandiva, section 4.1)."""
    RESTART = "restart"
    """A job that keeps its work is stopped and queued again (Gavel, section 5)."""
    SUSPEND = "suspend"
    """A job stands still on its servers, with its memory off the GPUs (Gandiva, section 4.1)."""
    PREEMPT = "preempt"
    """Any job is stopped and queued again, and does again what it has not saved."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One policy."""

    name: str
    kind: str
    """A `Kind`, or the kind of another mechanism."""
    describes: str
    """One sentence for people."""
    ways: tuple[Way, ...] = ()
    """How a job is made to give GPUs up for others: the first of these that is open to it; none: it keeps them."""
    moves_live: bool = True
    """Whether jobs may be moved to other nodes while they run."""
    moves_to_improve: bool = False
    """Whether running jobs are moved for no other reason than to be better off elsewhere."""
    by_quota: bool = False
    """Whether jobs go by how much of their tenants' quotas is in use, before priority and arrival."""
    acquires: bool = False
    """Whether gangs acquire GPUs close together for a while, give them back, and accept less after some tries."""
    brings_guests: bool = False
    """Whether opportunistic jobs run as guests beside those that it places, unless it is said that they do not."""
    packs_on_trial: bool = False
    """Whether jobs are put on the GPUs of others on trial; which ones follows from how busy their GPUs are."""
