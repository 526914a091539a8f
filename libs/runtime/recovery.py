"""How a core comes back: the newest snapshot that fits, and the tail of the log from there."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from libs.bus.naming import CONTROL, log_id
from libs.kernel.replica import Replica, SnapshotDamaged
from libs.kernel.service import Service
from libs.runtime.log import fields
from libs.runtime.snapshots import Snapshots, Stored

__all__ = ["CONTROL", "log_id", "recover"]

log = logging.getLogger(__name__)


async def recover(
    service: Service[Any], snapshots: Snapshots | None, log_name: str, committed_offset: int
) -> Replica[Any]:
    """The core as of its newest usable snapshot at or before the committed position; empty if there is none.

    A snapshot that is damaged or does not fit today's state class is dropped with a warning: an older one, or
    the log from its beginning, gives the same state, only later. So does a database that cannot be reached.
    """
    if snapshots is None or not log_name:
        return Replica(service)
    try:
        found = await asyncio.to_thread(snapshots.load, service.name, log_name, committed_offset)
    except SQLAlchemyError as error:
        log.warning("snapshots cannot be read: the log is replayed", extra=fields(error=error))
        return Replica(service)
    for stored in found:
        replica = await _restore(service, snapshots, stored)
        if replica is not None:
            return replica
    return Replica(service)


async def _restore(service: Service[Any], snapshots: Snapshots, stored: Stored) -> Replica[Any] | None:
    try:
        replica = Replica.restore(service, stored.open())
        replica.check()
    except (SnapshotDamaged, AssertionError) as error:
        log.warning("snapshot dropped: an older one or the log is used", extra=fields(error=error))
        await _drop(snapshots, stored)
        return None
    log.info("snapshot loaded", extra=fields(next_offset=stored.next_offset, state_hash=replica.state_hash[:16]))
    return replica


async def _drop(snapshots: Snapshots, stored: Stored) -> None:
    try:
        await asyncio.to_thread(snapshots.drop, stored.service, stored.next_offset)
    except SQLAlchemyError as error:
        log.warning("the damaged snapshot could not be removed", extra=fields(error=error))
