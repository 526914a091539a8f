"""An owner that waits most of its time and a guest that never does, on one CPU: real processes, a real agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch_agent.harness.control import current_allowance
from torch_agent.harness.page import PageReading
from torch_agent.pages import pages

from libs.contracts.agent import JobExited, JobStarted, NodeJoined
from libs.contracts.placement import SetClass, SetComputeShare, StopTask
from libs.contracts.reasons import Reason
from libs.testing.builders import launch
from tests.integration.agent_case import AgentCase

SCRIPT = Path(__file__).with_name("gate_script.py")
EXAMPLES = Path(__file__).parents[2] / "torch_agent" / "examples"
COMPUTE_S, WAIT_S = 0.020, 0.040
OWNER, GUEST = "owner", "guest"
WARM = 5
"""Mini-batches after which a process has its pace, and keeps to what it was told before them."""


@dataclass(frozen=True)
class Minibatch:
    """One of the owner's, as its script has measured it."""

    at_s: float
    """When it ended; CLOCK_MONOTONIC."""
    took_s: float
    own_s: float
    """CPU time of the owner, from the batch on."""
    guest_s: float
    """CPU time of the guest meanwhile."""


class SharedDevice:
    """What the processes on the one GPU of an agent do. Use as an async context manager."""

    def __init__(self, folder: Path, case: AgentCase) -> None:
        """The scripts leave what they measure in a folder of this one."""
        self.case, self.folder = case, folder / "lines"
        self.pids: dict[str, int] = {}
        self._pages: dict[str, PageReading] = {}
        """What each process said last: a page that is being written cannot be read."""

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True)
        await self.case.__aenter__()
        self.joined = await self.case.fact(NodeJoined)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.case.__aexit__(*exception)

    async def run(self, name: str, command: Sequence[str], *, role: str, packed_with: Sequence[str] = ()) -> None:
        """Start any script that trains, and wait until it does."""
        await self.launched(name, command, role=role, packed_with=list(packed_with))
        await self.minibatches(name, WARM)

    async def launched(self, name: str, command: Sequence[str], **fields: Any) -> None:
        """Start any script, and wait until its process is there; the fields are those of LaunchTask."""
        await self.case.order(launch(name, *command, **fields))
        started = await self.case.until(JobStarted, lambda fact: fact.job_id == name)
        self.pids[name] = started.pid
        self._pages.pop(name, None)

    async def be(self, name: str, role: str) -> None:
        """The running task has this role from now on."""
        await self.case.order(SetClass(node_id="n1", job_id=name, attempt=1, role=role))
        await self.minibatches(name, WARM)

    async def bound(self, name: str, share_ratio: float | None) -> None:
        """No more of the GPU's time than this share."""
        await self.case.order(SetComputeShare(node_id="n1", job_id=name, attempt=1, share_ratio=share_ratio))

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """It stands still meanwhile. A guest should have a bound of 0: coordination is to see that nothing is open."""
        os.kill(self.pids[name], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pids[name], signal.SIGCONT)

    async def stop(self, *names: str) -> None:
        """End tasks."""
        reason = Reason(code="Test", message="measured")
        orders = [StopTask(node_id="n1", job_id=name, attempt=1, grace_s=0.0, reason=reason) for name in names]
        await self.case.order(*orders)
        for _ in names:
            await self.case.until(JobExited, lambda fact: fact.job_id in names)

    async def gives(self, name: str, share_ratio: float) -> None:
        """Bound a guest without an owner, and wait until it keeps to that."""
        await self.bound(name, share_ratio)
        while current_allowance(self.case.task_folder(name) / "pages")[1].share_ratio != share_ratio:
            await asyncio.sleep(0.02)
        await self.minibatches(name, 1)

    def page(self, name: str) -> PageReading | None:
        """What the process last said; None before its first mini-batch."""
        found = pages(self.case.task_folder(name) / "pages")
        if found:
            self._pages[name] = found[0]
        return self._pages.get(name)

    def done(self, name: str) -> int:
        """Its mini-batches so far."""
        page = self.page(name)
        return page.minibatches_total if page is not None else 0

    async def minibatches(self, name: str, count: int) -> None:
        """Wait for so many more."""
        before = self.done(name)
        while self.done(name) < before + count:
            assert Path(f"/proc/{self.pids[name]}").exists(), f"{name} has ended: {self._errors(name)}"
            await asyncio.sleep(0.02)

    def _errors(self, name: str) -> str:
        return (self.case.task_folder(name) / "rank-0.err").read_text()[-2000:]

    def numbers(self, name: str) -> list[list[float]]:
        """Of its whole lines."""
        lines = (self.folder / f"{name}.lines").read_text().splitlines(keepends=True)
        return [[float(number) for number in line.split()] for line in lines if line.endswith("\n")]


class SharedCpu(SharedDevice):
    """One virtual GPU with a CPU, for the owner and the guest of `gate_script.py` or any others."""

    def __init__(self, folder: Path, gpu_memory_bytes: int = 0, environment: Mapping[str, str] | None = None) -> None:
        """Its agent has these variables in its environment, besides those of this process."""
        pinned = {"SANJAYA_PIN_VIRTUAL_GPUS": "1", **(environment or {})}
        super().__init__(
            folder, AgentCase(folder, virtual_gpus=1, gpu_memory_bytes=gpu_memory_bytes, environment=pinned)
        )

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        assert len(self.joined.gpu_cpus) == 1
        return self

    async def start(self, name: str, *arguments: float, role: str, packed_with: Sequence[str] = ()) -> None:
        """Start one of the two scripts, and wait until it trains. Packed with the other, it has no gates."""
        command = [sys.executable, str(SCRIPT), name, str(self.folder), *map(str, arguments)]
        await self.run(name, command, role=role, packed_with=packed_with)

    def watch(self) -> None:
        """Have the owner measure the guest's CPU time."""
        (self.folder / GUEST).write_text(str(self.pids[GUEST]))

    def change(self, factor: float) -> None:
        """The owner's mini-batches are so many times as much work as at first."""
        part = self.folder / "factor.part"
        part.write_text(str(factor))
        part.rename(self.folder / "factor")

    def owners(self, since_s: float, until_s: float) -> list[Minibatch]:
        """The owner's mini-batches that lie in this time."""
        found = [Minibatch(*numbers) for numbers in self.numbers(OWNER)]
        return [each for each in found if since_s < each.at_s - each.took_s and each.at_s <= until_s]

    def rate_of_guest(self, since_s: float, until_s: float) -> float:
        """Mini-batches of the guest per second in this time."""
        return sum(since_s < at_s <= until_s for at_s, _ in self.numbers(GUEST)) / (until_s - since_s)


def example(name: str, *options: str) -> list[str]:
    """The command line of an example that trains until it is ended."""
    return [sys.executable, str(EXAMPLES / f"{name}.py"), "--steps", "100000000", *options]


def beside(minibatches: list[Minibatch]) -> float:
    """CPU time that the guest took while the owner computed, per CPU time of the owner."""
    return sum(each.guest_s for each in minibatches) / sum(each.own_s for each in minibatches)


@dataclass(frozen=True)
class CpuTime:
    """Of a process's first thread so far, from the kernel; seconds."""

    run_s: float
    ready_s: float
    """It could have run, and another process did."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Now."""
        run_ns, ready_ns, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
        return cls(run_ns / 1e9, ready_ns / 1e9)

    def since(self, before: CpuTime) -> CpuTime:
        """The difference."""
        return CpuTime(self.run_s - before.run_s, self.ready_s - before.ready_s)
