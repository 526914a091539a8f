"""The gate of a guest: between two groups of operations, it waits while the GPU's time is its owner's.

    share 1                         open
    no owner on the GPU             open, in the pace of the share (0: open)
    the owner waits, or is silent   open, while more than a guard is left of the gap
    the owner computes              in the pace of the share (0: closed)

What waits is the thread that is about to launch operations. So all that these depend on stays in order, and the threads
and processes of data loaders go on (AntMan, figure 8). A process that is to stand still finds its gate open: it has to
come to its boundary first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..control import ControlReader
from ..gpu_page import SHORTEST_GAP_S, GpuPage
from .depth import GroupsInFlight
from .pace import Pace
from .spacing import Spacing

GUARD_LEAST_S, GUARD_MOST_S = SHORTEST_GAP_S, 0.01
"""Bounds of the time before the expected end of a gap in which no group is begun; between them, the longest group's."""
LOOK_S = 0.05
"""How often a closed gate looks whether the agent has changed anything, if it is not woken. A look costs some 0.1 ms
of the owner's processor; a guest that is to stand still notices that so much later at most."""
AFTER_OWNER_S = 0.0002
"""For so long a guest that is woken leaves the processor that it shares with the owner: else it takes that from the
owner, which has just woken it, for a time slice of some milliseconds, and by so much the owner's wait begins later."""
LONGEST_IDLE_S = 0.02
"""In one piece; then the gate looks around."""
MEASURED, EVERY = 256, 17
"""So many groups are measured from the beginning, then one of so many: not a number that counts a model's modules."""


def is_free(pages: Sequence[GpuPage], share: float, now_s: float, guard_s: float) -> bool:
    """Whether a guest may compute on these GPUs now, whatever it takes.

    Args:
        guard_s: nothing is begun so shortly before the expected end of a gap.
    """
    for page in pages:
        if page.owner_pid:
            if page.gap_s(now_s) <= guard_s:
                return False
        elif share > 0.0:
            return False
    return True


class Gate:
    """Of one guest's process; called before each group of operations."""

    def __init__(self, control: ControlReader, pages: Sequence[GpuPage], in_flight: GroupsInFlight | None) -> None:
        """Of a process that uses these GPUs; `in_flight` bounds what is queued on a device, None: nothing is."""
        self._control, self._in_flight = control, in_flight
        self._pages = tuple(pages)
        # On a device that works by itself, computing is what the process has waited for; the processor's time is not.
        self._processor_s = time.process_time if in_flight is None else time.monotonic
        self.reset()

    def reset(self) -> None:
        """Begin to count: at the start, and in a forked child."""
        self.passed = 0
        self.closed_s = 0.0
        self.spacing_p99_s = 0.0
        self._guard_s = GUARD_LEAST_S
        self._pace, self._spacing = Pace(), Spacing()
        self._paces = False
        """The time since the last gate belongs to a share."""
        self._checked_s = self._group_s = self._processor_s()
        self._measures, self._measure_at = False, 1

    def move(self, pages: Sequence[GpuPage]) -> None:
        """The process uses these GPUs from now on."""
        self._pages = tuple(pages)

    def __call__(self) -> None:
        """Pass, as soon as that is allowed."""
        self.passed += 1
        if self._measures:
            self._measure()
        share = self._control.share_ratio
        if share < 1.0:
            self._keep_to(share)
        else:
            self._paces = False
        if self.passed >= self._measure_at:
            self._measures, self._group_s = True, self._processor_s()

    def _measure(self) -> None:
        self._spacing.took(self._processor_s() - self._group_s)
        self._measures = False
        dense = self.passed < MEASURED
        self._measure_at = self.passed if dense else self.passed + EVERY
        if dense or self.passed % MEASURED < EVERY:
            self.spacing_p99_s = self._spacing.p99_s()
            self._guard_s = min(max(self.spacing_p99_s, GUARD_LEAST_S), GUARD_MOST_S)

    def _keep_to(self, share: float) -> None:
        if self._in_flight is not None:
            self._in_flight.launches()
        now_s = time.monotonic()
        if is_free(self._pages, share, now_s, self._guard_s):
            self._paces = False
        elif share <= 0.0:
            self._paces = False
            self._wait(now_s)
        elif self._paces:
            self._idle(now_s, share)
        else:
            self._begin_pace(now_s)

    def _begin_pace(self, now_s: float) -> None:
        """What was computed until now belongs to no share, as in a gap or with all of the GPU's time."""
        self._paces = True
        self._pace.starts(now_s)
        self._checked_s = self._processor_s()

    def _idle(self, now_s: float, share: float) -> None:
        """As long as the share demands it."""
        pace = self._pace
        pace.computed(now_s, share)
        if not pace.idle_s(share):
            return
        processor_s = self._processor_s()
        pace.check(processor_s - self._checked_s)
        self._checked_s = processor_s
        while 0.0 < share < 1.0 and (idle_s := pace.idle_s(share)) and not self._control.suspends:
            began_s = now_s
            self._sleep(now_s, min(idle_s, LONGEST_IDLE_S), share)
            now_s = time.monotonic()
            self.closed_s += now_s - began_s
            pace.idled(now_s, share)
            share = self._control.share_ratio
            if is_free(self._pages, share, now_s, self._guard_s):
                self._paces = False
                return

    def _wait(self, now_s: float) -> None:
        """Until the owner leaves a gap, or the agent gives a share."""
        began_s = now_s
        while not self._sleep(now_s, LOOK_S, 0.0):
            now_s = time.monotonic()
            share = self._control.share_ratio
            if share > 0.0 or is_free(self._pages, share, now_s, self._guard_s) or self._control.suspends:
                break
        self.closed_s += now_s - began_s

    def _sleep(self, now_s: float, longest_s: float, share: float) -> bool:
        """Until the owner rings, or so long. Returns whether the gate is found open before that."""
        bell = self._pages[0].listen(now_s)
        if is_free(self._pages, share, now_s, self._guard_s):
            return True
        if self._pages[0].sleep(bell, now_s, longest_s) and self._in_flight is None:
            time.sleep(AFTER_OWNER_S)
        return False
