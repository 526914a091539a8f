"""How the time of a virtual GPU is divided, measured in CPU time: that is right however busy the machine is.

The ratios of wall time, on a quiet machine, are in `python -m tests.bench.guests`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from torch_agent.harness.control import current_allowance

from tests.e2e.gating import COMPUTE_S, GUEST, OWNER, WAIT_S, CpuTime, SharedCpu, beside

pytestmark = pytest.mark.e2e

MINIBATCHES = 80
SHARE_S = 4.0


async def test_a_guest_computes_in_the_gaps_of_its_owner_and_not_beside_it(tmp_path: Path):
    async with SharedCpu(tmp_path) as gpu:
        await gpu.start(OWNER, COMPUTE_S, WAIT_S, role="owner")
        await gpu.start(GUEST, role="owner", packed_with=[OWNER])  # at first nothing divides the CPU but the kernel
        (gpu.folder / "guest").write_text(str(gpu.pids[GUEST]))
        free = await taken_beside(gpu)
        await gpu.bound(GUEST, 0.0)  # the gaps alone: what it might have beside them is measured in wall time
        await gpu.be(GUEST, "guest")
        done, guarded = gpu.done(GUEST), await taken_beside(gpu)
        assert free >= 0.5, "else the two do not share a CPU, and the rest says nothing"
        assert guarded <= 0.15
        assert gpu.done(GUEST) > done + MINIBATCHES, "it trains in the gaps"


async def taken_beside(gpu: SharedCpu) -> float:
    """CPU time that the guest takes while the owner computes, from now on, per CPU time of the owner."""
    began_s = time.monotonic()
    await gpu.minibatches(OWNER, MINIBATCHES)
    return beside(gpu.owners(began_s, time.monotonic()))


async def test_a_guest_has_the_share_of_the_time_that_it_is_given(tmp_path: Path):
    async with SharedCpu(tmp_path) as gpu:
        await gpu.start(GUEST, role="guest")
        for share in (0.1, 0.25, 0.5, 0.75):
            await gpu.bound(GUEST, share)
            while current_allowance(gpu.case.task_folder(GUEST) / "pages")[1].share_ratio != share:
                await asyncio.sleep(0.02)
            await gpu.minibatches(GUEST, 1)
            had_s = await had(gpu)
            assert had_s.run_s <= (share + 0.1) * SHARE_S, share
            assert had_s.run_s + had_s.ready_s >= (share - 0.1) * SHARE_S, "what it lacks, the machine owes it"


async def had(gpu: SharedCpu) -> CpuTime:
    """What the guest has of the next seconds."""
    before, began_s = CpuTime.of(gpu.pids[GUEST]), time.monotonic()
    await asyncio.sleep(SHARE_S)
    found = CpuTime.of(gpu.pids[GUEST]).since(before)
    took_s = time.monotonic() - began_s
    return CpuTime(found.run_s * SHARE_S / took_s, found.ready_s * SHARE_S / took_s)
