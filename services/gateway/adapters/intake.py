"""The way onto the log: requests of many clients in one commit, each key once.

    take(envelope) ──> queue ──> run(): one Session.commit per round ──> offset

A request is answered when it is on the log and not before. When a commit's outcome is unknown the session is
opened anew, the log is read to its end, and each request of the commit is answered by what stands there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from libs.bus import codec
from libs.bus.port import (
    Bus,
    BusUnavailable,
    Fenced,
    Message,
    MessageTooLarge,
    OutcomeUnknown,
    Partition,
    Session,
)
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import OWNER
from libs.inspect.archive import whole_reader
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from services.gateway.core.idempotency import Accepted, Index, digest_of

log = logging.getLogger(__name__)

CONTROL = Partition(Topic.CONTROL, 0)
MAX_BATCH = 500
MAX_WAITING = 20_000
_SOURCE = f"/sanjaya/{OWNER}".encode()
_READ_S = 1.0

OnAppended = Callable[[Envelope, int], None]
"""Told of each appended event and when its request came, in nanoseconds since the epoch."""


class KeyReused(Exception):
    """The key stands for another request already."""


class NotTaken(Exception):
    """The request was not appended; it may be repeated."""


class OutcomeInDoubt(Exception):
    """The request may or may not have been appended; repeating it with the same key finds out."""


@dataclass(frozen=True)
class Taken:
    """A request that is on the log."""

    offset: int
    repeated: bool
    """It had been there before."""


@dataclass(eq=False)
class _Waiting:
    envelope: Envelope
    digest: bytes
    came_ns: int
    appended: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    committing: bool = False

    def fail(self, error: Exception) -> None:
        if not self.appended.done():
            self.appended.set_exception(error)
            self.appended.exception()  # a client that has gone away leaves nobody to look at it

    def succeed(self, offset: int) -> None:
        if not self.appended.done():
            self.appended.set_result(offset)


class Intake:
    """Appends the gateway's events, in a session of its own.

    Args:
        bus: the cell's log.
        stop: set it to end `run`.
        timeout_s: a request waits no longer than this.
        on_batch: told how many requests each commit had and the seconds it took.
        on_appended: for traces.
    """

    def __init__(
        self,
        bus: Bus,
        stop: asyncio.Event,
        *,
        timeout_s: float = 30.0,
        on_batch: Callable[[int, float], None] = lambda requests, took_s: None,
        on_appended: OnAppended | None = None,
    ) -> None:
        self._bus, self._stop, self._timeout_s = bus, stop, timeout_s
        self._on_batch, self._on_appended = on_batch, on_appended
        self._patience = Patience(stop)
        self._queue: deque[_Waiting] = deque()
        self._flying: dict[str, _Waiting] = {}
        self._news = asyncio.Event()
        self.index = Index()
        self.ready = False
        """The index is complete: what was accepted before is known."""

    async def take(self, envelope: Envelope) -> Taken:
        """Append an event, once per id.

        Raises:
            KeyReused: another request has the same id.
            NotTaken: nothing was appended: the log is away, or too much waits for it.
            OutcomeInDoubt: it took too long to find out.
        """
        if not self.ready:
            raise NotTaken("the gateway is still reading the log, or cannot reach it")
        digest = digest_of(envelope.event)
        accepted = self.index.get(envelope.id)
        if accepted is not None:
            _require_same(accepted.digest, digest)
            return Taken(accepted.offset, repeated=True)
        waiting = self._flying.get(envelope.id)
        if waiting is not None:
            _require_same(waiting.digest, digest)
            return Taken(await self._appended(waiting), repeated=True)
        if len(self._queue) >= MAX_WAITING:
            raise NotTaken(f"{MAX_WAITING} requests wait for the log already")
        waiting = _Waiting(envelope, digest, time.time_ns())
        self._flying[envelope.id] = waiting
        self._queue.append(waiting)
        self._news.set()
        return Taken(await self._appended(waiting), repeated=False)

    async def _appended(self, waiting: _Waiting) -> int:
        done, _ = await asyncio.wait([waiting.appended], timeout=self._timeout_s)
        if done:
            return waiting.appended.result()
        if waiting.committing:
            raise OutcomeInDoubt(f"the log has not answered for {self._timeout_s:g} s")
        self._forget(waiting)
        raise NotTaken(f"the log has taken nothing for {self._timeout_s:g} s")

    def _forget(self, waiting: _Waiting) -> None:
        """Nobody waits for it any more, and it is in no commit: it must not be appended later."""
        waiting.fail(NotTaken("given up"))
        self._flying.pop(waiting.envelope.id, None)

    async def run(self) -> None:
        """Append what is taken until told to stop.

        Raises:
            Fenced: another gateway has taken over; nothing can be appended any more.
            StopRequested: told to stop while the log was away.
        """
        doubtful: list[_Waiting] = []
        try:
            while not self._stop.is_set():
                session = await self._patience.outlast(lambda: self._bus.open_session(OWNER), "open the session")
                await self._patience.outlast(self._catch_up, "read control")
                self._settle(doubtful)
                self.ready = True
                try:
                    doubtful = await self._serve(session)
                finally:
                    await session.close()
        finally:
            self.ready = False
            for waiting in [*doubtful, *self._queue]:
                waiting.fail(
                    OutcomeInDoubt("the gateway stops") if waiting.committing else NotTaken("the gateway stops")
                )
            self._queue.clear()

    async def _catch_up(self) -> None:
        """Read control to its end and index what is ours."""
        end = await self._bus.end_offset(CONTROL)
        if self.index.next_offset >= end:
            return
        reader = await whole_reader(self._bus, {CONTROL: self.index.next_offset})
        try:
            while self.index.next_offset < end:
                messages = await reader.next_batch(1000, _READ_S)
                if not messages:  # nothing but transaction markers is left
                    break
                for message in messages:
                    self._index(message)
                await asyncio.sleep(0)
        finally:
            await reader.close()

    def _index(self, message: Message) -> None:
        if dict(message.headers).get("ce_source") == _SOURCE:
            self.index.add(codec.record(message).envelope, message.offset)
        self.index.next_offset = max(self.index.next_offset, message.offset + 1)

    def _settle(self, doubtful: list[_Waiting]) -> None:
        """Answer a commit in doubt by what stands on the log; what does not is taken up again, in order."""
        again: list[_Waiting] = []
        for waiting in doubtful:
            found = self.index.get(waiting.envelope.id)
            if found is None:
                waiting.committing = False
                again.append(waiting)
            else:
                self._done(waiting, found)
        if doubtful:
            log.warning(
                "a commit in doubt was settled",
                extra=fields(requests=len(doubtful), appended=len(doubtful) - len(again)),
            )
        self._queue.extendleft(reversed(again))
        if again:
            self._news.set()

    async def _serve(self, session: Session) -> list[_Waiting]:
        """Commit round after round; returns the requests of a commit whose outcome is unknown."""
        while not self._stop.is_set():
            batch = await self._next_batch()
            if not batch:
                continue
            try:
                await self._commit(session, batch)
            except OutcomeUnknown as error:
                log.warning("a commit may or may not have happened", extra=fields(requests=len(batch), error=error))
                return [waiting for waiting in batch if not waiting.appended.done()]
        return []

    async def _next_batch(self) -> list[_Waiting]:
        """What waits, as soon as something does; empty when told to stop."""
        while not self._queue and not self._stop.is_set():
            self._news.clear()
            wakers = [asyncio.ensure_future(self._news.wait()), asyncio.ensure_future(self._stop.wait())]
            await asyncio.wait(wakers, return_when=asyncio.FIRST_COMPLETED)
            for waker in wakers:
                waker.cancel()
        batch: list[_Waiting] = []
        while self._queue and len(batch) < MAX_BATCH:
            waiting = self._queue.popleft()
            if not waiting.appended.done():
                waiting.committing = True
                batch.append(waiting)
        return batch

    async def _commit(self, session: Session, batch: list[_Waiting]) -> None:
        started = time.perf_counter()
        try:
            offsets = await session.commit([codec.outgoing(waiting.envelope) for waiting in batch])
        except MessageTooLarge as error:
            await self._commit_singly(session, batch, error)
            return
        except Fenced as error:
            self._fail(batch, NotTaken("another gateway has taken over"))
            raise Fenced(f"another gateway has taken over this cell's door: {error}") from error
        except OutcomeUnknown:
            raise
        except BusUnavailable as error:
            self._fail(batch, NotTaken(f"the log cannot be reached: {error}"))
            return
        self._on_batch(len(batch), time.perf_counter() - started)
        for waiting, offset in zip(batch, offsets, strict=True):
            self.index.add(waiting.envelope, offset)
            self._done(waiting, Accepted(offset, waiting.digest))

    async def _commit_singly(self, session: Session, batch: list[_Waiting], error: MessageTooLarge) -> None:
        """One of them is too large: find out which, and let the others through."""
        if len(batch) == 1:
            self._fail(batch, error)
            return
        for waiting in batch:
            await self._commit(session, [waiting])

    def _done(self, waiting: _Waiting, accepted: Accepted) -> None:
        waiting.succeed(accepted.offset)
        self._flying.pop(waiting.envelope.id, None)
        if self._on_appended is not None:
            self._on_appended(waiting.envelope, waiting.came_ns)

    def _fail(self, batch: list[_Waiting], error: Exception) -> None:
        for waiting in batch:
            waiting.fail(error)
            self._flying.pop(waiting.envelope.id, None)


def _require_same(known: bytes, asked: bytes) -> None:
    if known != asked:
        raise KeyReused("this key was used for another request before")
