"""The way onto the log: requests of many clients in one commit, each key once.

    take(envelope) ──> queue ──> run(): per round one look into the index, one Session.commit ──> offset
                                        └──> recent ──(every second)──> stored index (keys.py), with its position

A request is answered when it is on the log and not before. The stored index follows: what was appended since it was
last written is in `recent`, and after a crash it is read from the log, from the index's position on. When a commit's
outcome is unknown the session is opened anew, the log is read to its end, and each request of the commit is answered
by what stands there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from libs.bus import codec
from libs.bus.batches import SILENCE_S, batches, first_from
from libs.bus.port import (
    Bus,
    BusUnavailable,
    Fenced,
    LogFull,
    Message,
    MessageTooLarge,
    OffsetLost,
    OutcomeUnknown,
    Partition,
    Session,
)
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import OWNER
from libs.contracts.wire import Undecodable
from libs.inspect.archive import whole_reader
from libs.runtime.exits import StopRequested
from libs.runtime.log import fields
from libs.runtime.patience import Patience
from libs.runtime.recovery import log_id
from libs.runtime.waits import within
from services.gateway.adapters.disks import Disks
from services.gateway.adapters.keys import Found, Keys, KeysAway, KeysTaken
from services.gateway.core.idempotency import Accepted, Recent, accepted, arrives, digest_of

log = logging.getLogger(__name__)

T = TypeVar("T")

CONTROL = Partition(Topic.CONTROL, 0)
MAX_BATCH = 500
MAX_WAITING = 20_000
"""Most requests that wait for the log, and most that are on the log and wait for the stored index."""
STORE_EVERY_S = 1.0
ADVANCE_EVERY_S = 10.0
"""While nothing is asked for, the index's position follows the log this often."""
_SOURCE = f"/sanjaya/{OWNER}".encode()
_RETRY_S = 0.5

OnAppended = Callable[[Envelope, int], None]
"""Told of each appended event and when its request came, in nanoseconds since the epoch."""


class KeyReused(Exception):
    """The key stands for another request already."""


class IdTaken(Exception):
    """The request would make a job or a sweep with an id that another one has; nothing was appended."""


class NotTaken(Exception):
    """The request was not appended; it may be repeated."""


class NoRoom(NotTaken):
    """The request was not appended: a disk of the cell has no room for it."""


class OutcomeInDoubt(Exception):
    """The request may or may not have been appended; repeating it with the same key finds out."""


@dataclass(frozen=True)
class Taken:
    """A request that is on the log."""

    offset: int
    subject: str
    """What its event is about, as the log has it: for a repeated arrival the id that the job got then."""
    repeated: bool
    """It had been there before."""


@dataclass(eq=False)
class _Waiting:
    envelope: Envelope
    digest: bytes
    came_ns: int
    taken: asyncio.Future[Taken] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    committing: bool = False
    """It may be on the log: it is in a commit that has not been answered."""
    clients: int = 0
    """How many wait for the answer. Without any, what is not on the log is not appended: it would be a job that its
    sender was told to be in doubt, and has no id of."""

    @property
    def subject(self) -> str:
        return self.envelope.event.subject

    def fail(self, error: Exception) -> None:
        if not self.taken.done():
            self.taken.set_exception(error)
            self.taken.exception()  # the client may have gone away, and with it whatever would look at it

    def succeed(self, entry: Accepted, *, repeated: bool) -> None:
        if not self.taken.done():
            self.taken.set_result(_taken(self.envelope, entry, repeated=repeated))


def _taken(envelope: Envelope, entry: Accepted, *, repeated: bool) -> Taken:
    return Taken(entry.offset, entry.arrival or envelope.event.subject, repeated)


