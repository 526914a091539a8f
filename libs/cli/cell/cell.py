"""The supervisor: starts a cell's processes, starts them again when they die, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Self, TextIO

from libs.bus.connect import connect
from libs.bus.local_broker.jars import FETCHING
from libs.bus.local_broker.network import free_port
from libs.bus.port import BusError, TopicLayout
from libs.cli import own_cells
from libs.cli.cell import lock
from libs.cli.cell.access import own_folder
from libs.cli.cell.child import Child
from libs.cli.cell.errors import CellError
from libs.cli.cell.plan import CellPlan, Command
from libs.cli.cell.ports import refuse_taken
from libs.cli.cell.start_deadline import READY_WITHIN_S, StartDeadline
from libs.runtime.cell_key import ensure_key
from libs.runtime.disk_room import FULL_BYTES, free_bytes
from libs.runtime.exits import NO_ROOM

TEND_EVERY_S = 0.1
AGENTS_END_WITHIN_S, SERVICES_END_WITHIN_S = 35.0, 10.0

Say = Callable[[str], None]


class Cell:
    """A context manager: inside, the cell is ready and its processes are kept running."""

    def __init__(self, plan: CellPlan, say: Say = lambda text: None) -> None:
        """Prepare; nothing runs yet.

        Args:
            say: is told about progress and about processes that died, one sentence at a time.
        """
        if plan.own_broker and not plan.broker_port:
            plan = dataclasses.replace(plan, broker_port=free_port())
        self.plan, self._say = plan, say
        self.children: dict[str, Child] = {}
        self._lock: TextIO | None = None
        self._mutex = threading.RLock()
        self._ending = threading.Event()
        """Nothing is started any more."""
        self._ended = threading.Event()
        self._work = threading.Thread(target=self._tend, name="supervisor", daemon=True)
        self._fault: BaseException | None = None
        """Why the supervising thread keeps no process running any more."""
        self._over = threading.Event()
        """The processes are not kept running any more: the thread has failed, or they are being ended."""
        self._requests: list[tuple[Command, threading.Event]] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until the gateway answers and every agent has joined.

        Raises:
            CellError: the state directory or the gateway's port is in use, or a process does not come up.
        """
        if own_folder(self.plan.state_dir):
            self._say(f"{self.plan.state_dir} was open to other users of this machine, and is closed to them now")
        self._lock = lock.take(self.plan.state_dir)
        refuse_taken(self.plan.gateway_port)
        self._give_access()
        (self.plan.state_dir / "logs").mkdir(exist_ok=True)
        ensure_key(self.plan.key_file)
        if (joining := self.plan.joining) is not None:
            refuse_taken(joining.port, joining.address())
            joining.prepare()
        self._work.start()
        if self.plan.own_broker:
            self._say("starting Kafka")
            self._add(self.plan.broker())
        self._create_topics()
        self._say("starting the services")
        for command in self.plan.services():
            self._add(command)
        for command in self.plan.agent_commands():
            self._add(command)
        self._wait_until_ready()

    def stop(self) -> None:
        """End everything: agents first (they say what becomes of their tasks), then the services, then the broker."""
        self._ending.set()
        self._over.set()
        with self._mutex:
            names = list(self.children)
            agents = [n for n in names if n.startswith("agent-")]
            brokers = [n for n in names if n == "broker"]
            self._end([self.children[n] for n in agents], AGENTS_END_WITHIN_S)
            self._end([self.children[n] for n in names if n not in (*agents, *brokers)], SERVICES_END_WITHIN_S)
            self._end([self.children[n] for n in brokers], SERVICES_END_WITHIN_S)
        self._ended.set()
        if self._work.is_alive():
            self._work.join()
        if self._lock is not None:
            if (access := self.plan.access) is not None:
                own_cells.forget(self.plan.gateway_port, access.token_file)
            self._lock.close()
            self._lock = None

    def wait(self) -> None:
        """Wait as long as the processes are kept running.

        Raises:
            CellError: they are not any more.
        """
        self._over.wait()
        self.require_supervisor()

    def require_supervisor(self) -> None:
        """Make sure that processes which die are started again.

        Raises:
            CellError: one of them ends again and again, or the supervising thread has failed; and why.
        """
        if isinstance(self._fault, CellError):
            raise self._fault
        if self._fault is not None:
            what = f"{type(self._fault).__name__}: {self._fault}"
            raise CellError(f"the supervisor of the cell has failed, and the cell is ended: {what}") from self._fault

    def pids(self) -> dict[str, int]:
        """{name: pid} of the processes that run now."""
        with self._mutex:
            return {name: pid for name, child in self.children.items() if (pid := child.pid) is not None}

    def kill(self, name: str) -> None:
        """SIGKILL one process; the supervisor starts it again."""
        with self._mutex:
            self.children[name].kill()

    def get(self, path: str) -> Any:
        """Ask the gateway.

        Raises:
            OSError: it does not answer, or with an error.
        """
        return self._ask("GET", path)

    def page_link(self) -> str:
        """The URL of the page, with what lets one browser in.

        Raises:
            OSError: the gateway does not answer, or with an error.
        """
        return f"{self.plan.gateway_url}{self._ask('POST', '/v1/browser-logins')['path']}"

    def token(self) -> str | None:
        """Of the cell's user; None: none is needed."""
        return self.plan.access.token() if self.plan.access is not None else None

    def _ask(self, method: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if (token := self.token()) else {}
        request = urllib.request.Request(f"{self.plan.gateway_url}{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read())

    def _give_access(self) -> None:
        access = self.plan.access
        if access is None:
            return
        access.prepare()
        try:
            own_cells.remember(self.plan.gateway_port, access.token_file)
        except OSError as error:
            hint = f"SANJAYA_TOKEN=$(cat {access.token_file}) sanjaya …"
            self._say(f"other commands do not find the cell's token by themselves ({error}): {hint}")

    def _add(self, command: Command) -> None:
        """Have the supervising thread start a process.

        It must be that thread: the kernel ends a child together with the thread that made it.
        """
        started = threading.Event()
        with self._mutex:
            self._requests.append((command, started))
        while not started.wait(TEND_EVERY_S):
            self.require_supervisor()

    def _tend(self) -> None:
        """The supervising thread. It stays until the last child has ended: its own end would be theirs."""
        try:
            while not self._ended.wait(TEND_EVERY_S):
                with self._mutex:
                    if not self._ending.is_set():
                        self._start_requested()
                        self._start_again()
        except BaseException as error:  # raised in the thread that waits for the cell
            self._fault = error
            self._over.set()
            self._ended.wait()

    def _start_requested(self) -> None:
        while self._requests:
            command, started = self._requests.pop(0)
            child = self.children[command.name] = Child(command, self.plan.state_dir / "logs")
            child.start()
            started.set()

    def _start_again(self) -> None:
        for name, child in self.children.items():
            status = child.tend(self._has_room)
            if status is None:
                continue
            if child.is_over:
                self._say(f"{name} ended with status {status}: another one works in its place; it is not started again")
                continue
            if child.is_hopeless:
                raise CellError(
                    f"{name} has ended with status {status} soon after its start, {child.quick_ends} times in a row; "
                    f"the cell is ended\n{self._last_words(name)}"
                )
            waits = "" if status != NO_ROOM and self._has_room() else ", for the disk has no room"
            self._say(f"{name} ended with status {status}{waits}; it is started again")

    def _has_room(self) -> bool:
        return free_bytes(self.plan.state_dir) >= FULL_BYTES

    def _create_topics(self) -> None:
        deadline = StartDeadline(time.monotonic())

        async def create() -> None:
            bus = await connect(self.plan.bus, self.plan.cell)
            try:
                await bus.create_topics(TopicLayout())
            finally:
                await bus.close()

        while True:
            try:
                asyncio.run(create())
                return
            except BusError as error:
                if deadline.is_over(time.monotonic(), fetches=self._fetches_broker()):
                    raise CellError(f"the log cannot be used: {error}\n{self._last_words('broker')}") from error
                time.sleep(TEND_EVERY_S)

    def _fetches_broker(self) -> bool:
        """Whether the broker is being downloaded, which says nothing of how long it takes to start."""
        broker = self.children.get("broker")
        return broker is not None and broker.last_words().rsplit("\n", 1)[-1].startswith(FETCHING)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        expected = set(self.plan.node_ids)
        missing = "the gateway"
        while time.monotonic() < deadline:
            self.require_supervisor()
            with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
                self.get("/readyz")
                here = {node["id"] for node in self.get("/v1/nodes")["items"] if node["state"] == "UP"}
                if expected <= here:
                    return
                missing = f"agent-{min(expected - here)}"
            time.sleep(TEND_EVERY_S)
        name = "gateway" if missing == "the gateway" else missing
        raise CellError(f"{missing} is not ready after {READY_WITHIN_S:.0f} s\n{self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        child = self.children.get(name)
        return f"{child.log_path}:\n{child.last_words()}" if child is not None else ""

    @staticmethod
    def _end(children: list[Child], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        for child in children:
            child.ask_to_end()
        for child in children:
            child.wait_for_end(deadline)
