"""Guests that ignore their gates or their limits, and processes without the harness, are paced from outside."""

from __future__ import annotations

from libs.contracts.agent import GuestMisbehaved
from libs.contracts.reasons import Reason
from libs.coordination.actions import Pace
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.limits import allowed
from libs.coordination.state import Coordination, Occupant, Watch
from libs.kernel.words import bytes_of

RAN, WAITED = 0.5, 0.2
"""A guest ignores closed gates if it computes for more than this part of a period and waits for less than that one."""


def judge(state: Coordination, now_s: float) -> tuple[list[Pace], list[GuestMisbehaved]]:
    """Which guests are paced from now on, and the facts about those that had gates and limits."""
    paced: list[Pace] = []
    facts: list[GuestMisbehaved] = []
    for guest in guests_of(state):
        if not guest.admitted or not guest.seen.begun or guest.paced:
            continue
        reason = _misdeed(state, guest, now_s) if guest.seen.gated else None
        if reason is None and guest.seen.gated:
            continue
        guest.paced = True
        paced.append(Pace(task=guest.task, paced=True))
        if reason is not None:
            facts.append(_fact(state, guest, reason))
    return paced, facts


def _misdeed(state: Coordination, guest: Occupant, now_s: float) -> Reason | None:
    """The reason once enough periods in a row have had one."""
    seen, watch = guest.seen, guest.watch
    closed = owner_of(state) is not None and guest.share_ratio == 0 and not state.present.waiting
    if watch is None:
        guest.watch = Watch(since_s=now_s, computed_s=seen.computed_s, closed_s=seen.closed_s, closed=closed)
        return None
    watch.closed = watch.closed and closed
    period_s = now_s - watch.since_s
    if period_s < state.settings.strike_s:
        return None
    ran_s, waited_s = seen.computed_s - watch.computed_s, seen.closed_s - watch.closed_s
    ran = watch.closed and ran_s > RAN * period_s and waited_s < WAITED * period_s
    limit = allowed(guest, state.present.capacity_bytes)
    keeps = seen.device_bytes > limit + state.grain_bytes
    strikes = watch.strikes + 1 if ran or keeps else 0 if watch.closed else watch.strikes
    guest.watch = Watch(
        since_s=now_s, computed_s=seen.computed_s, closed_s=seen.closed_s, closed=closed, strikes=strikes
    )
    if strikes < state.settings.strikes:
        return None
    if keeps:
        message = f"it keeps {bytes_of(seen.device_bytes)} on the GPU, with a limit of {bytes_of(limit)}"
        return Reason(
            code="AboveLimit",
            message=message,
            numbers={"device_bytes": seen.device_bytes, "limit_bytes": limit, "periods": strikes},
        )
    message = f"it computed for {ran_s:.2f} s of {period_s:.2f} s while its gates were closed"
    return Reason(code="RanWhileClosed", message=message, numbers={"ran_s": round(ran_s, 3), "periods": strikes})


def _fact(state: Coordination, guest: Occupant, reason: Reason) -> GuestMisbehaved:
    return GuestMisbehaved(
        job_id=guest.seen.job_id,
        attempt=guest.seen.attempt,
        node_id=state.present.node_id,
        index=state.present.index,
        reason=reason,
    )
