"""Owners and guests on a real GPU, under a real agent (AntMan, OSDI'20, sections 3.1.2 and 5.1, figure 12)."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch_agent.harness.allowance import GUEST, Allowance
from torch_agent.harness.control import ControlReader, allow, create_control
from torch_agent.harness.gate.depth import GroupsInFlight
from torch_agent.harness.gate.entering import Gates
from torch_agent.harness.gate.gate import Gate
from torch_agent.harness.gpu_page import GpuPage, create

from libs.contracts.agent import JobExited
from tests.e2e.gating import SharedDevice
from tests.gpu.models import Training
from tests.integration.agent_case import AgentCase

SCRIPT = Path(__file__).with_name("training_script.py")
OWNER, GUEST_JOB = "owner", "guest"
SETTLED = 25
CLOSED_S, GAP_S = 0.05, 30.0
GB = 10**9
ROUNDS, BLOCK_S = 2, 6.0
BURSTS, BURSTS_S = 100, 100.0
"""At most so many, and for so long."""


class SharedGpu(SharedDevice):
    """The first GPU of this machine, with limits of memory; virtual where there is none."""

    def __init__(self, folder: Path, gpu_memory_bytes: int = 0) -> None:
        """So much memory has a virtual one; 0: a part of the machine's."""
        virtual = 0 if torch.cuda.is_available() else 1
        environment = {"SANJAYA_SCALE_MEMORY": "yes", "PYTHONPATH": f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"}
        super().__init__(
            folder,
            AgentCase(folder, virtual_gpus=virtual, gpu_memory_bytes=gpu_memory_bytes, environment=environment),
        )

    def script(self, name: str, kind: str, records: int, wait_s: float = 0.0, held_bytes: int = 0) -> list[str]:
        """The command line of a job."""
        return [sys.executable, str(SCRIPT), name, str(self.folder), kind, *map(str, (records, wait_s, held_bytes))]

    async def trains(self, name: str, *arguments: Any, **fields: Any) -> None:
        """Start the script, and wait until it trains."""
        await self.run(name, self.script(name, *arguments), **fields)

    async def lengths(self, name: str, seconds: float) -> list[float]:
        """Of its mini-batches that lie in the time from now on."""
        began_s = time.monotonic()
        await asyncio.sleep(seconds)
        ended_s = time.monotonic()
        return [took for at, took in self.numbers(name) if began_s < at - took and at <= ended_s]


async def _pair(
    folder: Path, owner: tuple[str, int, float], guest: tuple[str, int], rounds: int, block_s: float
) -> dict[str, Any]:
    """An owner alone, beside a free guest and beside one with gates; and the guest alone."""
    async with SharedGpu(folder) as gpu:
        await gpu.trains(OWNER, *owner, role="owner")
        await gpu.trains(GUEST_JOB, *guest, role="owner", packed_with=[OWNER])
        slowed: dict[str, list[float]] = {"free": [], "gaps": [], "coordinated": []}
        rates: dict[str, list[float]] = {mode: [] for mode in slowed}
        alone_s, guest_alone = [], []
        for _ in range(rounds):
            for mode in slowed:
                await gpu.bound(GUEST_JOB, None)
                await gpu.be(GUEST_JOB, "owner" if mode == "free" else "guest")
                await gpu.bound(GUEST_JOB, 0.0)  # not before: it may do nothing any more, beside an owner without gaps
                await gpu.minibatches(OWNER, SETTLED)
                with gpu.stopped(GUEST_JOB):
                    await gpu.minibatches(OWNER, 2)
                    alone = median(await gpu.lengths(OWNER, block_s))
                await gpu.bound(GUEST_JOB, None if mode == "coordinated" else 0.0)
                await gpu.minibatches(OWNER, 2)
                beside, done = asyncio.create_task(gpu.lengths(OWNER, block_s)), gpu.done(GUEST_JOB)
                found = median(await beside)
                rates[mode].append((gpu.done(GUEST_JOB) - done) / block_s)
                slowed[mode].append(found / alone - 1.0)
                alone_s.append(alone)
            with gpu.stopped(OWNER):
                await gpu.minibatches(GUEST_JOB, 1)
                done = gpu.done(GUEST_JOB)
                await asyncio.sleep(block_s)
                guest_alone.append((gpu.done(GUEST_JOB) - done) / block_s)
        page = gpu.page(GUEST_JOB)
        assert page is not None and page.gate is not None
        row: dict[str, Any] = {
            "owner": f"{owner[0]}, {owner[1]} records, waits {1000 * owner[2]:g} ms",
            "guest": f"{guest[0]}, {guest[1]} records",
            "owner_computes_ms": round(1000 * median(alone_s), 2),
            "guest_alone_per_s": round(median(guest_alone), 2),
            "guest_spacing_p99_ms": round(1000 * page.gate.spacing_p99_s, 2),
        }
        for mode in slowed:
            row |= {
                f"{mode}_owner_slowed_by": round(median(slowed[mode]), 4),
                f"{mode}_guest_of_alone": round(median(rates[mode]) / median(guest_alone), 3),
            }
        return row


async def _bursts(folder: Path, count: int) -> dict[str, Any]:
    """An owner takes more memory, again and again, beside a guest that has the rest."""
    source, broken, on_host = random.Random(0), [], 0
    async with SharedGpu(folder) as gpu:
        await gpu.trains(OWNER, "super-resolution", 16, 0.02, role="owner")
        await gpu.trains(GUEST_JOB, "resnet-50", 96, role="guest")
        await gpu.minibatches(OWNER, SETTLED)
        more = gpu.folder / f"{OWNER}.more"
        ends_s = time.monotonic() + BURSTS_S
        while len(broken) < count and time.monotonic() < ends_s:
            await gpu.minibatches(GUEST_JOB, 1)
            part = more.with_suffix(".part")
            part.write_text(str(int(source.uniform(8, 30) * GB)))
            part.rename(more)
            began = gpu.done(OWNER)
            whole = broken_for = 0
            while whole < 3:
                await gpu.minibatches(OWNER, 1)
                page = gpu.page(OWNER)
                assert page is not None and page.memory is not None
                on_host = max(on_host, page.memory.minibatch_host_bytes)
                whole = whole + 1 if not page.memory.minibatch_host_bytes else 0
                if not whole:
                    broken_for = page.minibatches_total - began
                if page.minibatches_total - began > 200:
                    break
            broken.append(broken_for)
            more.unlink()
            await gpu.minibatches(OWNER, 3)
        ended = [fact for fact in gpu.case.facts if isinstance(fact, JobExited)]
        living = [name for name, pid in gpu.pids.items() if Path(f"/proc/{pid}").exists()]
        return {
            "bursts": len(broken),
            "broken_minibatches": f"{median(broken)} in the median, {max(broken)} at most",
            "most_on_host_gb": round(on_host / GB, 2),
            "tasks_failed": len(ended),
            "living": " ".join(living),
            "log": (gpu.case.folder / "agent.log").read_text()[-300:] if len(living) < 2 else "",
        }


def closing(kind: str, records: int, times: int) -> dict[str, Any]:
    """From the moment at which the gate of a guest closes until its GPU is idle."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_control(folder)
        create(folder / "gpu.page")
        page = GpuPage(folder / "gpu.page")
        page.own(os.getpid())
        page.wait_for_data(time.monotonic(), time.monotonic() + GAP_S)
        allow(folder, Allowance(role=GUEST, share_ratio=0.0))
        gate = Gate(ControlReader(str(folder)), [page], GroupsInFlight(torch))
        gates = Gates(torch, gate)
        training, ends = Training(kind, records), threading.Event()
        stream = torch.cuda.current_stream()
        drains: list[float] = []

        def close() -> None:
            for _ in range(times):
                time.sleep(CLOSED_S)
                page.busy(time.monotonic() + GAP_S)
                began_s, idle_since_s = time.perf_counter(), 0.0
                while (now_s := time.perf_counter()) < began_s + CLOSED_S:
                    if not stream.query():
                        idle_since_s = 0.0
                    elif not idle_since_s:
                        idle_since_s = now_s
                    time.sleep(0.0002)
                drains.append((idle_since_s or now_s) - began_s)
                page.wait_for_data(time.monotonic(), time.monotonic() + GAP_S)
            ends.set()

        for _ in range(SETTLED):
            training.minibatch()
        closer = threading.Thread(target=close)
        closer.start()
        while not ends.is_set():
            training.minibatch()
        closer.join()
        gates.remove()
    torch.cuda.synchronize()
    tail = quantiles(drains, n=20)[-1]
    return {
        "guest": f"{kind}, {records} records",
        "closed": times,
        "idle_after_ms": round(1000 * median(drains), 2),
        "p95_ms": round(1000 * tail, 2),
        "spacing_p99_ms": round(1000 * gate.spacing_p99_s, 2),
        "within_limit": tail <= 0.010,
    }


def burst_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """An owner that takes more memory again and again."""
    with tempfile.TemporaryDirectory() as name:
        yield "bursts of an owner", asyncio.run(_bursts(Path(name) / "bursts", BURSTS))


def sharing_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Compute, and how soon a gate takes effect."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        waits, busy, guest = ("resnet-50", 32, 0.06), ("resnet-50", 64, 0.0), ("resnet-50", 128)
        yield "an owner that waits", asyncio.run(_pair(folder / "waits", waits, guest, ROUNDS, BLOCK_S))
        yield "a gate closes", closing("resnet-50", 64, 40)
        yield "an owner that never waits", asyncio.run(_pair(folder / "busy", busy, guest, 1, BLOCK_S))
