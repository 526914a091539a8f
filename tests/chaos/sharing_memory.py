"""An owner and a guest on the one GPU of a cell, what their files say each millisecond, and the moments of a burst."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from torch_agent.harness.control import current_allowance
from torch_agent.harness.gpu_page import LINK, GpuPage
from torch_agent.harness.page import PageReading
from torch_agent.pages import living, living_pages
from torch_agent.processes import lives

from libs.cli.cell import Cell
from libs.client import Client
from tests.e2e.test_guests import GuestsCell
from tests.e2e.test_rounds import wait_until
from tests.integration.test_memory_bursts import CAPACITY, GUEST_MB, LARGEST, MB, OWNER_MB, SCRIPT, SMALLEST

SAMPLE_S = 0.001
WITHIN_S = 400.0
LONGEST_S = 0.1
"""The owner waits no longer for a mini-batch of a guest with closed gates: how many are broken says nothing here."""
BURST_MB = int(0.8 * LARGEST * CAPACITY / MB) - OWNER_MB
OWNER, GUEST = "owner", "guest"


class Said(NamedTuple):
    """What the files of a task with a living process say."""

    pid: int
    change: int
    """Number of the change that it was told last, and its limit."""
    limit_bytes: int
    applied: int
    """The change that its process has applied."""


class Watch:
    """Looks at the files of all tasks on a GPU all the time, in a thread. Use as a context manager.

    Two looks that find the same are what was there between them. A process may have what it keeps to, and what it was
    told: it may come to its next boundary at once.
    """

    def __init__(self, node: Path) -> None:
        self._node, self._ended = node, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._limits: dict[str, dict[int, int]] = {}
        self._pages: dict[Path, GpuPage] = {}
        self._closed_since_s: dict[int, float] = {}
        self.samples = self.most_allowed = 0
        self.worst: dict[str, Said] = {}
        """What was said when most was allowed."""
        self.most_closed_s = 0.0
        """The longest time for which a process that had died kept gates closed."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            with suppress(OSError):  # a folder or a link is being made, or removed
                found = self._said()
                if found is not None and found == self._said():
                    self._take(found)
                self._look_at_gates()

    def _said(self) -> dict[str, Said] | None:
        """{task: what it says}; None: a page is being written."""
        found = {}
        for pages in self._node.glob("tasks/*/pages"):
            try:
                found_here = living(pages)
                if found_here.unread:
                    return None
                change, told = current_allowance(pages)
            except (OSError, ValueError):
                continue  # the folder is being made, or removed
            least = told.limit_at(0)
            limit = CAPACITY if least is None else least
            for page in found_here.pages:
                applied = page.memory.applied if page.memory is not None else 0
                found[pages.parent.name] = Said(page.pid, change, limit, applied)
        return found

    def _take(self, found: dict[str, Said]) -> None:
        allowed = {}
        for task, said in found.items():
            limits = self._limits.setdefault(task, {})
            limits[said.change] = said.limit_bytes
            # Before its first boundary a process has the limit that it was started with.
            allowed[task] = max(limits.get(said.applied or min(limits), 0), said.limit_bytes)
        self.samples += 1
        if sum(allowed.values()) > self.most_allowed:
            self.most_allowed, self.worst = sum(allowed.values()), found

    def _look_at_gates(self) -> None:
        now_s = time.monotonic()
        closed = {page.owner_pid for page in self._gpu_pages() if page.owner_pid and page.gap_s(now_s) == 0}
        dead = {pid for pid in closed if not lives(pid)}
        self._closed_since_s = {pid: self._closed_since_s.get(pid, now_s) for pid in dead}
        self.most_closed_s = max([self.most_closed_s, *(now_s - each for each in self._closed_since_s.values())])

    def _gpu_pages(self) -> Iterator[GpuPage]:
        for path in self._node.glob(f"tasks/*/pages/{LINK}*"):
            if path not in self._pages:
                self._pages[path] = GpuPage(path)
            yield self._pages[path]


@dataclass(frozen=True)
class Limits:
    """Of the two tasks at one moment."""

    owner: int
    guest: int