class Intake:
    """Appends the gateway's events, in a session of its own.

    Args:
        bus: the cell's log.
        keys: the stored index of requests.
        disks: new jobs and sweeps are refused while they have too little room.
        stop: set it to end `run`.
        timeout_s: a request waits no longer than this.
        keep_s: the index keeps a request this long at least.
        now: seconds since the epoch.
        on_batch: told how many requests each commit had and the seconds it took.
        on_appended: for traces.
    """

    def __init__(
        self,
        bus: Bus,
        keys: Keys,
        disks: Disks,
        stop: asyncio.Event,
        *,
        timeout_s: float = 30.0,
        keep_s: float = 30 * 86_400.0,
        now: Callable[[], float] = time.time,
        on_batch: Callable[[int, float], None] = lambda requests, took_s: None,
        on_appended: OnAppended | None = None,
    ) -> None:
        self._bus, self._keys, self._disks, self._stop, self._timeout_s = bus, keys, disks, stop, timeout_s
        self._keep_s, self._now = keep_s, now
        self._on_batch, self._on_appended = on_batch, on_appended
        self._patience = Patience(stop)
        self._queue: deque[_Waiting] = deque()
        self._flying: dict[str, _Waiting] = {}
        self._news = asyncio.Event()
        self._log_id = ""
        self._recent = Recent()
        self._finding = ThreadPoolExecutor(1, "keys")
        """Looks into the index do not queue up behind other reads."""
        self._appending = asyncio.Lock()
        """Held while a round is under way: outside of it, every event of the gateway on the log is known."""
        self._storing = asyncio.Lock()
        """Held while the stored index is written, and while it is taken over."""
        self._knows_all = False
        """The index is taken over and complete, and no commit is in doubt."""
        self.next_offset = 0
        """Behind the newest record of control that has been read or appended here."""
        self.ready = False
        """What was accepted before is known."""

    async def take(self, envelope: Envelope) -> Taken:
        """Append an event, once per id.

        Raises:
            KeyReused: another request has the same id.
            IdTaken: it would make a job or a sweep with an id that another one has.
            NotTaken: nothing was appended: the log or the index is away, or too much waits for it. `NoRoom` where a
                disk is full.
            OutcomeInDoubt: it took too long to find out.
        """
        self._require_ready()
        digest = digest_of(envelope.event)
        entry = self._recent.get(envelope.id)
        if entry is not None:
            _require_same(entry.digest, digest)
            return _taken(envelope, entry, repeated=True)
        waiting = self._flying.get(envelope.id)
        if waiting is not None:
            _require_same(waiting.digest, digest)
            taken = await self._outcome(waiting)
            return Taken(taken.offset, taken.subject, repeated=True)
        if len(self._queue) >= MAX_WAITING:
            raise NotTaken(f"{MAX_WAITING} requests wait for the log already")
        if len(self._recent) >= MAX_WAITING:
            raise NotTaken(f"the index of requests is behind: {MAX_WAITING} wait for it already")
        waiting = _Waiting(envelope, digest, time.time_ns())
        self._flying[envelope.id] = waiting
        self._queue.append(waiting)
        self._news.set()
        return await self._outcome(waiting)

    async def known(self, event_id: str) -> Accepted | None:
        """The request with an event of this id, if it is on the log.

        Raises:
            NotTaken: the index cannot be read now.
        """
        self._require_ready()
        entry = self._recent.get(event_id)
        if entry is None:
            try:
                entry = (await self._find([event_id])).accepted.get(event_id)
            except (KeysAway, KeysTaken) as error:
                raise NotTaken(f"the index of requests cannot be read: {error}") from error
        return entry

    async def arrival_of(self, subject: str) -> int | None:
        """Where the arrival of a job or a sweep stands; None for one that is not in the index, or while it is away."""
        entry = self._recent.arrival_of(subject)
        if entry is None and self.ready:
            try:
                entry = await self._in_thread(lambda: self._keys.arrival_of(subject))
            except KeysAway:
                return None
        return entry.offset if entry is not None else None

    @property
    def unstored(self) -> int:
        """Requests on the log that the stored index lacks: all that is kept of requests in memory."""
        return len(self._recent)

    def _require_ready(self) -> None:
        if not self.ready:
            if self._disks.shortage:
                raise NoRoom(self._disks.shortage)
            raise NotTaken("the gateway is still reading the log, or cannot reach it or its index of requests")

    async def _outcome(self, waiting: _Waiting) -> Taken:
        waiting.clients += 1
        try:
            done, _ = await asyncio.wait([waiting.taken], timeout=self._timeout_s)
        finally:
            waiting.clients -= 1
        if done:
            return waiting.taken.result()
        if waiting.committing:
            raise OutcomeInDoubt(f"the log has not answered for {self._timeout_s:g} s")
        if not waiting.clients:
            self._forget(waiting)
        raise NotTaken(f"the log has taken nothing for {self._timeout_s:g} s")

    def _forget(self, waiting: _Waiting) -> None:
        """Its client has been answered, and it is in no commit: it must not be appended later."""
        waiting.fail(NotTaken("given up"))
        self._flying.pop(waiting.envelope.id, None)

    async def run(self) -> None:
        """Append what is taken until told to stop.

        Raises:
            Fenced: another gateway has taken over; nothing can be appended any more.
            StopRequested: told to stop while the log or the index was away.
        """
        try:
            while not self._stop.is_set():
                session = await self._patience.outlast(lambda: self._bus.open_session(OWNER), "open the session")
                try:
                    async with self._storing:
                        await self._outlast(self._catch_up)
                    self._knows_all = self.ready = True
                    await self._serve(session)
                finally:
                    await session.close()
        finally:
            self.ready = False
            for waiting in self._flying.values():
                waiting.fail(
                    OutcomeInDoubt("the gateway stops") if waiting.committing else NotTaken("the gateway stops")
                )
            self._queue.clear()
            await self._store_recent()
            self._finding.shutdown(wait=False)

    async def _outlast(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do `call`, again and again while the log or the index is away."""
        while True:
            try:
                return await self._patience.outlast(call, "read control")
            except KeysTaken as error:
                raise _fenced(error) from error
            except KeysAway as error:
                log.warning("the index of requests cannot be used, trying again", extra=fields(error=error))
                if await within(self._stop, _RETRY_S):
                    raise StopRequested("the index of requests is away") from None

    async def _catch_up(self) -> None:
        """Take the index over, and store what stands behind its position on the log."""
        self._log_id = await log_id(self._bus)
        end = await self._bus.end_offset(CONTROL)
        if end and not self._log_id:
            raise BusUnavailable("the first event of control could not be read")
        position = await self._in_thread(lambda: self._keys.open(self._log_id, end))
        try:
            await self._read_tail(position, end)
        except OffsetLost as error:
            log.warning("the log has lost what the index lacks: it is made anew", extra=fields(error=error))
            await self._in_thread(lambda: self._keys.open(self._log_id, end, anew=True))
            await self._read_tail(0, end)
        self._recent = Recent()

    async def _read_tail(self, position: int, end: int) -> None:
        first, read = position, 0
        reader = await whole_reader(self._bus, {CONTROL: position})
        async with aclosing(batches(reader, CONTROL, position, end)) as found:
            async for messages in found:
                kept_from = messages[0].offset if position == 0 else 0
                position, read = messages[-1].offset + 1, read + len(messages)
                await self._store(_own(messages), position, kept_from)
        self.next_offset = max(self.next_offset, position)
        log.info("the index of requests is complete", extra=fields(index_was_at=first, records_read=read))

    async def _serve(self, session: Session) -> None:
        """Round after round, until told to stop, a commit is in doubt, or the index is away."""
        try:
            while not self._stop.is_set():
                batch = await self._next_batch()
                if batch:
                    await self._round(session, batch)
        except OutcomeUnknown as error:
            log.warning("a commit may or may not have happened", extra=fields(error=error))
        except KeysAway as error:
            self._knows_all = self.ready = False
            log.warning("the index of requests cannot be read", extra=fields(error=error))

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
            if not waiting.taken.done():
                batch.append(waiting)
        return batch

    async def _round(self, session: Session, batch: list[_Waiting]) -> None:
        """Answer what is known, append the rest."""
        async with self._appending:
            try:
                fresh = await self._unknown_of(batch)
            except KeysTaken as error:
                self._fail(batch, NotTaken("another gateway has taken over"))
                raise _fenced(error) from error
            except KeysAway as error:
                self._fail([waiting for waiting in batch if not waiting.committing], NotTaken(str(error)))
                self._take_up_again([waiting for waiting in batch if waiting.committing])
                raise
            if not fresh:
                return
            try:
                await self._commit(session, fresh)
            except OutcomeUnknown:
                self._knows_all = False
                self._take_up_again([waiting for waiting in fresh if waiting.committing])
                raise

    def _take_up_again(self, doubtful: list[_Waiting]) -> None:
        """The next round finds out, in the same order; it begins when the log has been read to its end."""
        self._queue.extendleft(reversed([waiting for waiting in doubtful if not waiting.taken.done()]))

    async def _unknown_of(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Those that have to be appended; the others are answered."""
        subjects = [subject for waiting in batch if (subject := arrives(waiting.envelope.event)) is not None]
        found = await self._find([waiting.envelope.id for waiting in batch], subjects)
        fresh: list[_Waiting] = []
        claimed: set[str] = set()
        for waiting in batch:
            entry = self._recent.get(waiting.envelope.id) or found.accepted.get(waiting.envelope.id)
            if entry is not None:
                await self._answer(waiting, entry)
            elif not waiting.clients:
                self._forget(waiting)
            elif refusal := self._refusal(waiting, found, claimed):
                self._fail([waiting], refusal)
            elif not waiting.taken.done():
                claimed.add(waiting.subject)
                fresh.append(waiting)
        return fresh

    async def _answer(self, waiting: _Waiting, entry: Accepted) -> None:
        """It stands on the log: it was in a commit in doubt, or was asked for before."""
        try:
            is_same = waiting.committing or await self._is_same(waiting, entry)
        except BusUnavailable as error:
            self._fail([waiting], NotTaken(f"the log cannot be reached: {error}"))
            return
        if is_same:
            self._done(waiting, entry, repeated=not waiting.committing)
        else:
            self._fail([waiting], _reused())

    async def _is_same(self, waiting: _Waiting, entry: Accepted) -> bool:
        """Digests may be of another version's encoding of the event: then the record itself is compared."""
        if entry.digest == waiting.digest:
            return True
        try:
            message = await first_from(self._bus, CONTROL, entry.offset)
            if message is None:
                raise BusUnavailable(f"nothing came for {SILENCE_S:g} s, expected the record at offset {entry.offset}")
            there = codec.record(message).envelope.event
        except (OffsetLost, Undecodable):
            return False
        return message.offset == entry.offset and digest_of(there) == waiting.digest

    def _refusal(self, waiting: _Waiting, found: Found, claimed: set[str]) -> Exception | None:
        """Why a request that is not known must not be appended; None when it may."""
        if not found.is_complete:
            return NotTaken(
                f"whether it was accepted before offset {found.kept_from} is known to the read models only, "
                f"which are at offset {found.read_models_next}"
            )
        subject = arrives(waiting.envelope.event)
        if subject is None:
            return None
        if self._disks.shortage:
            return NoRoom(self._disks.shortage)
        other = self._recent.arrival_of(subject)
        offset = other.offset if other is not None else found.arrived.get(subject)
        if offset is None and subject not in claimed:
            return None
        where = f"at offset {offset}" if offset is not None else "a moment ago"
        return IdTaken(f"the id {subject} belongs to what arrived {where} by another request")

    async def _commit(self, session: Session, batch: list[_Waiting]) -> None:
        batch = [waiting for waiting in batch if not waiting.taken.done()]
        if not batch:
            return
        for waiting in batch:
            waiting.committing = True
        started = time.perf_counter()
        try:
            offsets = await session.commit([codec.outgoing(waiting.envelope) for waiting in batch])
        except MessageTooLarge as error:
            await self._commit_singly(session, batch, error)
            return
        except Fenced as error:
            self._fail(batch, NotTaken("another gateway has taken over"))
            raise _fenced(error) from error
        except OutcomeUnknown:
            raise
        except LogFull as error:
            self._fail(batch, NoRoom(str(error)))
            return
        except BusUnavailable as error:
            self._fail(batch, NotTaken(f"the log cannot be reached: {error}"))
            return
        self._on_batch(len(batch), time.perf_counter() - started)
        for waiting, offset in zip(batch, offsets, strict=True):
            entry = accepted(waiting.envelope, offset)
            self._recent.add(entry)
            self._done(waiting, entry, repeated=False)
        self.next_offset = max(self.next_offset, offsets[-1] + 1)

    async def _commit_singly(self, session: Session, batch: list[_Waiting], error: MessageTooLarge) -> None:
        """One of them is too large: find out which, and let the others through."""
        if len(batch) == 1:
            self._fail(batch, error)
            return
        for waiting in batch:
            waiting.committing = False
        for waiting in batch:
            await self._commit(session, [waiting])

    def _done(self, waiting: _Waiting, entry: Accepted, *, repeated: bool) -> None:
        waiting.succeed(entry, repeated=repeated)
        self._flying.pop(waiting.envelope.id, None)
        if not repeated and self._on_appended is not None:
            self._on_appended(waiting.envelope, waiting.came_ns)

    def _fail(self, batch: list[_Waiting], error: Exception) -> None:
        for waiting in batch:
            waiting.fail(error)
            self._flying.pop(waiting.envelope.id, None)

    async def keep(self) -> None:
        """Until told to stop: store what was appended, let the position follow the log, forget what is too old."""
        waited_s = 0.0
        while not await within(self._stop, STORE_EVERY_S):
            waited_s += STORE_EVERY_S
            if not self._recent and waited_s < ADVANCE_EVERY_S:
                continue
            await self._store_recent()
            if waited_s >= ADVANCE_EVERY_S:
                waited_s = 0.0
                await self.prune()

    async def _store_recent(self) -> None:
        """Bring the stored index to the log's end; when that does not work, it is tried again later."""
        async with self._storing:
            entries: list[Accepted] = []
            try:
                async with self._appending:
                    if not self._knows_all:
                        return
                    entries = self._recent.all()
                    end = await self._bus.end_offset(CONTROL)
                await self._store(entries, end)
            except (KeysAway, KeysTaken, BusUnavailable) as error:
                what = fields(requests=len(entries), error=error)
                log.warning("the index of requests could not be written", extra=what)
                return
            self._recent.stored(entries)

    async def _store(self, entries: list[Accepted], next_offset: int, kept_from: int = 0) -> None:
        if not next_offset:
            return
        self._log_id = self._log_id or await log_id(self._bus)
        if not self._log_id:
            raise BusUnavailable("the first event of control could not be read")
        await asyncio.to_thread(self._keys.add, entries, next_offset, self._log_id, kept_from=kept_from)

    async def prune(self) -> None:
        """Forget what is older than the window, as far as the read models have it."""
        try:
            while await asyncio.to_thread(self._keys.prune, self._now() - self._keep_s):
                await asyncio.sleep(0)
        except (KeysAway, KeysTaken) as error:
            log.warning("the index of requests could not be pruned", extra=fields(error=error))

    async def _find(self, event_ids: list[str], subjects: list[str] | None = None) -> Found:
        return await self._in_thread(lambda: self._keys.find(event_ids, subjects or []))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._finding, call)


def _own(messages: list[Message]) -> list[Accepted]:
    """The entries of the gateway's own events."""
    return [
        accepted(codec.record(message).envelope, message.offset)
        for message in messages
        if dict(message.headers).get("ce_source") == _SOURCE
    ]


def _fenced(error: Exception) -> Fenced:
    return Fenced(f"another gateway has taken over this cell's door: {error}")


def _require_same(known: bytes, asked: bytes) -> None:
    if known != asked:
        raise _reused()


def _reused() -> KeyReused:
    return KeyReused("this key was used for another request before")
