"""An owner and a guest on one virtual GPU: real processes, a real agent; read from the facts that it tells."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from torch_agent.harness.page import Memory
from torch_agent.pages import pages

from libs.bus import codec
from libs.contracts.agent import (
    AllowanceChange,
    ComputeShareChanged,
    GpuCoordinated,
    JobExited,
    JobStarted,
    MemoryBurst,
    MemoryLimitChanged,
    NodeJoined,
)
from libs.contracts.base import Topic
from libs.contracts.placement import LaunchTask
from libs.coordination.recording import derive
from libs.testing.builders import launch
from libs.testing.shells import messages
from tests.integration.agent_case import AgentCase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the memory of virtual GPUs needs a C compiler"),
]

MB = 1_000_000
CAPACITY = 1000 * MB
OWNER_MB, GUEST_MB, BURST_MB = 100, 300, 500
NO_HOST = "ulimit -f 60000"
"""No file may be so large as the one for what leaves a GPU: to the allocator the host is full."""
SCRIPT = Path(__file__).with_name("sharing_script.py")


class SharedGpu:
    """One GPU, its agent, and the facts so far."""

    def __init__(self, case: AgentCase, folder: Path) -> None:
        self.case, self._folder = case, folder

    def folder(self, name: str) -> Path:
        folder = self._folder / f"of {name}"
        folder.mkdir(exist_ok=True)
        return folder

    def task(self, name: str, megabytes: int, role: str) -> LaunchTask:
        command = [sys.executable, str(SCRIPT), str(megabytes), "0.02", str(self.folder(name))]
        return launch(name, *command, role=role)

    async def limit(self, job_id: str, holds: Callable[[int | None], bool], since: int) -> MemoryLimitChanged:
        """The first such limit after so many facts; it may come before the burst that it is for, told when over."""

        def found(fact: object) -> bool:
            return isinstance(fact, MemoryLimitChanged) and fact.job_id == job_id and holds(fact.to_bytes)

        return next(filter(found, self.case.facts[since:]), None) or await self.case.until(MemoryLimitChanged, found)

    def memory(self, job_id: str) -> Memory | None:
        """None while its page is being written."""
        found = pages(self.case.task_folder(job_id) / "pages")
        return found[0].memory if found else None

    async def seen(self, job_id: str, holds: Callable[[Memory], bool]) -> None:
        """Until the process's page says so."""
        while (memory := self.memory(job_id)) is None or not holds(memory):
            await asyncio.sleep(0.05)


async def test_an_owner_arrives_bursts_and_leaves_beside_a_guest(tmp_path: Path):
    async with AgentCase(tmp_path, virtual_gpus=1, gpu_memory_bytes=CAPACITY) as case:
        joined = await case.fact(NodeJoined)
        assert joined.scales_memory == "all" and joined.scales_compute
        assert joined.spill_bytes == joined.memory_bytes - CAPACITY
        gpu = SharedGpu(case, tmp_path)
        await case.order(gpu.task("guest", GUEST_MB, "guest"))
        await gpu.case.until(ComputeShareChanged, lambda fact: fact.job_id == "guest" and fact.to_ratio == 1.0)
        await gpu.case.until(JobStarted, lambda fact: fact.job_id == "guest")
        await seen_training(gpu, "guest")

        await case.order(gpu.task("owner", OWNER_MB, "owner"))
        await gpu.case.until(JobStarted, lambda fact: fact.job_id == "owner")
        begun = len(case.facts)
        floor = next(f for f in gpu.case.facts if isinstance(f, MemoryLimitChanged) and f.job_id == "guest")
        assert floor.to_bytes == int(0.02 * CAPACITY) and floor.reason.code == "OwnerArrived"
        assert floor.host_bytes > 0.8 * GUEST_MB * MB, "its state is on the host before the owner begins"

        grown = await gpu.limit("guest", lambda to: to is not None and to > 0.5 * CAPACITY, begun)
        assert grown.to_bytes <= 0.95 * CAPACITY - OWNER_MB * MB
        await gpu.seen("guest", lambda memory: memory.host_bytes == 0)

        before = len(case.facts)
        (gpu.folder("owner") / "more").write_text(str(BURST_MB))
        burst = await gpu.case.until(MemoryBurst, lambda fact: True)
        assert (burst.job_id, burst.from_jobs) == ("owner", ["guest"])
        most = 0.95 * CAPACITY - (OWNER_MB + BURST_MB) * MB
        await gpu.limit("guest", lambda to: to is not None and to <= most, before)
        await gpu.seen("owner", lambda memory: memory.host_bytes == memory.minibatch_host_bytes == 0)

        before = len(case.facts)
        (gpu.folder("owner") / "end").touch()
        await gpu.case.until(JobExited, lambda fact: fact.job_id == "owner" and fact.exit_code == 0)
        await gpu.limit("guest", lambda to: to is None, before)
        await changes_told(case)
        (gpu.folder("guest") / "end").touch()
        await gpu.case.until(JobExited, lambda fact: fact.job_id == "guest" and fact.exit_code == 0)
    files = sorted((tmp_path / "n1" / "coordination" / "0").glob("*.jsonl"))
    steps = [step for path in files for step in derive(path.read_bytes().splitlines(keepends=True))]
    assert steps and all(step.is_same for step in steps), "every recorded step is derived again"


