"""Agents in processes of their own, and a hand that gives them orders as placement would."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, Partition, Reader, Session, TopicLayout
from libs.contracts.agent import NodeErrorsLogged
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.runtime import ServiceStarted

FACT_WITHIN_S = 300.0
"""A launcher that imports torch, and then its ranks, are slow to begin on a busy machine."""


class AgentCase:
    """Use as an async context manager."""

    def __init__(
        self,
        folder: Path,
        *nodes: str,
        virtual_gpus: int = 4,
        gpu_memory_bytes: int = 0,
        environment: dict[str, str] | None = None,
        on_exit: str = "requeue",
    ):
        """One agent per node; `n1` where none is named.

        Args:
            folder: for the log and the agents' state.
            nodes: their names.
            virtual_gpus: of each node.
            gpu_memory_bytes: of each virtual GPU; 0: its part of the machine's.
            environment: besides this process's own.
            on_exit: what becomes of tasks when an agent is stopped.
        """
        self._on_exit = on_exit
        self._environment = {**os.environ, **(environment or {})}
        self.folder, self.nodes, self._virtual_gpus = folder, nodes or ("n1",), virtual_gpus
        self._gpu_memory_bytes = gpu_memory_bytes
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._url = f"sqlite:///{folder / 'log.db'}"
        self._numbers = itertools.count(1)
        self._unread: list[Event] = []
        self.facts: list[Event] = []
        self.bus: Bus
        self._session: Session
        self._reader: Reader

    async def __aenter__(self) -> AgentCase:
        self.bus = await connect(self._url, "test")
        await self.bus.create_topics(TopicLayout())
        self._session = await self.bus.open_session("placement")
        self._reader = await self.bus.reader({Partition(Topic.CONTROL, 0): 0})
        for node_id in self.nodes:
            self.start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        living = [process for process in self.processes.values() if process.poll() is None]
        for process in living:
            process.terminate()
        for process in living:
            process.wait(40)
        await self._reader.close()
        await self._session.close()
        await self.bus.close()

    def start(self, node_id: str = "n1", **environment: str) -> None:
        """Start the agent, with more in its environment where that is given."""
        command = [sys.executable, "-m", "torch_agent.service", "--bus", self._url, "--cell", "test"]
        command += ["--node-id", node_id, "--state-dir", str(self.folder / node_id)]
        command += ["--virtual-gpus", str(self._virtual_gpus), "--on-exit", self._on_exit]
        command += ["--gpu-memory", str(self._gpu_memory_bytes)]
        with (self.folder / "agent.log").open("ab") as log:
            self.processes[node_id] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**self._environment, **environment}
            )

    def kill(self, node_id: str = "n1") -> None:
        """kill -9."""
        self.processes[node_id].kill()
        self.processes[node_id].wait()

    def kill_shim(self, job_id: str, attempt: int = 1, node_id: str = "n1") -> None:
        """kill -9 of the parent of a task's processes."""
        found = json.loads((self.task_folder(job_id, attempt, node_id) / "shim.json").read_text())
        os.kill(found["pid"], signal.SIGKILL)

    async def pause(self) -> None:
        """Between two looks at what a task has come to: that is on no log."""
        await asyncio.sleep(0.02)

    async def order(self, *orders: Event) -> None:
        """Give orders, in one commit."""
        now_s = whole_microseconds(time.time())
        await self._session.commit(
            [
                codec.outgoing(
                    Envelope(id=f"order-{next(self._numbers)}", source="placement", time_s=now_s, event=order)
                )
                for order in orders
            ]
        )

    async def fact(self, *expected: type[Event]) -> Any:
        """The next facts must be of these types; returns the last of them."""
        event: Any = None
        for cls in expected:
            event = await self.next()
            while isinstance(event, NodeErrorsLogged | ServiceStarted) and cls is not type(event):
                event = await self.next()  # comes with a heartbeat, or when a service is ready, and so anywhere
            log = (self.folder / "agent.log").read_text()[-3000:]
            assert type(event) is cls, f"expected {cls.__name__}, got {event}\n{log}"
        return event

    async def all_of(self, *expected: type[Event]) -> list[Any]:
        """The next facts must be one of each of these types, in any order; returns them in that of the types."""
        found: dict[type[Event], Event] = {}
        while len(found) < len(expected):
            left = [cls for cls in expected if cls not in found]
            event = await self.next()
            if isinstance(event, NodeErrorsLogged | ServiceStarted) and type(event) not in left:
                continue
            log = (self.folder / "agent.log").read_text()[-3000:]
            assert event is not None and type(event) in left, f"expected one of {left}, got {event}\n{log}"
            found[type(event)] = event
        return [found[cls] for cls in expected]

    async def until(
        self, cls: type[Event], holds: Callable[[Any], bool] = lambda fact: True, within_s: float = FACT_WITHIN_S
    ) -> Any:
        """The next fact of this kind that is as wanted; `facts` has those that were passed over.

        Args:
            within_s: of the fact before it, whatever that is.
        """
        while True:
            fact = await self.next(within_s)
            assert fact is not None, f"no {cls.__name__} in time; facts: {self.facts}"
            self.facts.append(fact)
            if isinstance(fact, cls) and holds(fact):
                return fact

    async def next(self, within_s: float = FACT_WITHIN_S) -> Event | None:
        """The next fact; None when there is none in time."""
        if not self._unread:
            messages = await self._reader.next_batch(100, within_s)
            self._unread = [codec.record(message).envelope.event for message in messages]
        return self._unread.pop(0) if self._unread else None

    def task_folder(self, job_id: str, attempt: int = 1, node_id: str = "n1") -> Path:
        """Where the task's files are."""
        return self.folder / node_id / "tasks" / f"{job_id}.{attempt}"


async def has_state(pid: int, letter: str) -> None:
    """Wait until the process is in this state: `T` is stopped, `S` sleeps. A signal takes effect a moment later."""
    while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != letter:
        await asyncio.sleep(0.01)


def has_ended(pid: int) -> None:
    """Wait for it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:  # it is gone already
        return
    try:
        assert select.select([descriptor], [], [], 30.0)[0], f"{pid} has not ended"
    finally:
        os.close(descriptor)
