"""Why a job that fits the cluster has to wait for others, or will never run."""

from __future__ import annotations

from collections.abc import Mapping

from libs.contracts.groups import Condition
from libs.contracts.reasons import DEPENDENCY_NEVER_MET, PendingReason, Reason
from libs.kernel.words import counted
from services.admission.core.pending import Group, Pending

_NAMED = 3
"""Most of the things that a job waits for which its reason names: a job may wait for hundreds."""
_HOW = {Condition.OK: "to succeed", Condition.ANY: "to end", Condition.FAIL: "to fail"}


def not_met(pending: Pending) -> Reason:
    """The job waits for these to end."""
    named = [f"{on} {_HOW[condition]}" for on, condition in list(pending.missing.items())[:_NAMED]]
    more = len(pending.missing) - len(named)
    return Reason(
        code=PendingReason.DEPENDENCY_NOT_MET,
        message=f"waits for {', '.join(named)}{f' and for {more} more' if more else ''}",
        numbers={"missing": len(pending.missing)},
    )


def never_met(pending: Pending) -> Reason:
    """What the job waits for can never be."""
    return Reason(code=DEPENDENCY_NEVER_MET, message=pending.broken)


def quarantined(named: Mapping[str, str]) -> Reason:
    """The job names inputs that are in quarantine.

    Args:
        named: {input: why it is there}.
    """
    said = "; ".join(f"input {name} is in quarantine: {why}" for name, why in named.items())
    return Reason(code=PendingReason.INPUT_QUARANTINED, message=said, numbers={"inputs": len(named)})


def array_limit(pending: Pending, group: Group) -> Reason:
    """As many jobs of its array are on their way as may be at once."""
    assert pending.group is not None, "a job with a turn has an array"
    assert group.at_once is not None, "without a limit there is room"
    name, at_once = pending.group.group_id, group.at_once
    return Reason(
        code=PendingReason.ARRAY_LIMIT,
        message=f"array {name} may have {counted(at_once, 'job')} at once, and has {len(group.through)}",
        numbers={"at_once": at_once, "jobs": len(group.through)},
    )
