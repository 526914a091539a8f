"""Turns of a forward run: the further it is, the longer they are.

Under rounds and time slices nearly all steps of a run are turns. Of a start that is hours away it does not matter
within which minute it is, so a turn may last a part of the time that was run through: to a start that is twice as far
it takes some more steps, not twice as many.
"""

from __future__ import annotations

from libs.contracts.gateway import OWNER, SettingChanged
from libs.contracts.placement import OWNER as PLACEMENT
from libs.forecast.branch import SOURCE, Branch
from libs.kernel.present import Present

TURNS_BEFORE_LONGER, ROUNDS_BEFORE_LONGER = 16, 64
"""A turn becomes twice as long once so many fit into the time that was run through: it is at most an eighth of it. Of
turns that last for minutes anyway there are few until most starts, and each counts more."""
LONG_S = 300.0
"""Such turns are rounds."""
LONGEST_S = 6 * 3600.0
"""They do not become longer: a run in which nothing happens is not to come to the end of time."""


class Turns:
    """Of one forward run.

    Args:
        branch: at its begin.
        now: what the cores know then.
    """

    def __init__(self, branch: Branch, now: Present) -> None:
        self._branch, self._begin_s = branch, branch.now_s
        self._setting, self._turn_s = now.turn_setting, now.turn_s
        self._before_longer = ROUNDS_BEFORE_LONGER if now.turn_s >= LONG_S else TURNS_BEFORE_LONGER

    def lengthen(self) -> None:
        """After each step: where the run has come far enough, turns last twice as long from now on."""
        longer_s = 2 * self._turn_s
        if not self._setting or longer_s > LONGEST_S:
            return
        if self._branch.now_s - self._begin_s < self._before_longer * self._turn_s:
            return
        self._turn_s = longer_s
        longer = SettingChanged(service=PLACEMENT, name=self._setting, value=self._turn_s, requested_by=SOURCE)
        self._branch.feed(OWNER, longer)
