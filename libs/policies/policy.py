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


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One policy."""

    name: str
    kind: str
    """A `Kind`, or the kind of another mechanism."""
    describes: str
    """One sentence for people."""
    moves_live: bool = True
    """Whether jobs may be moved to other nodes while they run."""
    moves_to_improve: bool = False
    """Whether running jobs are moved for no other reason than to be better off elsewhere."""
    packs_on_trial: bool = False
    """Whether jobs are put on the GPUs of others on trial; which ones follows from how busy their GPUs are."""
