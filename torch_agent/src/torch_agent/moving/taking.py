"""The destination's side: fetches the states of a task's ranks and leaves them where its processes wait for them."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libs.contracts.placement import RestoreTask, StateSource
from libs.node.fetching import FETCH_RETRY_S, asks_again, source_of
from libs.node.seen import Takeover
from libs.node.task import Task
from torch_agent.folders import TaskFolder
from torch_agent.harness.page import PageReading
from torch_agent.moving.protocol import CHECKSUM, CHUNK, Head, Request, line
from torch_agent.pages import are_all_there, living_pages

log = logging.getLogger(__name__)

SILENCE_S = 90.0
"""How long a source may send nothing: longer than it waits for its processes to write their states. A network that
fails without a word would keep the job standing still for ever."""
LOAD_PATIENCE_S = 600.0
"""How long processes may take to load states that are there."""


class Refused(Exception):
    """The source has no state to give; the message is its own."""


@dataclass
class _Fetch:
    work: asyncio.Task[None]
    failed: str = ""


class Fetches:
    """The fetches of states, of all tasks of the node."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """See `begin`.

        Args:
            changed: called when a task's states are there, or cannot be had.
        """
        self._changed = changed
        self._fetches: dict[str, _Fetch] = {}

    def begin(self, task: Task, folder: TaskFolder) -> None:
        """Fetch the states of the task's ranks, unless that has been begun."""
        if task.key not in self._fetches and task.restore is not None:
            work = asyncio.create_task(self._fetch(task.key, task.restore, folder))
            self._fetches[task.key] = _Fetch(work)

    def forget(self, key: str) -> None:
        """The task has ended."""
        fetch = self._fetches.pop(key, None)
        if fetch is not None:
            fetch.work.cancel()

    def seen(self, task: Task, folder: TaskFolder, living: list[PageReading]) -> Takeover:
        """How far the task is, from its processes' pages, and what it took."""
        fetch = self._fetches.get(task.key)
        all_there = are_all_there(living, task.order)
        told = [page.handover for page in living]
        restored = all_there and all(each.restored for each in told)
        state_bytes, fetch_s = folder.fetched() if restored else (0, 0.0)
        return Takeover(
            ready=all_there and all(each.ready or each.restored for each in told),
            restored=restored,
            failed=fetch.failed if fetch is not None else "",
            state_bytes=state_bytes,
            fetch_s=fetch_s,
            load_s=max((each.load_s for each in told), default=0.0),
        )

    async def _fetch(self, key: str, order: RestoreTask, folder: TaskFolder) -> None:
        waiting = _waiting(folder)
        try:
            await asyncio.gather(*(_fetch_rank(order, rank, folder) for rank in waiting))
        except (Refused, OSError) as error:
            log.warning("the state of %s cannot be fetched: %s", key, error)
            self._fetches[key].failed = str(error)
            self._changed()
            return
        self._changed()
        await asyncio.sleep(LOAD_PATIENCE_S)
        if late := _waiting(folder):
            self._fetches[key].failed = f"ranks {late} have not loaded their states within {LOAD_PATIENCE_S:.0f} s"
            self._changed()


def _waiting(folder: TaskFolder) -> list[int]:
    """The ranks that have not taken over their states."""
    return [page.rank for page in living_pages(folder.pages) if not page.handover.restored]


async def _fetch_rank(order: RestoreTask, rank: int, folder: TaskFolder) -> None:
    """Get the state, which is complete and undamaged under its name from then on.

    Raises:
        Refused: the source has none.
        OSError: it cannot be reached.
    """
    target = folder.state_of(rank)
    if target.exists():
        return
    source, from_rank = source_of(order, rank)
    request = Request(job_id=order.job_id, attempt=order.from_attempt, rank=from_rank)
    began_s = time.monotonic()
    while True:
        try:
            part = target.with_name(f"{target.name}.part")
            await _received(source, request, part)
            folder.note_fetched(rank, part.stat().st_size, time.monotonic() - began_s)
            part.rename(target)  # from now on the rank may take it, and remove it
            return
        except (OSError, EOFError) as error:
            why = str(error) or f"nothing has come from it for {SILENCE_S:.0f} s"
            if not asks_again(began_s, time.monotonic()):
                raise OSError(f"{source.node_id} ({source.address}:{source.port}): {why}") from error
            log.info("the state of rank %d of %s will be asked for again: %s", rank, order.job_id, why)
            await asyncio.sleep(FETCH_RETRY_S)


async def _received(source: StateSource, request: Request, target: Path) -> None:
    """Raises what `_fetch_rank` does, and OSError or EOFError when the transfer broke off or was damaged."""
    async with asyncio.timeout(SILENCE_S) as patience:  # TimeoutError is an OSError
        reader, writer = await asyncio.open_connection(source.address, source.port, limit=4 * CHUNK)
        try:
            writer.write(line(request))
            left = await _head(reader, source)
            checksum = 0
            with target.open("wb") as file:
                target.chmod(0o600)
                while left:
                    patience.reschedule(asyncio.get_running_loop().time() + SILENCE_S)
                    chunk = await reader.read(min(CHUNK, left))
                    if not chunk:
                        raise EOFError(f"{left} bytes are missing")
                    checksum = zlib.crc32(chunk, checksum)
                    file.write(chunk)
                    left -= len(chunk)
            if CHECKSUM.unpack(await reader.readexactly(CHECKSUM.size)) != (checksum,):
                raise OSError("the state has arrived damaged")
        finally:
            writer.close()


async def _head(reader: asyncio.StreamReader, source: StateSource) -> int:
    """How many bytes of state follow; raises what `_received` does."""
    try:
        head = msgspec.json.decode(await reader.readline() or b"{}", type=Head)
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: there is no end of the line
        raise OSError(f"what listens there is no agent: {error}") from error
    if head.later:
        raise EOFError(head.error)
    if head.error:
        raise Refused(f"{source.node_id}: {head.error}")
    if not head.state_bytes:
        raise EOFError("the connection was closed")
    return head.state_bytes