class SharingCell(GuestsCell):
    """A cell with one GPU; its memory is shared by an owner and a guest."""

    def __init__(self, cell: Cell, client: Client, folder: Path) -> None:
        super().__init__(client, folder)
        self._cell, self.node = cell, folder / "cell" / "nodes" / "n1"

    @property
    def records(self) -> Path:
        return self.node / "coordination" / "0"

    def train(self, name: str, tenant: str) -> str:
        """Submit one of the two, and wait until it trains."""
        self._of(name).mkdir()
        owns = name == OWNER
        sizes = [str(OWNER_MB), str(self.records), str(LONGEST_S)] if owns else [str(GUEST_MB), "0.02"]
        job = {
            "name": name,
            "command": [sys.executable, str(SCRIPT), str(self._of(name)), *sizes],
            "gpus": 1,
            "class": "guaranteed" if owns else "opportunistic",
            "tenant": tenant,
            "max_retries": 5,
        }
        job_id = str(self.client.submit(job)["id"])
        self.goes_on(name, 10)
        return job_id

    def losses(self, name: str) -> dict[int, list[str]]:
        """{process: its losses so far}, in the order in which the processes began."""
        files = sorted(self._of(name).glob("*.losses"), key=lambda path: path.stat().st_ctime_ns)
        return {int(path.stem): path.read_text().splitlines() for path in files}

    def goes_on(self, name: str, minibatches: int) -> None:
        """Until processes of the job have done so many mini-batches more."""
        before = sum(map(len, self.losses(name).values()))
        wait_until(lambda: sum(map(len, self.losses(name).values())) >= before + minibatches)

    def kill_at(self, moment: str, victim: str) -> None:
        """Kill something at a moment of a burst, and wait until the owner and the guest have what they need again."""
        before, deadline_s = self._begins_a_burst(), time.monotonic() + WITHIN_S
        while not self._is_at(moment, before):
            assert time.monotonic() < deadline_s, f"no {moment}"
            if self._is_whole():  # it was over before its moment was seen: another one
                before = self._begins_a_burst()
            time.sleep(SAMPLE_S)
        self._kill(victim)
        wait_until(self._is_whole)
        self._wants(0)
        self._leaves_to_guest()
        for name in (OWNER, GUEST):
            self.goes_on(name, 2)

    def _begins_a_burst(self) -> Limits:
        """Returns the limits before it."""
        self._wants(0)
        before = self._leaves_to_guest()
        self._wants(BURST_MB)
        return before

    def finish(self, name: str, job_id: str) -> None:
        """Have it end by itself, after some more mini-batches."""
        self.goes_on(name, 10)
        (self._of(name) / "end").touch()
        self.waits_for("SUCCEEDED", job_id)

    def _of(self, name: str) -> Path:
        return self.folder / f"of {name}"

    def _wants(self, megabytes: int) -> None:
        path = self._of(OWNER) / "more"
        path.with_suffix(".new").write_text(str(megabytes))
        path.with_suffix(".new").rename(path)

    def _page(self, name: str) -> tuple[PageReading, Path] | None:
        """Of the job's living process, and the folder of its pages; None: there is none, or it is being written."""
        pids = self.losses(name).keys()
        for pages in self.node.glob("tasks/*/pages"):
            for page in living_pages(pages):
                if page.pid in pids:
                    return page, pages
        return None

    def _limits(self) -> Limits | None:
        """None: a process is not there, or its page is being written."""
        owner, guest = self._page(OWNER), self._page(GUEST)
        if owner is None or guest is None:
            return None
        told = [current_allowance(pages)[1].limit_at(0) for _, pages in (owner, guest)]
        return Limits(*(CAPACITY if limit is None else limit for limit in told))

    def _is_at(self, moment: str, before: Limits) -> bool:
        """Whether the owner's memory lies on the host, the guest was told to shrink, or the owner that it may grow."""
        if moment != "burst":
            now = self._limits()
            return now is not None and (now.guest < before.guest if moment == "shrink" else now.owner > before.owner)
        found = self._page(OWNER)
        memory = found[0].memory if found is not None else None
        return memory is not None and max(memory.host_bytes, memory.minibatch_host_bytes) > 0

    def _is_whole(self) -> bool:
        found = self._page(OWNER)
        memory = found[0].memory if found is not None else None
        wants = (OWNER_MB + BURST_MB) * MB
        return memory is not None and memory.demand_bytes >= wants and memory.minibatch_host_bytes == 0

    def _leaves_to_guest(self) -> Limits:
        """Until the owner has so little that a burst exceeds it, and the guest a part of the rest. Returns both."""
        seen: list[Limits] = []

        def both() -> bool:
            now = self._limits()
            if now is None or now.owner > 0.9 * SMALLEST * CAPACITY or not OWNER_MB * MB < now.guest < CAPACITY:
                return False
            seen.append(now)
            return True

        wait_until(both)
        return seen[-1]

    def _kill(self, victim: str) -> None:
        if victim in (OWNER, GUEST):
            [*_, pid] = self.losses(victim)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: list(self.losses(victim))[-1] != pid)
        for name in [each for each in self._cell.children if each.startswith(victim)]:
            self._cell.kill(name)
