"""Virtual GPUs: CPU slots for machines without a real one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import psutil

from libs.contracts.cluster import GpuInfo
from torch_agent.probes.gpus import NO_OTHERS, GpuReading, Others


class VirtualGpus:
    """`count` slots of one type, each about one core and so much memory."""

    virtual = True

    def __init__(self, count: int, gpu_type: str, memory_bytes: int) -> None:
        self._gpus = [GpuInfo(index=i, gpu_type=gpu_type, memory_bytes=memory_bytes) for i in range(count)]
        self._before: dict[int, float] = {}
        self._others: Others = NO_OTHERS
        self._at_s = time.monotonic()

    def inventory(self) -> list[GpuInfo]:
        """See `GpuFacts`."""
        return self._gpus

    def read(self, holders: Mapping[int, Sequence[int]], others: Others = NO_OTHERS) -> list[GpuReading]:
        """See `GpuFacts`: CPU time used since the last look, of holders and others; resident memory of the holders."""
        now_s = time.monotonic()
        elapsed_s, self._at_s = max(now_s - self._at_s, 1e-3), now_s
        readings = []
        used: dict[int, float] = {}
        for gpu in self._gpus:
            busy_s, memory = _grown(gpu.index, others, self._others), 0
            for pid in holders.get(gpu.index, ()):
                cpu_s, rss = _usage(pid)
                used[pid] = cpu_s
                busy_s += max(0.0, cpu_s - self._before.get(pid, cpu_s))
                memory += rss
            ratio = min(1.0, busy_s / elapsed_s)
            readings.append(GpuReading(index=gpu.index, utilisation_ratio=ratio, memory_used_bytes=memory))
        self._before, self._others = used, others
        return readings


def _grown(index: int, others: Others, before: Others) -> float:
    """CPU time that tasks have used for the GPU since the last look at them."""
    now = {key: cpu_s for key, cpu_s in others.items() if key[0] == index}
    return sum(max(0.0, cpu_s - before.get(key, cpu_s)) for key, cpu_s in now.items())


def _usage(pid: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of a process; zeros when it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss
    except psutil.Error:
        return 0.0, 0


def default_memory_bytes(count: int) -> int:
    """An equal share of three quarters of the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(total * 3 / 4 / max(1, count))