async def test_an_owner_waits_for_a_guest_whose_memory_has_no_room_on_the_host(tmp_path: Path):
    async with AgentCase(tmp_path, virtual_gpus=1, gpu_memory_bytes=CAPACITY) as case:
        await case.fact(NodeJoined)
        gpu = SharedGpu(case, tmp_path)
        guest = gpu.task("guest", 2 * GUEST_MB, "guest")
        await case.order(replace(guest, command=["bash", "-c", f"{NO_HOST}; exec {shlex.join(guest.command)}"]))
        await case.until(JobStarted, lambda fact: fact.job_id == "guest")
        await seen_training(gpu, "guest")
        await case.order(gpu.task("owner", BURST_MB, "owner"))
        await case.until(JobStarted, lambda fact: fact.job_id == "owner")
        [ended] = [fact for fact in case.facts if isinstance(fact, JobExited)]
        assert (ended.job_id, ended.outcome) == ("guest", "interrupted")
        assert ended.stderr_tail == "its memory cannot be taken off the GPU that owner needs"
        (gpu.folder("owner") / "end").touch()
        await case.until(JobExited, lambda fact: fact.job_id == "owner" and fact.exit_code == 0)


async def test_each_process_of_a_gang_has_the_limit_of_its_own_gpu(tmp_path: Path):
    async with AgentCase(tmp_path, virtual_gpus=2, gpu_memory_bytes=CAPACITY) as case:
        await case.fact(NodeJoined)
        gpus = SharedGpu(case, tmp_path)
        await case.order(replace(gpus.task("guest", GUEST_MB, "guest"), gpu_indices=[0, 1], world_size=2))
        await case.until(JobStarted, lambda fact: fact.job_id == "guest")
        while [page.minibatches_total >= 3 for page in pages(case.task_folder("guest") / "pages")] != [True, True]:
            await asyncio.sleep(0.05)
        await case.order(replace(gpus.task("owner", OWNER_MB, "owner"), gpu_indices=[1]))
        await case.until(JobStarted, lambda fact: fact.job_id == "owner")
        while len(found := pages(case.task_folder("guest") / "pages")) < 2:  # one is being written
            await asyncio.sleep(0.05)
        whole, squeezed = (page.memory for page in found)
        assert whole is not None and squeezed is not None
        assert squeezed.host_bytes > 0.8 * GUEST_MB * MB, "beside the owner its state is on the host"
        assert whole.host_bytes == 0 and whole.device_bytes > 0.8 * GUEST_MB * MB
        for name in ("guest", "owner"):
            (gpus.folder(name) / "end").touch()
            await case.until(JobExited, lambda fact, name=name: fact.job_id == name and fact.exit_code == 0)


async def changes_told(case: AgentCase) -> None:
    """Telemetry has each change until the guest is alone again: those of the log's facts, and those between them."""
    changes: list[AllowanceChange] = []
    while not (shared(changes) and changes[-1].job_id == "guest" and changes[-1].memory_limit_bytes is None):
        told = [codec.record(message).envelope.event for message in await messages(case.bus, Topic.TELEMETRY)]
        changes = [each for event in told if isinstance(event, GpuCoordinated) for each in event.changes]
        changes = list(dict.fromkeys(changes))  # again what may not have been sent: it is told once at least
        await asyncio.sleep(0.05)
    times = [each.time_s for each in changes]
    assert times == sorted(times)
    limits = {each.memory_limit_bytes for each in changes if each.job_id == "guest"}
    facts = {fact.to_bytes for fact in case.facts if isinstance(fact, MemoryLimitChanged) and fact.job_id == "guest"}
    assert facts <= limits and {0.0, 1.0} <= {each.compute_share_ratio for each in changes if each.job_id == "guest"}


def shared(changes: list[AllowanceChange]) -> bool:
    """Whether there was an owner."""
    return any(each.job_id == "owner" for each in changes)


async def seen_training(gpu: SharedGpu, job_id: str) -> None:
    while not (found := pages(gpu.case.task_folder(job_id) / "pages")) or found[0].minibatches_total < 3:
        await asyncio.sleep(0.05)
