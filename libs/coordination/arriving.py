"""Which tasks come to a GPU, change their role and leave it, and when an owner is stable beside its guests."""

from __future__ import annotations

import msgspec

from libs.coordination.ledger import scatter
from libs.coordination.readings import Readings, TaskReading
from libs.coordination.state import Coordination, Occupant, Peak, Told

STABLE_SAMPLES = 5
"""So many mini-batches must have been seen of those that an owner has done: of short ones each step sees the last."""


def look(state: Coordination, readings: Readings, now_s: float) -> None:
    """Take in what is seen: tasks that came and left, changes that they have applied, and their peaks."""
    state.readings, state.at_s = readings, now_s
    roles = {task: occupant.seen.guest for task, occupant in state.occupants.items()}
    state.occupants = {
        (task := reading.task): _looked_at(state.occupants.get(task), reading, now_s, state)
        for reading in readings.tasks
    }
    if {task: occupant.seen.guest for task, occupant in state.occupants.items()} != roles:
        _begin_anew(state, roles, now_s)
    _settle(state, now_s)


def owner_of(state: Coordination) -> Occupant | None:
    """The owner; of several, one of which leaves, the first one."""
    for each in state.occupants.values():
        if not each.seen.guest:
            return each
    return None


def guests_of(state: Coordination) -> list[Occupant]:
    """The guests, in the order of their coming."""
    return [each for each in state.occupants.values() if each.seen.guest]


def settling(state: Coordination) -> list[tuple[float, float]]:
    """(Since when, for how long) guests are beside an owner that is there and do not count as settled."""
    owner = owner_of(state)
    if owner is None or not owner.seen.begun:
        return []
    waiting = [guest for guest in guests_of(state) if not guest.settled]
    return [(max(owner.since_s, guest.since_s), state.settings.settle_s) for guest in waiting]


def forgetting(state: Coordination) -> list[tuple[float, float]]:
    """(Since when, for how long) peaks count."""
    return [(peak.at_s, state.settings.peak_s) for each in state.occupants.values() for peak in each.peaks]


def _looked_at(before: Occupant | None, found: TaskReading, now_s: float, state: Coordination) -> Occupant:
    reading = _said_last(before, found) if found.unread else found
    occupant = before if before is not None else _newcomer(reading, now_s)
    if reading.begun:  # its order to leave may have been taken back
        occupant.yielded = occupant.yielded and reading.leaving
    elif occupant.yielded and not reading.starting:
        occupant.admitted = False
    occupant.seen = reading
    _confirm(occupant, state.grain_bytes, now_s)
    wanted = max(reading.demand_bytes, reading.device_bytes - reading.cached_bytes + reading.host_bytes)
    later = [
        peak for peak in occupant.peaks if peak.wanted_bytes > wanted and now_s - peak.at_s < state.settings.peak_s
    ]
    occupant.peaks = [*later, Peak(at_s=now_s, wanted_bytes=wanted)] if wanted else later
    return occupant


def _confirm(occupant: Occupant, grain_bytes: int, now_s: float) -> None:
    """The newest limit in force takes the place of those that were told before it, also of one that was never kept."""
    in_force = [told for told in occupant.unconfirmed if _is_in_force(told, occupant.seen, grain_bytes)]
    if not (occupant.seen.begun or occupant.seen.starting):
        in_force = occupant.unconfirmed  # it begins, or goes on, with what it was told last
    if not in_force:
        return
    newest = in_force[-1]
    occupant.confirmed_bytes, occupant.took_s = newest.limit_bytes, now_s - newest.at_s
    occupant.unconfirmed = [told for told in occupant.unconfirmed if told.change > newest.change]


def _is_in_force(told: Told, reading: TaskReading, grain_bytes: int) -> bool:
    """Whether a limit was applied, and, by a guest, what is beyond it has left the GPU.

    Where the host is full it cannot leave, and no other task may have it.
    """
    if told.change > reading.applied:
        return False
    keeps = told.limit_bytes is not None and reading.device_bytes > told.limit_bytes + grain_bytes
    return not (keeps and reading.guest)


def _said_last(before: Occupant | None, unread: TaskReading) -> TaskReading:
    """What the processes of a task said when that could be read, with what is known of it from elsewhere.

    One that has said nothing may have limits and gates. Otherwise its limit would count for nothing, others would get
    its memory while it has it, and a guest would be paced like one without gates.
    """
    if before is None:
        return msgspec.structs.replace(unread, limited=True, gated=True, applied=0)
    return msgspec.structs.replace(
        before.seen,
        guest=unread.guest,
        begun=unread.begun,
        unread=True,
        starting=unread.starting,
        leaving=unread.leaving,
        stuck=unread.stuck,
        told_change=unread.told_change,
        told_bytes=unread.told_bytes,
        told_share_ratio=unread.told_share_ratio,
        memory_bound_bytes=unread.memory_bound_bytes,
        share_bound_ratio=unread.share_bound_ratio,
    )


def _newcomer(reading: TaskReading, now_s: float) -> Occupant:
    """One that runs already was told its limit by an agent before this one, and may not have applied it."""
    is_there = reading.begun or reading.starting
    occupant = Occupant(seen=reading, since_s=now_s, admitted=is_there, change=reading.told_change)
    if is_there:
        occupant.limit_bytes, occupant.share_ratio = reading.told_bytes, reading.told_share_ratio
        told = Told(change=reading.told_change, limit_bytes=reading.told_bytes, at_s=now_s)
        occupant.unconfirmed = [told] if reading.told_change else []
    return occupant


def _begin_anew(state: Coordination, roles: dict[str, bool], now_s: float) -> None:
    """A task came, left or changed its role: a new owner, and a new guest, are beside the others from now on."""
    owner = owner_of(state)
    is_new_owner = owner is not None and roles.get(owner.task) is not False
    for occupant in state.occupants.values():
        is_new = roles.get(occupant.task) is not occupant.guest
        if is_new:
            occupant.since_s = now_s
        if occupant.guest and (is_new or is_new_owner or owner is None):
            occupant.settled, occupant.level, occupant.level_s = False, 0.0, now_s
            occupant.owner_minibatches = owner.seen.minibatches if owner is not None else 0


def _settle(state: Coordination, now_s: float) -> None:
    owner = owner_of(state)
    if owner is None or not owner.seen.begun:
        return
    for guest in guests_of(state):
        if not guest.settled:
            guest.settled = _is_stable(state, owner, guest, now_s)


def _is_stable(state: Coordination, owner: Occupant, guest: Occupant, now_s: float) -> bool:
    numbers = state.settings
    if now_s - max(owner.since_s, guest.since_s) >= numbers.settle_s:
        return True
    done = owner.seen.minibatches - guest.owner_minibatches
    alone = state.ledger.baseline if state.ledger is not None else []
    enough = done >= numbers.settle_minibatches and len(alone) >= STABLE_SAMPLES
    return enough and scatter(alone) <= numbers.settle_scatter
