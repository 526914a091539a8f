"""At each mini-batch boundary: is this process to stand still? (Gandiva, OSDI'18, section 4.1)

    agent adds one to the turn ──> at the next boundary: park ──> page says so ──> agent stops the processes
    agent adds one more, lets them go on ──> unpark ──> page says so ──> the script's next line

The ranks of a gang stand still at the same boundary, also when they are on several nodes, whose agents hear of it at
different times: else some would wait for the others in the middle of an exchange of gradients. Rank 0 names the
boundary once somebody on every node has seen the turn. Nobody can be more than one boundary ahead of rank 0 then,
because every mini-batch needs all ranks; so the second one from there is reached by all and passed by none.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .control import ControlReader, suspends
from .page import Obeyed, PageWriter
from .parking.parking import CannotPark, Parker

AHEAD = 2
"""Boundaries between the agreement and the suspension of a gang."""
LOOK_S, LONGEST_LOOK_S = 0.0005, 0.02
"""How often the turn is looked at while standing still, until the agent stops the process altogether."""


class Suspender:
    """Of one training process."""

    def __init__(self, torch: Any, folder: str) -> None:
        self._torch = torch
        self._control = ControlReader(folder)
        self._obeyed = 0
        self._agreement: _Agreement | None = None
        self._parker: Parker | None = None

    def boundary(self, minibatches: int, page: PageWriter) -> bool:
        """Stand still here when that is wanted, until it is not. Returns whether the process has stood still."""
        turn = self._control.turn
        if turn == self._obeyed:
            return False
        if not suspends(turn):
            self._obeyed, self._agreement = turn, None
            page.obeyed(Obeyed(turn=turn))
            return False
        if not self._everybody_is_here(turn, minibatches):
            return False
        self._stand_still(turn, page)
        return True

    def _everybody_is_here(self, turn: int, minibatches: int) -> bool:
        group = _group(self._torch)
        if group is None:
            return True
        if self._agreement is None or self._agreement.turn != turn:
            self._agreement = _Agreement(group, turn)
        return self._agreement.reached(minibatches)

    def _stand_still(self, turn: int, page: PageWriter) -> None:
        reached_s = time.time()
        if self._parker is None:
            self._parker = Parker(self._torch)
        parker, parked = self._parker, None
        try:
            parked = parker.park()
        except CannotPark as error:
            print(f"sanjaya: suspended with its memory on the GPU: {error}", file=sys.stderr)
        page.obeyed(
            Obeyed(
                turn=turn,
                bytes_parked=parked.bytes_parked if parked else 0,
                bytes_left=parked.bytes_left if parked else 0,
                park_s=parked.took_s if parked else 0.0,
                parked_at_s=reached_s,
            )
        )
        _wait_while(self._control, turn)
        unpark_s = parker.unpark() if parked else 0.0
        # Not the turn in force: it may be the next suspension already, for which a gang has to agree anew.
        self._obeyed, self._agreement = turn + 1, None
        page.obeyed(Obeyed(turn=self._obeyed, unpark_s=unpark_s))


def _wait_while(control: ControlReader, turn: int) -> None:
    """Until another turn than this is in force; the agent stops the process in the meantime."""
    look_s = LOOK_S
    while control.turn == turn:
        time.sleep(look_s)
        look_s = min(LONGEST_LOOK_S, 2 * look_s)


class _Agreement:
    """On the boundary at which a gang stands still, through the store where its ranks have met."""

    def __init__(self, group: Any, turn: int) -> None:
        self.turn = turn
        self._store = group.distributed_c10d._get_default_store()
        self._rank, self._key = group.get_rank(), f"sanjaya/turn/{turn}"
        self._at = 0
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:
            self._store.add(f"{self._key}/nodes", 1)

    def reached(self, minibatches: int) -> bool:
        """Whether this is the boundary."""
        if not self._at and self._rank == 0 and self._nodes_that_know() >= int(os.environ.get("NNODES", "1")):
            self._store.add(f"{self._key}/at", minibatches + AHEAD)
        self._at = self._at or self._store.add(f"{self._key}/at", 0)
        return bool(self._at) and minibatches >= self._at

    def _nodes_that_know(self) -> int:
        return int(self._store.add(f"{self._key}/nodes", 0))


def _group(torch: Any) -> Any:
    """torch.distributed when this process is one of several ranks that have met, else None."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return None
    return distributed
