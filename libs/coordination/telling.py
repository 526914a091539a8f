"""What the log gets of changes that come many times a minute: per job and `fact_s` one of each kind, the latest."""

from __future__ import annotations

from libs.contracts.agent import ComputeShareChanged, MemoryLimitChanged
from libs.contracts.base import Event
from libs.contracts.reasons import Reason
from libs.coordination import compute, memory
from libs.coordination.state import Coordination, Occupant, Reported
from libs.kernel.words import bytes_of

WORTH_TELLING = 0.05
"""A share that differs by less is not told, unless it is 0."""
MEAN_S = 1.0
"""A share that changes with the ledger is told as its mean, over so long at least."""

_LIMITS = {
    memory.Cause.ALONE: "nothing else is on the GPU",
    memory.Cause.OWNERS: "no guest is on the GPU",
    memory.Cause.OWNER: "an owner begins beside it, or it beside an owner",
    memory.Cause.BESIDE: "what an owner needs is known, the rest is for guests",
    memory.Cause.BURST: "an owner needs more memory",
    memory.Cause.SHARED: "guests share the GPU's memory",
    memory.Cause.TRADED: "memory is moved between guests on trial",
    memory.Cause.BOUNDED: "an operator has bounded it",
}
_SHARES = {
    compute.Cause.FREE: "the GPU has no owner",
    compute.Cause.BEGINS: "the owner is not stable beside it yet",
    compute.Cause.GAPS: "the owner's mini-batches scatter too much to be protected otherwise",
    compute.Cause.SHRINKS: "it applies a smaller limit at its next boundary",
    compute.Cause.PAID: "what it costs the owner stays within the target",
}


def told(state: Coordination, elapsed_s: float, now_s: float) -> list[Event]:
    """The facts that are due."""
    facts: list[Event] = []
    for occupant in state.occupants.values():
        if not occupant.admitted:
            continue
        facts += _limit(state, occupant, now_s)
        if occupant.guest:
            facts += _share(state, occupant, elapsed_s, now_s)
    return facts


def _limit(state: Coordination, occupant: Occupant, now_s: float) -> list[Event]:
    reported, seen = occupant.reported, occupant.seen
    changed = not occupant.unconfirmed and occupant.confirmed_bytes != reported.limit_bytes
    if not changed or not _is_due(state, reported.limit_s, now_s):
        return []
    before, reported.limit_bytes, reported.limit_s = reported.limit_bytes, occupant.confirmed_bytes, now_s
    return [
        MemoryLimitChanged(
            job_id=seen.job_id,
            attempt=seen.attempt,
            node_id=state.present.node_id,
            index=state.present.index,
            from_bytes=before,
            to_bytes=occupant.confirmed_bytes,
            device_bytes=seen.device_bytes,
            cached_bytes=seen.cached_bytes,
            host_bytes=seen.host_bytes,
            took_s=round(occupant.took_s, 3),
            reason=_reason(occupant),
        )
    ]


def _reason(occupant: Occupant) -> Reason:
    limit = "no limit" if occupant.confirmed_bytes is None else f"at most {bytes_of(occupant.confirmed_bytes)}"
    return Reason(
        code=occupant.cause,
        message=f"{limit}: {_LIMITS[occupant.cause]}" if occupant.cause else limit,
        numbers={"peak_bytes": occupant.peak_bytes},
    )


def _share(state: Coordination, guest: Occupant, elapsed_s: float, now_s: float) -> list[Event]:
    reported, seen = guest.reported, guest.seen
    share = _mean(guest, elapsed_s, now_s)
    if share is None or not _differs(share, reported) or not _is_due(state, reported.share_s, now_s):
        return []
    before, reported.share_ratio, reported.share_s = reported.share_ratio, share, now_s
    reported.cause_s, reported.granted_s = now_s, 0.0
    return [
        ComputeShareChanged(
            job_id=seen.job_id,
            attempt=seen.attempt,
            node_id=state.present.node_id,
            index=state.present.index,
            from_ratio=before,
            to_ratio=share,
            reason=Reason(
                code=reported.cause,
                message=f"{share:.0%} of the time beside gaps: {_SHARES[reported.cause]}",
                numbers={"level_ratio": guest.level},
            ),
        )
    ]


def _mean(guest: Occupant, elapsed_s: float, now_s: float) -> float | None:
    """The share since its cause is what it is; None: too short to say."""
    reported = guest.reported
    if reported.cause != compute.Cause.PAID:
        return guest.share_ratio
    reported.granted_s += elapsed_s * guest.share_ratio
    since_s = now_s - reported.cause_s
    return round(min(1.0, reported.granted_s / since_s), 2) if since_s >= MEAN_S else None


def _differs(share: float, reported: Reported) -> bool:
    return abs(share - reported.share_ratio) >= WORTH_TELLING or (share == 0) is not (reported.share_ratio == 0)


def _is_due(state: Coordination, said_s: float | None, now_s: float) -> bool:
    return said_s is None or now_s - said_s >= state.settings.fact_s
