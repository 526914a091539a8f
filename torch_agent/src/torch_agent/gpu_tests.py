"""GPUs that are under suspicion are tried out: what NVML says of them, and whether they compute what they should."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence

from libs.contracts.agent import NodeTested
from libs.contracts.base import Event
from libs.contracts.placement import CheckGpus
from torch_agent.asking import said_by
from torch_agent.probes.gpus import GpuFacts

log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""A GPU that has not done its sums by then has failed; loading torch is most of it."""
PROBE = ("-m", "torch_agent.probes.self_test")
NOT_TRIED = 3
"""Status of the probe where it cannot compute: torch is not there, or no build of it for this GPU."""


class GpuTests:
    """Does what CheckGpus asks for, one order after another; an order that a restart forgets is given again."""

    def __init__(self, node_id: str, gpus: GpuFacts, report: Callable[[Event], None]) -> None:
        """`report`: brings a fact to the log."""
        self._node_id, self._gpus, self._report = node_id, gpus, report
        self._orders: asyncio.Queue[CheckGpus] = asyncio.Queue()

    def take(self, orders: Sequence[CheckGpus]) -> None:
        """There is something to try out."""
        for order in orders:
            self._orders.put_nowait(order)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            order = await self._orders.get()
            self._report(await self._try(order))

    async def _try(self, order: CheckGpus) -> NodeTested:
        began_s = time.monotonic()
        known = {gpu.index: gpu for gpu in self._gpus.inventory()}
        faults = {reading.index: reading.fault for reading in self._gpus.read({})}
        failed: list[int] = []
        notes: list[str] = []
        for index in order.gpu_indices:
            note = faults.get(index, "it is not there")
            if not note and not self._gpus.virtual:
                note = await _computes(known[index].uuid or str(index))
            if note:
                failed.append(index)
                notes.append(f"GPU {index}: {note}")
        took_s = time.monotonic() - began_s
        log.info("GPUs %s were tried out: %s", order.gpu_indices, "; ".join(notes) or "all are well")
        return NodeTested(
            node_id=self._node_id,
            gpu_indices=order.gpu_indices,
            failed=failed,
            note="; ".join(notes),
            took_s=round(took_s, 3),
        )


async def _computes(gpu: str) -> str:
    """What is wrong with what the GPU computes, in a process of its own; empty: nothing, or it cannot be told."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    try:
        async with asyncio.timeout(PATIENCE_S):
            said = await said_by(sys.executable, *PROBE, environment=environment)
    except TimeoutError:
        return f"it has not done its sums within {PATIENCE_S:.0f} s"
    if said.code in (0, NOT_TRIED):
        return ""
    return (said.last_line or f"status {said.code}")[:300]
