"""The gateway as a whole: its parts, wired, and their common life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from libs.bus.port import Bus
from libs.contracts.base import Event
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.gateway import OWNER, JobSessionClosed
from libs.kernel.ids import request_id
from libs.runtime.agents import Agents
from libs.runtime.cell_key import read_key
from libs.runtime.exits import StopRequested
from services.gateway.adapters.agents_bus import AgentsBus
from services.gateway.adapters.browsers import Browsers
from services.gateway.adapters.code_store import CodeStore
from services.gateway.adapters.cores import Cores
from services.gateway.adapters.database import Database
from services.gateway.adapters.dead_letters import DeadLetters
from services.gateway.adapters.disks import Disks
from services.gateway.adapters.feed import Feed
from services.gateway.adapters.intake import Intake, OnAppended
from services.gateway.adapters.keys import Keys
from services.gateway.adapters.left_open import LeftOpen
from services.gateway.adapters.light import Lamp
from services.gateway.adapters.metrics import Metrics
from services.gateway.adapters.notices import Notices
from services.gateway.adapters.sessions import Forwards
from services.gateway.adapters.tokens import Tokens
from services.gateway.settings import DAY_S, GatewaySettings


class Gateway:
    """What the HTTP layer works with.

    Args:
        settings: of this process.
        bus: the cell's log, topics in place.
        tokens: what each user may do; None: every request may do everything.
        agent_tokens: with which agents join; None: there are no others than among `tokens`.
        now: seconds since the epoch.
        on_appended: for traces.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        bus: Bus,
        *,
        tokens: Tokens | None = None,
        agent_tokens: Tokens | None = None,
        now: Callable[[], float] = time.time,
        on_appended: OnAppended | None = None,
    ) -> None:
        self.settings, self.bus, self.now = settings, bus, now
        self.tokens, self.agent_tokens = tokens, agent_tokens
        self.stop = asyncio.Event()
        self.agents_bus = AgentsBus(bus, self.stop, lease=settings.lease)
        self.metrics = Metrics()
        self.keys = Keys(settings.database)
        self.disks = Disks(bus, settings.state_dir, settings.disk_reserve_bytes)
        self.intake = Intake(
            bus,
            self.keys,
            self.disks,
            self.stop,
            timeout_s=settings.commit_timeout_s,
            keep_s=settings.idempotency_days * DAY_S,
            now=now,
            on_batch=self.metrics.committed,
            on_appended=on_appended,
        )
        self.feed = Feed(bus, self.stop)
        self.cores = Cores(bus, self.feed, settings.database, now, settings.foresee_s, self.stop)
        self.dead_letters = DeadLetters(bus, self.stop)
        self.database = Database(settings.database)
        self.notices = Notices(self.database, now)
        self.lamp = Lamp(self.database, settings.conservation_every_s)
        self.code = CodeStore(settings.state_dir / "code", settings.max_unpacked_code_bytes)
        key = read_key(settings.cell_key_file) if settings.cell_key_file else None
        self.agents = Agents(key)
        self.browsers = Browsers(key, settings.address()[1], now)
        self.forwards = Forwards()
        self.sessions = LeftOpen(bus, self.database, lambda closed: self.intake.take(self.session_end(closed)))
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def envelope(self, key: str, event: Event) -> Envelope:
        """The envelope of a request that is named by a key."""
        return Envelope(id=request_id(OWNER, key), source=OWNER, time_s=whole_microseconds(self.now()), event=event)

    def session_end(self, closed: JobSessionClosed) -> Envelope:
        """The envelope of the end of a session, which it has once."""
        return self.envelope(f"{closed.session_id}/closed", closed)

    def lock(self, subject: str) -> asyncio.Lock:
        """Held while a change of a job or a sweep is decided and appended: two with one `If-Match` must not both pass.

        Args:
            subject: id of the job or the sweep.
        """
        lock = self._locks.get(subject)
        if lock is None:
            lock = self._locks[subject] = asyncio.Lock()
        return lock

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Gateway]:
        """The parts at work; at the end nothing of them is left. `stop` is set when one of them cannot go on."""
        intake = asyncio.create_task(self._guarded(self.intake.run()), name="intake")
        lookers = [
            asyncio.create_task(self._guarded(work), name=name)
            for name, work in (
                ("disks", self.disks.run()),
                ("feed", self.feed.run()),
                ("cores", self.cores.run()),
                ("dead letters", self.dead_letters.run()),
                ("lamp", self.lamp.run(self.stop)),
                ("index", self.intake.keep()),
                ("sessions", self.sessions.run()),
            )
        ]
        try:
            yield self
        finally:
            self.stop.set()
            for looker in lookers:
                looker.cancel()
            results = await asyncio.gather(intake, *lookers, return_exceptions=True)
            await self.agents.aclose()
            await self.database.close()
            await asyncio.to_thread(self.keys.close)
            for result in results:
                if isinstance(result, Exception):
                    raise result

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StopRequested:
            return
        finally:
            self.stop.set()
