"""Two jobs on one real GPU in ways of the paper's table 2: which fails, and how long does each take? (AntMan, OSDI'20.)

    A   no quota, holds 3.5 of 32 parts of the memory, waits for most of its time        43.0 minutes alone
    B   quota, wants 30 of 32 parts, comes 26 minutes later                              91.1 minutes alone

Each runs alone first; that is its time under preemption and in a queue, too, from which those rows follow. Then both
are packed, and then A is a guest. UMem is left out: managed memory beyond what a device has can hang it. While B starts
its Python, A stands still, and the clock does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from libs.contracts.agent import JobExited
from tests.e2e.gating import WARM
from tests.gpu.sharing import SharedGpu

A, B = "job-a", "job-b"
ARRIVES, A_ALONE, B_ALONE = 26.0, 43.0, 91.1
"""Minutes."""
PARTS = 32
A_PARTS, B_PARTS = 3.5, 30
HOLDS_ROOM = 0.93
"""B's model takes memory, too, besides what is filled."""


@dataclass(frozen=True)
class Size:
    """Of one table."""

    minute_s: float = 0.3
    alone_s: float = 6.0
    """How long each is measured alone."""
    records: tuple[int, int] = (4, 64)
    waits_s: tuple[float, float] = (0.060, 0.004)
    kinds: tuple[str, str] = ("super-resolution", "resnet-50")
    memory_bytes: int = 0
    """Of a virtual GPU."""


class Table:
    """The two jobs; each way has an agent of its own."""

    def __init__(self, folder: Path, size: Size) -> None:
        """In this folder."""
        self._folder, self._size = folder, size
        self._counts = [0, 0]
        """Mini-batches of A and B, from what they do alone."""

    async def row(self) -> dict[str, Any]:
        """All ways, one after the other."""
        for job, minutes in ((0, A_ALONE), (1, B_ALONE)):
            rate = await self._alone(job)
            self._counts[job] = round(rate * minutes * self._size.minute_s)
        packed = await self._packed()
        a, b, on_host = await self._beside()
        return {
            "alone": f"{A_ALONE} / {B_ALONE}",
            "packed": packed,
            "antman": f"{a:.1f} / {b:.1f}",
            "paper": "packed: 43.1 / failed; AntMan: 43.9 / 91.8",
            "a_over_alone": round(a / A_ALONE, 3),
            "b_over_alone": round(b / B_ALONE, 3),
            "a_on_host_gb": round(on_host / 1e9, 2),
            "minibatches": f"{self._counts[0]} / {self._counts[1]}",
            "minute_s": self._size.minute_s,
            "within_limit": "OutOfMemoryError" in packed and a <= 1.25 * A_ALONE and b <= 1.05 * B_ALONE,
        }

    def _gpu(self, way: str) -> SharedGpu:
        return SharedGpu(self._folder / way, self._size.memory_bytes)

    def _script(self, gpu: SharedGpu, job: int) -> list[str]:
        part = gpu.joined.gpus[0].memory_bytes / PARTS
        size = self._size
        if job:
            (gpu.folder / f"{B}.more").write_text(str(int(B_PARTS * part * HOLDS_ROOM)))
        held = 0 if job else int(A_PARTS * part)
        return gpu.script((A, B)[job], size.kinds[job], size.records[job], size.waits_s[job], held)

    async def _alone(self, job: int) -> float:
        """Mini-batches per second."""
        async with self._gpu(f"alone-{job}") as gpu:
            name = (A, B)[job]
            await gpu.run(name, self._script(gpu, job), role="owner")
            before, began_s = gpu.done(name), time.monotonic()
            await asyncio.sleep(self._size.alone_s)
            return (gpu.done(name) - before) / (time.monotonic() - began_s)

    async def _packed(self) -> str:
        """What becomes of B when nothing coordinates."""
        async with self._gpu("packed") as gpu:
            await gpu.run(A, self._script(gpu, 0), role="owner")
            await gpu.launched(B, self._script(gpu, 1), role="owner", packed_with=[A])
            ends = asyncio.create_task(gpu.case.until(JobExited, lambda fact: fact.job_id == B))
            while not ends.done() and gpu.done(B) < WARM:
                await asyncio.sleep(0.02)
            if not ends.done():
                ends.cancel()
                return "B trains"
            last = [line for line in (await ends).stderr_tail.splitlines() if "Error" in line][-1:]
            return f"B failed: {(last or ['?'])[0][:80]}"

    async def _beside(self) -> tuple[float, float, int]:
        """Minutes of A and of B, and the most bytes that A had on the host, where A is a guest."""
        async with self._gpu("antman") as gpu:
            minute_s = self._size.minute_s
            await gpu.run(A, self._script(gpu, 0), role="guest")
            began_s = time.monotonic()
            while (before_s := time.monotonic() - began_s) < ARRIVES * minute_s:
                await asyncio.sleep(0.02)
            done = gpu.done(A) - WARM
            await gpu.launched(B, self._script(gpu, 1), role="owner")
            with gpu.stopped(A):
                await gpu.minibatches(B, WARM)
            came_s, on_host = time.monotonic(), 0
            ended_s: dict[str, float] = {}
            wanted = {A: gpu.done(A) + self._counts[0] - done, B: gpu.done(B) + self._counts[1]}
            while wanted:
                page = gpu.page(A)
                if page is not None and page.memory is not None:
                    on_host = max(on_host, page.memory.host_bytes)
                for name in [each for each in wanted if gpu.done(each) >= wanted[each]]:
                    ended_s[name] = time.monotonic() - came_s
                    await gpu.stop(name)
                    del wanted[name]
                await asyncio.sleep(0.02)
            return (before_s + ended_s[A]) / minute_s, ended_s[B] / minute_s, on_host


def table_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Table 2."""
    with TemporaryDirectory() as folder:
        yield "two jobs on one GPU (table 2)", asyncio.run(Table(Path(folder), Size()).row())
