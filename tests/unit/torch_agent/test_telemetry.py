"""How busy virtual GPUs are said to be by whatever runs there."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from torch_agent.clock import now_s
from torch_agent.complaints import Complaints
from torch_agent.coordinating.changes import Changes
from torch_agent.coordinating.readings import FIRST_PAGE_S
from torch_agent.harness.page import PageWriter
from torch_agent.leasing import Leasing
from torch_agent.probes.gpus import NO_OTHERS, GpuReading, Others
from torch_agent.probes.virtual import VirtualGpus
from torch_agent.processes import Table
from torch_agent.telemetry import Telemetry

from libs.bus.port import Outgoing
from libs.contracts import wire
from libs.contracts.agent import GpuSampled, MinibatchProfiled
from libs.node.lease import DEFAULTS
from libs.node.task import Status, Task
from libs.testing.builders import launch

MUCH_S = 1e6


class Heard:
    """A log that keeps samples of GPUs, and how far ranks are."""

    def __init__(self) -> None:
        self.samples: asyncio.Queue[GpuSampled] = asyncio.Queue()
        self.profiles: asyncio.Queue[MinibatchProfiled] = asyncio.Queue()

    async def append(self, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            event = wire.decode(message.headers, message.value).event
            if isinstance(event, GpuSampled):
                self.samples.put_nowait(event)
            elif isinstance(event, MinibatchProfiled):
                self.profiles.put_nowait(event)


class Used:
    """A task without pages that uses all of its CPUs, or none; its agent samples as often as it can."""

    def __init__(self, folder: Path, *gpu_indices: int, runs_s: float, busy: bool = True) -> None:
        self.task = Task(order=launch("a"), status=Status.RUNNING, started_s=now_s() - runs_s)
        self.task.gpu_indices = list(gpu_indices)
        self.folder, self.busy, self.cpu_s = folder, busy, 0.0

    def used_s(self, task: Task) -> float:
        self.cpu_s += MUCH_S if self.busy else 0.0
        return self.cpu_s

    async def loads(self) -> dict[int, float]:
        """{GPU: how busy it is}, by the second sample."""
        log = Heard()
        telemetry = Telemetry(
            log,  # type: ignore[arg-type]
            "n1",
            lambda: 1,
            VirtualGpus(3, "virtual", 1 << 30),
            active=lambda: [self.task],
            pages_of=lambda task: self.folder,
            cpu_s=self.used_s,
            report=lambda event: None,
            leasing=Leasing(self.folder / "lease", DEFAULTS),
            refused=lambda error: None,
            complaints=Complaints(),
            changes=Changes("n1"),
        )
        run = asyncio.create_task(telemetry.run(heartbeat_s=0.001))
        samples = [await log.samples.get() for _ in range(6)]
        run.cancel()
        return {sample.index: sample.utilisation_ratio for sample in samples[3:]}


class Gpus(VirtualGpus):
    """Notes which processes it is asked about."""

    def read(self, holders: Mapping[int, Sequence[int]], others: Others = NO_OTHERS) -> list[GpuReading]:
        self.asked = {index: list(pids) for index, pids in holders.items() if pids}
        return [_reading(0, 0.97), _reading(1, 0.03)]


def _reading(index: int, utilisation_ratio: float) -> GpuReading:
    return GpuReading(index=index, utilisation_ratio=utilisation_ratio, memory_used_bytes=0)


async def test_a_rank_whose_neighbour_has_no_page_yet_is_on_its_own_gpu(tmp_path: Path):
    task = Task(order=launch("a", gpus=2, first_rank=4), status=Status.RUNNING, started_s=now_s())
    page, gpus, log = PageWriter(str(tmp_path), 5, 6), Gpus(2, "virtual", 1 << 30), Heard()
    telemetry = Telemetry(
        log,  # type: ignore[arg-type]
        "n1",
        lambda: 1,
        gpus,
        active=lambda: [task],
        pages_of=lambda task: tmp_path,
        cpu_s=lambda task: 0.0,
        report=lambda event: None,
        leasing=Leasing(tmp_path / "lease", DEFAULTS),
        refused=lambda error: None,
        complaints=Complaints(),
        changes=Changes("n1"),
    )
    run = asyncio.create_task(telemetry.run(heartbeat_s=0.001))
    minibatches, ratio = 1, None
    async with asyncio.timeout(30):
        while ratio is None:
            minibatches += 1
            page.write(minibatches, 0.0, 0.001, 1.0, 0, 0)
            await asyncio.sleep(0.002)
            while not log.profiles.empty():
                ratio = log.profiles.get_nowait().gpu_utilisation_ratio
    run.cancel()
    assert gpus.asked == {1: [os.getpid()]}
    assert ratio == 0.03


async def test_a_task_without_torch_makes_its_gpus_busy(tmp_path: Path):
    assert await Used(tmp_path, 0, 2, runs_s=FIRST_PAGE_S + 60.0).loads() == {0: 1.0, 1: 0.0, 2: 1.0}


@pytest.mark.parametrize(("runs_s", "busy"), [(FIRST_PAGE_S + 60.0, False), (0.0, True)])
async def test_one_that_does_nothing_does_not_and_neither_does_one_that_has_just_begun(
    runs_s: float, busy: bool, tmp_path: Path
):
    """It may be importing torch."""
    assert set((await Used(tmp_path, 0, runs_s=runs_s, busy=busy).loads()).values()) == {0.0}


def test_what_the_ended_children_of_a_process_have_used_counts_as_its_own():
    """A script that runs one short program after the other is not idle."""
    spins = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spins!r}]); print(flush=True); input()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used_s = Table().cpu_s([process.pid])
        process.kill()
    assert used_s >= 0.3
