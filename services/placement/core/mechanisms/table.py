"""The mechanisms by the kind of policy that each realises. A new one is a new room and one line here."""

from __future__ import annotations

from services.placement.core.mechanism import Mechanism
from services.placement.core.mechanisms.queueing.mechanism import QueueingMechanism
from services.placement.core.mechanisms.rounds.mechanism import RoundsMechanism
from services.placement.core.mechanisms.slicing.mechanism import SlicingMechanism

MECHANISMS: dict[str, Mechanism] = {
    mechanism.kind: mechanism for mechanism in (QueueingMechanism(), RoundsMechanism(), SlicingMechanism())
}
