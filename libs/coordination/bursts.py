"""An owner needs more memory than its limit: the rest lies on the host until guests have shrunk (section 3.1.1).

The limits themselves follow from the owner's peak (`memory.py`, `limits.py`); here it is noted how long that takes.
"""

from __future__ import annotations

from libs.contracts.agent import MemoryBurst
from libs.contracts.reasons import Reason
from libs.coordination.arriving import guests_of, owner_of
from libs.coordination.state import Burst, Coordination, Occupant
from libs.kernel.words import bytes_of, counted


def follow(state: Coordination) -> list[MemoryBurst]:
    """Note where a burst begins; the fact when it is over."""
    owner = owner_of(state)
    if owner is None or not owner.seen.begun or not guests_of(state):
        state.burst = None
        return []
    seen = owner.seen
    on_host = max(seen.host_bytes, seen.minibatch_host_bytes)
    if state.burst is None:
        if on_host:
            limits = {guest.task: guest.limit_bytes for guest in guests_of(state)}
            whole = max(0, seen.minibatches - (seen.minibatch_host_bytes > 0))
            state.burst = Burst(first_minibatch=whole, host_bytes=on_host, limits=limits)
        return []
    state.burst.host_bytes = max(state.burst.host_bytes, on_host)
    if on_host or seen.minibatches <= state.burst.first_minibatch + 1:
        return []
    burst, state.burst = state.burst, None
    return [_fact(state, owner, burst)]


def _fact(state: Coordination, owner: Occupant, burst: Burst) -> MemoryBurst:
    gave = sorted(guest.seen.job_id for guest in guests_of(state) if _has_less(guest, burst))
    broken = owner.seen.minibatches - burst.first_minibatch - 1
    room = f"{', '.join(gave)} gave memory up" if gave else "no guest gave memory up"
    message = f"up to {bytes_of(burst.host_bytes)} lay on the host for {counted(broken, 'mini-batch', 'mini-batches')}"
    return MemoryBurst(
        job_id=owner.seen.job_id,
        attempt=owner.seen.attempt,
        node_id=state.present.node_id,
        index=state.present.index,
        host_bytes=burst.host_bytes,
        from_jobs=gave,
        minibatches=broken,
        reason=Reason(
            code="OwnerNeedsMore",
            message=f"{message}; {room}",
            numbers={"host_bytes": burst.host_bytes, "minibatches": broken, "peak_bytes": owner.peak_bytes},
        ),
    )


def _has_less(guest: Occupant, burst: Burst) -> bool:
    before = burst.limits.get(guest.task)
    return guest.limit_bytes is not None and (before is None or guest.limit_bytes < before)
