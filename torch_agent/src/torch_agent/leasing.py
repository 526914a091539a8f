"""The lease of this node: `libs/node/lease.py` has the rule, `shim.Lease` has tasks stop when it has run out.

Renewed by each heartbeat that the log has acknowledged. An acknowledgement that comes too late proves nothing: jobs of
this node may run elsewhere by then. So the node announces itself again, and the lease is renewed when placement has
taken that, and the agent what placement has ordered: each task that is not wanted any more has been killed by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from libs.node.lease import LeaseTerms
from torch_agent.shim import boottime_s, read_lease, write_lease

log = logging.getLogger(__name__)


class Leasing:
    """Renews the lease."""

    def __init__(self, path: Path, terms: LeaseTerms) -> None:
        """Go on with the lease that an earlier agent has left in this file."""
        self._path, self._terms = path, terms
        found = read_lease(path)
        self._renewed_s: float | None = found["renewed_s"] if found is not None else None
        """When the heartbeat was sent that has renewed it; None: there was none yet in this life of the machine."""
        self._acknowledged_s = self._renewed_s
        """When the last heartbeat was sent that the log has acknowledged."""
        self._late = self._proved = 0
        """How often an acknowledgement came too late, and the last time for which there is proof."""
        self._is_late, self._renewal = asyncio.Event(), asyncio.Event()
        if self._renewed_s is not None and not terms.renews(boottime_s() - self._renewed_s):
            self._is_new_late()
            self._acknowledged_s = None

    @property
    def holds(self) -> bool:
        """Whether tasks may run."""
        return self._renewed_s is None or self._terms.holds(boottime_s() - self._renewed_s)

    @property
    def spec(self) -> dict[str, Any]:
        """What a shim is to know of it."""
        return {"path": str(self._path), "lease_s": self._terms.lease_s, "grace_s": self._terms.grace_s}

    @property
    def lost_after_s(self) -> float:
        """Silence of this node after which its tasks have stopped for certain."""
        return self._terms.lost_s

    async def until_it_holds(self) -> None:
        """Wait for a renewal, if need be."""
        while not self.holds:
            self._renewal.clear()
            await self._renewal.wait()

    def acknowledged(self, sent_s: float) -> None:
        """The log has a heartbeat that was sent at this time of `boottime_s`, or later."""
        before_s, self._acknowledged_s = self._acknowledged_s, sent_s
        if before_s is not None and not self._terms.renews(boottime_s() - before_s):
            log.warning("the log has not heard of this node for %.0f s: it is announced again", boottime_s() - before_s)
            self._is_new_late()
        if self._proved == self._late:
            self._renew(self._terms.grace_s)

    def _is_new_late(self) -> None:
        self._late += 1
        self._is_late.set()

    async def run(self, prove: Callable[[], Awaitable[None]]) -> None:
        """Get proof, whenever there is need of it, for ever.

        Args:
            prove: announces this node, and returns when it has all that placement has ordered because of that.
        """
        while True:
            await self._is_late.wait()
            self._is_late.clear()
            late = self._late
            await prove()
            if late == self._late:
                self._proved = late
                self._renew(self._terms.grace_s)

    def keep(self) -> None:
        """The agent ends in order, and its tasks are for the next one: they stand still as long as that takes."""
        if self._proved == self._late:
            self._renew(None)

    def _renew(self, grace_s: float | None) -> None:
        if self._acknowledged_s is None:
            return
        try:
            write_lease(self._path, self._acknowledged_s, self._terms.lease_s, grace_s)
        except OSError as error:
            log.error("the lease of this node cannot be renewed, its tasks will stop: %s", error)
            return
        if not self.holds:
            log.info("the lease of this node is renewed: its tasks go on")
        self._renewed_s = self._acknowledged_s
        self._renewal.set()
