"""When a waiting job is expected to start: the cores run forward, with jobs that run for as long as is expected, and
with jobs that arrive as they have lately.

Each step costs what it costs live, and behind thousands of jobs there are thousands of steps. So the run ends after
some; from there on the jobs that still wait take GPUs out of one pool, in their order.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from libs.contracts.gateway import OWNER
from libs.forecast.arrivals import Coming
from libs.forecast.branch import Branch, without_collection
from libs.forecast.lengths import NEVER, Lengths
from libs.forecast.playing import Nodes
from libs.forecast.pool import from_pool
from libs.forecast.search import endless
from libs.forecast.turns import Turns
from libs.kernel.present import Present

FORWARD, POOL = "forward_run", "pool"
MOST_STEPS, FEWEST_STEPS = 2_000, 50
MOST_LOOKS, MOST_LOOKS_BY_TURNS = 120_000, 420_000
"""Steps, times the jobs that have not ended: a step may look at all that wait; under rounds and time slices few do.
It is the same number on any machine, and takes about a tenth of a second."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """When the job is expected to start."""

    in_s: float | None
    """From the present on; None: not as long as nothing changes."""
    at_s: float | None
    """In seconds since the epoch."""
    how: str
    """`forward_run`: the cores have started it; `pool`: they were run forward, and the rest was estimated."""
    rests_on: dict[str, int] = {}
    """{what the lengths of jobs rest on: number of jobs}."""
    basis: str = ""
    """That on which most of them rest: it says how sure the expectation is. Empty: there are no jobs."""
    arrivals: int = 0
    """Jobs that are expected to arrive before it starts, as many as have arrived lately."""
    steps: int = 0


def expected_start(
    branch: Branch, job_id: str, steps: int | None = None, is_over: Callable[[], bool] = endless
) -> Expectation:
    """When the job starts on the branch.

    Args:
        branch: of the present; it is used up.
        steps: so many are played before the rest is estimated; None: as many as the number of jobs admits.
        is_over: asked before each step, as the last resort; when it is, the rest is estimated, too.
    """
    with without_collection():
        expected = _played(branch, job_id, steps, is_over)
        branch.close()
    return expected


def _played(branch: Branch, job_id: str, most: int | None, is_over: Callable[[], bool]) -> Expectation:
    begin_s, now = branch.now_s, branch.present("")
    steps = _steps(now) if most is None else most
    lengths, turns = Lengths(now), Turns(branch, now)
    nodes, coming, taken = Nodes(branch, now, lengths), Coming(branch.arrived, begin_s), 0
    ends = False
    while job_id not in branch.started and not ends and taken < steps and not is_over():
        if (arrival := coming.next_before(_next_s(branch, nodes))) is not None:
            lengths.expect(arrival.event.job_id, arrival.event.spec)
            branch.advance_to(arrival.time_s)
            branch.feed(OWNER, arrival.event)
        else:
            ends = not _step(branch, nodes)
        turns.lengthen()
        taken += not ends
    how, at_s = FORWARD, branch.started.get(job_id, NEVER)
    if at_s == NEVER and not ends:
        left = branch.present("")
        left.turn_s = now.turn_s
        how, at_s = POOL, from_pool(left, lengths.of, begin_s, branch.now_s, job_id)
    known = at_s < NEVER
    return Expectation(
        in_s=at_s - begin_s if known else None,
        at_s=at_s if known else None,
        how=how,
        rests_on=lengths.rests_on,
        basis=lengths.basis,
        arrivals=coming.played,
        steps=taken,
    )


def _steps(now: Present) -> int:
    looks = MOST_LOOKS_BY_TURNS if now.turn_s else MOST_LOOKS
    return max(FEWEST_STEPS, min(MOST_STEPS, looks // max(1, len(now.jobs))))


def _next_s(branch: Branch, nodes: Nodes) -> float:
    """When the next thing happens without arrivals; infinite: nothing does."""
    timer, due_s = branch.next_timer, nodes.next_s
    return min(NEVER if timer is None else timer[0], NEVER if due_s is None else due_s)


def _step(branch: Branch, nodes: Nodes) -> bool:
    """The next thing happens: on a node, or because a core wants to be woken. False: nothing does any more."""
    timer, due_s = branch.next_timer, nodes.next_s
    if due_s is not None and (timer is None or due_s <= timer[0]):
        nodes.go_on()
    elif timer is not None:
        branch.fire(*timer)
    else:
        return False
    return True
