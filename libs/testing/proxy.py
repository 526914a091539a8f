"""A network that fails when it is told to: a TCP proxy, in a thread of its own, in front of one server."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self


class Proxy:
    """A context manager: inside, it listens at `port`. Its methods may be called from any thread."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        """Lead to this port of this host."""
        self._target = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._answers_to_lose = 0
        self.lost = threading.Event()
        """The answers that were to be lost are."""
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break all connections; new ones are closed at once."""
        self._run(self._set_cut(True))

    def mend(self) -> None:
        """Let connections through again."""
        self._run(self._set_cut(False))

    def leads_to(self, port: int, host: str = "127.0.0.1") -> None:
        """Connect to another server from now on."""
        self._target = host, port

    def lose_answers(self, count: int) -> None:
        """Let so many further requests arrive, and break their connections instead of bringing the answer."""
        self.lost.clear()
        self._answers_to_lose = count

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        await self._set_cut(True)

    async def _set_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        for writer in self._open if is_cut else ():
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            there, to_there = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, to_there}
        passing = [
            asyncio.ensure_future(self._pass(reader, to_there)),
            asyncio.ensure_future(self._back(there, writer)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in passing:
                direction.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
            for each in (writer, to_there):
                each.transport.abort()
                self._open.discard(each)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self._answers_to_lose:
                self._answers_to_lose -= 1
                if not self._answers_to_lose:
                    self.lost.set()
                return
            writer.write(data)
            await writer.drain()
