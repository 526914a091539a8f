"""Archive and live log as one: a reader that begins in the archive where the log does not reach back far enough."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from libs.bus.naming import log_id
from libs.bus.port import Bus, BusError, Message, Partition, Reader
from libs.contracts.bad_input import BadInput
from libs.inspect.archive.reading import Archive
from libs.inspect.logs import AUDITED


async def whole_reader(bus: Bus, starts: Mapping[Partition, int], archive: Path | None = None) -> Reader:
    """A reader from these offsets on; of control and orders, what was archived comes first.

    A process that has no state of its own reads control with this from offset 0 and gets all of it, or an error:
    never what happens to be left. Other topics are short-lived and begin where they begin.

    Args:
        bus: the cell's log.
        starts: {partition: offset}.
        archive: where the archive is; None: where the log says that it is.

    Raises:
        BusError: the archive is not there, is damaged, or ends before the log begins; the message says which
            records are where.
    """
    begins = {p: await bus.begin_offset(p) for p in starts if p.topic in AUDITED}
    behind = {partition: begin for partition, begin in begins.items() if starts[partition] < begin}
    if archive is None and not behind:
        return await bus.reader(starts)
    opened = await _open(bus, archive, behind)
    for partition, begin in behind.items():
        if (end := opened.next_offset(partition)) < begin:
            where = f"{partition.topic}/{partition.index} of cell {bus.cell}"
            raise BusError(f"{where} begins at offset {begin}, and its archive {opened.directory} ends at {end}")
    lives = {
        partition: opened.next_offset(partition) if partition in behind else starts[partition] for partition in starts
    }
    older = (message for partition in behind for message in opened.messages(partition, starts[partition]))
    return WholeReader(bus, older, lives)


async def _open(bus: Bus, archive: Path | None, behind: Mapping[Partition, int]) -> Archive:
    directory, missing = archive, ""
    if behind:
        partition, begin = next(iter(behind.items()))
        missing = f"{partition.topic}/{partition.index}@0-{begin - 1} of cell {bus.cell}"
    if directory is None:
        note = await bus.archived()
        if note is None:
            raise BusError(f"{missing}: removed from the log, and no archive is known; expected --archive DIR")
        directory = Path(note.directory)
    if not directory.is_dir():
        what = f"{missing} are in the archive {directory}, which" if missing else f"archive {directory}"
        raise BusError(f"{what} is not there; expected that directory, or --archive DIR")
    try:
        opened = await asyncio.to_thread(Archive.open, directory)
        opened.check_log(bus.cell, await log_id(bus))
    except BadInput as error:
        raise BusError(str(error)) from error
    return opened


class WholeReader:
    """See the port's `Reader`. The archived records come first, partition by partition."""

    def __init__(self, bus: Bus, older: Iterator[Message], lives: Mapping[Partition, int]) -> None:
        """`older`: the archived records; `lives`: where the log goes on behind them."""
        self._bus, self._lives = bus, lives
        self._older: Iterator[Message] | None = older
        self._reading: asyncio.Task[list[Message]] | None = None
        self._live: Reader | None = None
        self._closed = False

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See the port."""
        if self._closed:
            raise BusError("the reader is closed")
        if self._older is not None:
            if found := await self._archived(self._older, max_messages):
                return found
            self._older = None
        if self._live is None:
            self._live = await self._bus.reader(self._lives)
        return await self._live.next_batch(max_messages, timeout_s)

    async def _archived(self, older: Iterator[Message], max_messages: int) -> list[Message]:
        """The next archived records; a call that is cancelled leaves them to the next one."""
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(lambda: list(islice(older, max_messages))))
        try:
            found = await asyncio.shield(self._reading)
        except BadInput as error:
            raise BusError(str(error)) from error
        self._reading = None
        return found

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        if self._reading is not None:
            await asyncio.wait([self._reading])
        if self._live is not None:
            await self._live.close()
