"""GPUs under suspicion are tried out: what is found is said, once per order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch_agent.gpu_tests import GpuTests
from torch_agent.probes.gpus import GpuReading
from torch_agent.probes.self_test import wrong

from libs.contracts.agent import NodeTested
from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo
from libs.contracts.placement import CheckGpus
from libs.contracts.reasons import Reason
from torch_agent import gpu_tests


class Gpus:
    """Two GPUs; the second has a fault."""

    def __init__(self, *, virtual: bool = True) -> None:
        self.virtual = virtual

    def inventory(self) -> list[GpuInfo]:
        return [GpuInfo(index=index, gpu_type="v100", memory_bytes=1 << 30, uuid=f"GPU-{index}") for index in (0, 1)]

    def read(self, holders: Mapping[int, Sequence[int]]) -> list[GpuReading]:
        faults = {0: "", 1: "fallen off the bus"}
        return [
            GpuReading(index=index, utilisation_ratio=0.0, memory_used_bytes=0, fault=fault)
            for index, fault in faults.items()
        ]


async def tried(gpus: Gpus, *indices: int) -> NodeTested:
    said: asyncio.Queue[Event] = asyncio.Queue()
    work = GpuTests("n1", gpus, said.put_nowait)
    work.take([CheckGpus(node_id="n1", gpu_indices=list(indices), reason=Reason(code="Test", message="test"))])
    running = asyncio.create_task(work.run())
    event = await said.get()
    running.cancel()
    assert isinstance(event, NodeTested)
    return event


async def test_what_nvml_says_is_said():
    found = await tried(Gpus(), 0, 1, 7)
    assert (found.gpu_indices, found.failed) == ([0, 1, 7], [1, 7])
    assert found.note == "GPU 1: fallen off the bus; GPU 7: it is not there"


@pytest.mark.parametrize(
    ("script", "failed", "note"),
    [
        ("raise SystemExit(0)", [], ""),
        ("raise SystemExit(3)", [], ""),
        ("raise SystemExit('3 of 20 products were wrong')", [0], "GPU 0: 3 of 20 products were wrong"),
        ("import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == 'GPU-0'", [], ""),
        ("import os; os._exit(9)", [0], "GPU 0: status 9"),
    ],
)
async def test_a_real_gpu_does_its_sums_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, script: str, failed: list[int], note: str
):
    monkeypatch.setattr(gpu_tests, "PROBE", ("-c", script))
    found = await tried(Gpus(virtual=False), 0)
    assert (found.failed, found.note) == (failed, note)


async def test_one_that_never_answers_has_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_tests, "PROBE", ("-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(gpu_tests, "PATIENCE_S", 0.2)
    assert (await tried(Gpus(virtual=False), 0)).failed == [0]


def test_sums_of_whole_numbers_are_exact():
    assert wrong(torch, "cpu") == 0
