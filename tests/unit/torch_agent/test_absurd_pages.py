"""Whatever processes write on their pages and into their control files, the agent goes on and says what is right."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch_agent.acknowledgements import with_acknowledgements
from torch_agent.coordinating.coordinator import Coordinator
from torch_agent.folders import TaskFolder
from torch_agent.harness.allowance import GUEST, OWNER
from torch_agent.harness.control import LAYOUTS, NAME, VERSION, current_allowance
from torch_agent.harness.page import Acknowledged, Handover, Memory, PageWriter
from torch_agent.harness.versions import Unreadable
from torch_agent.pages import living, pages
from torch_agent.sharing import Sharing
from torch_agent.telemetry import Meter
from torch_agent.watching import Watching

from libs.contracts import wire
from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo
from libs.node.advance import advance
from libs.node.seen import Seen
from libs.node.task import Status, Task, Want
from tests.unit.node.test_task import LAUNCH

GB = 1 << 30
STEPS = 60
COUNTS = (0, 1, 2, 5, 100, GB, 8 * GB, 2**53)
SECONDS = (0.0, -1.0, 1e-300, 0.1, 0.2, 1e9, 2.0**53, -(2.0**53))
LOSSES = (*SECONDS, math.nan, math.inf)
NUMBERS = (0, 5, 2**63, 2**64 - 2, 2**64 - 1)
CHANGE_AT, LIMIT_AT, SHARE_AT, PLACES_AT = 24, 40, 48, 56


class Node:
    """An owner and two guests, with processes that write anything."""

    def __init__(self, path: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.facts: list[Event] = []
        self.tasks: dict[str, Task] = {}
        self.pages: dict[str, PageWriter] = {}
        self.path = path
        for number, role in enumerate((OWNER, GUEST, GUEST)):
            order = msgspec.structs.replace(LAUNCH, job_id=f"j{number}", role=role)
            task = Task(order=order, gpu_indices=[0], status=Status.RUNNING, role=role)
            self.tasks[task.key] = task
            self.folder(task).make()
            self.pages[task.key] = PageWriter(str(self.folder(task).pages), 0, 1)

    def active(self) -> list[Task]:
        return list(self.tasks.values())

    def folder(self, task: Task) -> TaskFolder:
        return TaskFolder(self.path / "tasks" / task.key)

    def changed(self, task: Task) -> None:
        task.status = Status.RUNNING if task.want is Want.RUN else Status.SUSPENDED

    def report(self, facts: Sequence[Event]) -> None:
        self.facts += facts

    def write(self) -> None:
        for task in self.active():
            if self.draw.random() < 0.5:
                self._write_page(self.pages[task.key])
            if self.draw.random() < 0.1:
                self._write_control(self.folder(task).pages / NAME)

    def _some(self, of: Sequence[Any], number: int) -> list[Any]:
        return [self.draw.choice(of) for _ in range(number)]

    def _write_page(self, page: PageWriter) -> None:
        page.write(*self._some(COUNTS, 1), *self._some(SECONDS, 2), *self._some(LOSSES, 1), *self._some(COUNTS, 2))
        page.memory(Memory(*self._some(COUNTS, 6)))
        page.gate(*self._some(COUNTS, 1), *self._some(SECONDS, 3), *self._some(COUNTS, 1))
        page.acknowledged(Acknowledged(*self._some(COUNTS, 3), *self._some(SECONDS, 3)))
        page.rhythm(*self._some(SECONDS, 1), self.draw.choice((0, 1, 2**32 - 1)))
        page.handover(Handover(*self._some((True, False), 3), *self._some(COUNTS, 1), save_fd=-(2**31)))

    def _write_control(self, path: Path) -> None:
        """It is removed and made anew: what is mapped stays."""
        content = bytearray(path.read_bytes()) if path.exists() else bytearray()
        path.unlink(missing_ok=True)
        what = self.draw.choice(("gone", "cut", "number", "limit", "share", "places", "turn"))
        if what == "gone" or len(content) < LAYOUTS[VERSION].size:
            return
        if what == "share":
            struct.pack_into("<d", content, SHARE_AT, self.draw.choice(LOSSES))
        elif what != "cut":
            at = {"number": CHANGE_AT, "limit": LIMIT_AT, "places": PLACES_AT, "turn": 0}[what]
            struct.pack_into("<Q", content, at, self.draw.choice(NUMBERS))
        path.write_bytes(content[: self.draw.choice((0, 7, 8, 16, 23, 30, 63, 191))] if what == "cut" else content)


@pytest.mark.parametrize("seed", range(12))
def test_absurd_numbers_stop_no_agent_and_reach_no_log(tmp_path: Path, seed: int):
    node, now_s = Node(tmp_path, seed), 100.0
    sharing = Sharing(tmp_path / "gpus", [0], virtual=True)
    gpu = GpuInfo(index=0, gpu_type="v100", memory_bytes=8 * GB)
    coordinator = Coordinator("n1", [gpu], sharing, tmp_path / "records", virtual=True, scales=True)
    meter, watching = Meter(), Watching(lambda task: 0.0, virtual=True)
    for _ in range(STEPS):
        now_s += node.draw.choice((0.1, 0.1, 1.0))
        node.write()
        coordinator.look(node, now_s)
        said = {task.key: living(node.folder(task).pages) for task in node.active()}
        pages_of = {key: each.pages for key, each in said.items()}
        node.facts += watching.look(node.active(), pages_of, {}, now_s)
        for task in node.active():
            folder = node.folder(task).pages
            node.facts += meter.measure(task, pages(folder), {}, now_s)
            seen = with_acknowledgements(Seen(launched=True, pid=5, ended=None), folder, said[task.key])
            asked = msgspec.structs.replace(task, want=Want.SUSPEND, asked_since_s=now_s - 1.0)
            node.facts += advance(asked, seen, now_s).facts
    assert node.facts
    for fact in node.facts:
        assert msgspec.json.decode(wire.encode_data(fact), type=type(fact)) == fact


def test_a_control_file_that_is_cut_off_is_refused(tmp_path: Path):
    folder = Node(tmp_path, 0).folder(Task(order=LAUNCH, gpu_indices=[0])).pages
    TaskFolder(folder.parent).make()
    path = folder / NAME
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(Unreadable, match="30 bytes; a control file of version 5 has 192"):
        current_allowance(folder)
