"""The source's side: has the state of a task that stands still written by its processes, and sends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import zlib
from collections.abc import Callable

import msgspec

from libs.node.fetching import Answer, answer, stands_still
from libs.node.task import Task, task_key
from torch_agent.folders import TaskFolder
from torch_agent.harness.control import ask_to_save, current_turn
from torch_agent.harness.page import PageReading
from torch_agent.harness.regular import regular
from torch_agent.harness.versions import Unreadable
from torch_agent.moving.protocol import CHECKSUM, CHUNK, Head, Request, line
from torch_agent.pages import living_pages

log = logging.getLogger(__name__)

SAVE_PATIENCE_S, SAVE_LOOK_S = 60.0, 0.005
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class CannotSend(Exception):
    """There is no state to be had; the message says why."""


class NotYet(CannotSend):
    """The task does not stand still yet, as far as this agent has heard."""


class StateServer:
    """Sends the states of this node's tasks to other agents."""

    def __init__(self, task: Callable[[str], Task | None], folder: Callable[[Task], TaskFolder]) -> None:
        """See `start`.

        Args:
            task: finds a task by its key.
            folder: finds the folder of a task.
        """
        self._task, self._folder = task, folder
        self._saving: dict[str, asyncio.Lock] = {}
        self._server: asyncio.Server | None = None

    async def start(self, address: str, port: int) -> int:
        """Listen where other nodes reach this one; on this port if it is free. Returns the port."""
        host = "127.0.0.1" if address in LOOPBACK else "0.0.0.0"
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError:
            self._server = await asyncio.start_server(self._serve, host, 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more; transfers that are under way break off."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = msgspec.json.decode(await reader.readline(), type=Request)
            page = await self._saved(request)
            log.info("gives the state of rank %d of %s: %d bytes", request.rank, request.job_id, _size(page))
            await _send(page, writer)
        except (CannotSend, msgspec.DecodeError) as error:
            writer.write(line(Head(error=str(error), later=isinstance(error, NotYet))))
        except OSError as error:
            log.warning("a transfer of a state broke off: %s", error)
        finally:
            writer.close()

    async def _saved(self, request: Request) -> PageReading:
        """The page of the rank, once its process has written its state.

        Raises:
            CannotSend: the task is not there, does not stand still, or cannot save.
        """
        key = task_key(request.job_id, request.attempt)
        async with self._saving.setdefault(key, asyncio.Lock()):
            task = self._task(key)
            said = answer(task)
            if task is None or said is Answer.NEVER:
                raise CannotSend(f"attempt {request.attempt} of {request.job_id} {said}")
            if said is Answer.LATER:
                raise NotYet(f"attempt {request.attempt} of {request.job_id} {said}")
            folder = self._folder(task)
            living = living_pages(folder.pages)
            if not all(page.handover.save_bytes for page in living):
                await self._have_saved(task, folder, living)
        for page in living_pages(folder.pages):
            if page.rank == request.rank:
                return page
        raise CannotSend(f"rank {request.rank} of {request.job_id} is not here")

    async def _have_saved(self, task: Task, folder: TaskFolder, living: list[PageReading]) -> None:
        ranks = [page.rank for page in living]
        try:
            turn = current_turn(folder.pages)
            if any(page.acknowledged.turn != turn for page in living):
                raise CannotSend(f"{task.key} was stopped away from a mini-batch boundary")
            number = ask_to_save(folder.pages)
        except (Unreadable, OSError) as error:
            raise CannotSend(str(error)) from error
        folder.signal_ranks(signal.SIGCONT)
        deadline = asyncio.get_running_loop().time() + SAVE_PATIENCE_S
        try:
            while _ranks_that_answered(folder, number) != ranks:
                if asyncio.get_running_loop().time() > deadline or not stands_still(task):
                    raise CannotSend(f"{task.key} has not written its state")
                await asyncio.sleep(SAVE_LOOK_S)
        finally:
            if stands_still(task):  # else it has been let go on
                folder.signal_ranks(signal.SIGSTOP)
        failed = [page.rank for page in living_pages(folder.pages) if page.handover.save_failed]
        if failed:
            raise CannotSend(f"ranks {failed} of {task.key} could not write their states: see their stderr")


async def _send(page: PageReading, writer: asyncio.StreamWriter) -> None:
    """Straight from the memory of the process, which keeps it as long as it stands still."""
    left, checksum = _size(page), 0
    with open(f"/proc/{page.pid}/fd/{page.handover.save_fd}", "rb", opener=regular) as state:
        writer.write(line(Head(state_bytes=left)))
        while left:
            chunk = state.read(min(CHUNK, left))
            if not chunk:
                raise OSError("the process has withdrawn its state")
            checksum = zlib.crc32(chunk, checksum)
            writer.write(chunk)
            await writer.drain()
            left -= len(chunk)
    writer.write(CHECKSUM.pack(checksum))
    await writer.drain()


def _ranks_that_answered(folder: TaskFolder, number: int) -> list[int]:
    """The ranks that have answered the request to save; one that is just being written about is not among them."""
    return [page.rank for page in living_pages(folder.pages) if page.handover.saved >= number]


def _size(page: PageReading) -> int:
    return page.handover.save_bytes
