"""At each mini-batch boundary: is this process to stand still? (Gandiva, OSDI'18, section 4.1)

    agent adds one to the turn ──> at the next boundary: park ──> page says so ──> agent stops the processes
    agent adds one more, lets them go on ──> unpark ──> page says so ──> the script's next line

The ranks of a gang stand still at the same boundary, also when they are on several nodes and the agents hear of it at
different times: else some would wait for the others in the middle of an exchange of gradients. Rank 0 names the
boundary once a rank on every node has seen the turn. No rank can be more than one boundary ahead of rank 0 then,
because every mini-batch needs all ranks; so the second one from there is reached by all and passed by none.

A process that is asked to leave while it stands still ends there, and its memory does not come back: another job may
train on the device. A Job makes a checkpoint from the memory on the host before.

The ranks of an elastic Job agree sooner: whether one of them has seen the turn goes along with the gradients of each
batch, and they stand still right after it (see elastic/shards.py).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .control import ControlReader, suspends
from .gang import group, local_place, store
from .leaving import Leaving, StandingStill, end_here
from .mover import Mover, wait_while
from .page import Acknowledged, PageWriter
from .parking.parking import CannotPark, Parker

AHEAD = 2
"""Boundaries between the agreement and the suspension of a gang."""
NEWS_PATIENCE_S = 10.0
"""How long a rank that has heard of a turn from the others waits until its own agent says so, too."""


class Suspender:
    """Of one training process."""

    def __init__(self, torch: Any, folder: str) -> None:
        self._torch = torch
        self.control = ControlReader(folder, local_place())
        self.mover: Mover | None = None
        """Of the script's Job, if it has one."""
        self._acknowledged = 0
        self._agreement: _Agreement | None = None
        self._parker: Parker | None = None

    @property
    def pending(self) -> bool:
        """Whether the process is to stand still, and does not yet."""
        turn = self.control.turn
        return turn != self._acknowledged and suspends(turn)

    def boundary(self, number: int, page: PageWriter, agreed: bool | None = None) -> bool:
        """Stand still here when that is wanted, until it is not. Returns whether the process has stood still.

        Args:
            number: of boundaries so far; all ranks count the same, and it takes all of them to come to the next.
            agreed: whether the ranks have agreed on this boundary; None: they have not been asked.
        """
        if agreed:
            self._wait_for_the_news()
        turn = self.control.turn
        if turn == self._acknowledged:
            return False
        if not suspends(turn):
            self._acknowledge(Acknowledged(turn=turn), page)
            return False
        if not (self._all_ranks_are_here(turn, number) if agreed is None else agreed):
            return False
        self._stand_still(turn, page)
        return True

    def stand_by(self, page: PageWriter, leaving: Leaving) -> None:
        """Stand still with nothing to be parked: the job has been taken over, and may still go on where it was."""
        turn = self.control.turn
        if not suspends(turn):
            return
        page.acknowledged(Acknowledged(turn=turn, parked_at_s=time.time()))
        wait_while(lambda: self.control.turn == turn, leaving.at_once)
        self._acknowledge(Acknowledged(turn=turn + 1), page)

    def _wait_for_the_news(self) -> None:
        """Another rank was told to stand still: this one is about to be, unless its agent knows better by now."""
        deadline = time.monotonic() + NEWS_PATIENCE_S
        wait_while(lambda: self.control.turn == self._acknowledged and time.monotonic() < deadline, lambda: None)

    def _all_ranks_are_here(self, turn: int, number: int) -> bool:
        distributed = group()
        if distributed is None:
            return True
        if self._agreement is None or self._agreement.turn != turn:
            self._agreement = _Agreement(distributed, turn)
        return self._agreement.reached(number)

    def _stand_still(self, turn: int, page: PageWriter) -> None:
        reached_s = time.time()
        if self.mover is not None:
            self.mover.hold()
        if self._parker is None:
            self._parker = Parker(self._torch)
        with StandingStill() as still:
            unpark_s = self._park_and_wait(turn, still, self._parker, reached_s, page)
        # Not the turn in force: it may be the next suspension already, for which a gang has to agree anew.
        self._acknowledge(Acknowledged(turn=turn + 1, unpark_s=unpark_s), page)

    def _park_and_wait(
        self, turn: int, still: StandingStill, parker: Parker, reached_s: float, page: PageWriter
    ) -> float:
        """Returns how long it took to bring the memory back, in seconds."""
        parked = None
        try:
            parked = parker.park()
        except CannotPark as error:
            print(f"sanjaya: suspended with its memory on the GPU: {error}", file=sys.stderr)
        page.acknowledged(
            Acknowledged(
                turn=turn,
                bytes_parked=parked.bytes_parked if parked else 0,
                bytes_left=parked.bytes_left if parked else 0,
                park_s=parked.took_s if parked else 0.0,
                parked_at_s=reached_s,
            )
        )
        self._wait(turn, still, parker if parked else None)
        return parker.unpark() if parked else 0.0

    def _wait(self, turn: int, still: StandingStill, parker: Parker | None) -> None:
        """Until another turn than this is in force; the agent stops the process in the meantime, or ends it."""
        mover = self.mover

        def meanwhile() -> None:
            self._leave_if_asked(turn, still, parker)
            if mover is not None:
                mover.save_if_asked(parker)

        wait_while(lambda: self.control.turn == turn, meanwhile)
        if mover is not None:
            mover.let_go()

    def _leave_if_asked(self, turn: int, still: StandingStill, parker: Parker | None) -> None:
        """End the process here, unless it has its device again: then it leaves as any other that runs."""
        asked = still.asked or (self.mover is not None and self.mover.asked_to_leave)
        if not asked or self.control.turn != turn:
            return
        if self.mover is not None:
            self.mover.save_to_leave(parker)
        else:
            print("sanjaya: stopped while suspended, where handlers of SIGTERM do not run", file=sys.stderr)
        end_here()

    def _acknowledge(self, what: Acknowledged, page: PageWriter) -> None:
        self._acknowledged, self._agreement = what.turn, None
        page.acknowledged(what)


class _Agreement:
    """On the boundary at which a gang stands still, through the store where its ranks have met."""

    def __init__(self, distributed: Any, turn: int) -> None:
        self.turn = turn
        self._store = store(distributed)
        self._rank, self._key = distributed.get_rank(), f"sanjaya/turn/{turn}"
        self._at = 0
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:
            self._store.add(f"{self._key}/nodes", 1)

    def reached(self, number: int) -> bool:
        """Whether this is the boundary."""
        if not self._at and self._rank == 0 and self._nodes_that_know() >= int(os.environ.get("NNODES", "1")):
            self._store.add(f"{self._key}/at", number + AHEAD)
        self._at = self._at or self._store.add(f"{self._key}/at", 0)
        return bool(self._at) and number >= self._at

    def _nodes_that_know(self) -> int:
        return int(self._store.add(f"{self._key}/nodes", 0))
