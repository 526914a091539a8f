"""What an agent finds of limits that one before it has set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from torch_agent.coordinating.coordinator import Coordinator
from torch_agent.folders import TaskFolder
from torch_agent.harness.allowance import OWNER, Allowance
from torch_agent.harness.control import allow, current_allowance
from torch_agent.harness.page import Memory, PageWriter
from torch_agent.sharing import Sharing

from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo
from libs.node.task import Status, Task
from tests.unit.node.test_task import LAUNCH

GB = 1 << 30
LIMIT = 4 * GB


class OneTask:
    """A node with an owner that an earlier agent has limited."""

    def __init__(self, path: Path) -> None:
        self.path, self.task = path, Task(order=LAUNCH, gpu_indices=[0], status=Status.RUNNING)
        self.facts: list[Event] = []
        self.folder_of_task = TaskFolder(path / self.task.key)
        self.folder_of_task.make()
        self.page = PageWriter(str(self.folder_of_task.pages), 0, 1)
        self.applies(allow(self.folder_of_task.pages, Allowance(role=OWNER, memory_limits=(LIMIT,))))

    def active(self) -> list[Task]:
        return [self.task]

    def folder(self, task: Task) -> TaskFolder:
        return self.folder_of_task

    def changed(self, task: Task) -> None:
        pytest.fail("no owner is suspended or ended")

    def report(self, facts: Sequence[Event]) -> None:
        self.facts += facts

    def applies(self, change: int) -> None:
        """Its process comes to a boundary."""
        self.page.write(change, 0.0, 0.1, 0.5, 0, 0)
        self.page.memory(Memory(applied=change, device_bytes=GB, demand_bytes=GB))

    @property
    def told(self) -> tuple[int, int | None]:
        number, found = current_allowance(self.folder_of_task.pages)
        return number, found.limit_at(0)


@pytest.fixture
def node(tmp_path: Path) -> OneTask:
    return OneTask(tmp_path)


def sharing_of(node: OneTask) -> Sharing:
    return Sharing(node.path / "gpus", [0], virtual=True)


def test_a_limit_stays_when_another_agent_comes(node: OneTask):
    sharing = sharing_of(node)
    sharing.keep(node.task, node.folder(node.task))
    assert node.told[1] == LIMIT


def test_a_task_that_is_left_alone_with_a_limit_of_an_earlier_agent_gets_rid_of_it(node: OneTask):
    sharing = sharing_of(node)
    gpu = GpuInfo(index=0, gpu_type="v100", memory_bytes=8 * GB)
    coordinator = Coordinator("n1", [gpu], sharing, node.path / "records", virtual=True, scales=True)
    sharing.keep(node.task, node.folder(node.task))
    assert coordinator.look(node, 0.0)
    assert coordinator.look(node, 0.1) and node.told[1] is None
    node.applies(node.told[0])
    coordinator.look(node, 20.0)
    assert not coordinator.look(node, 20.1), "nothing is left to do"
    sharing.keep(node.task, node.folder(node.task))
    assert node.told[1] is None


def test_what_coordination_gave_ends_with_it(node: OneTask):
    """Else a guest that comes back as an owner, with no guest beside it, keeps the limit and the share of before."""
    sharing = sharing_of(node)
    sharing.give(node.task, node.folder(node.task), (LIMIT // 2,), 0.0)
    assert node.told[1] == LIMIT // 2
    gpu = GpuInfo(index=0, gpu_type="v100", memory_bytes=8 * GB)
    coordinator = Coordinator("n1", [gpu], sharing, node.path / "records", virtual=True, scales=True)
    coordinator.look(node, 0.0)
    for number in (1, 2):
        coordinator.look(node, number / 10)
        sharing.keep(node.task, node.folder(node.task))
    assert node.told[1] is None
    assert current_allowance(node.folder(node.task).pages)[1].share_ratio == 1.0
