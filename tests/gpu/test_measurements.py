"""The measurements run everywhere; on a GPU their pass marks hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bench.moves import moves
from tests.bench.report import Report
from tests.bench.suspension import suspensions
from tests.gpu.__main__ import MEGABYTE, measure
from tests.gpu.sharing import SharedGpu

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_everything_can_be_measured(capsys: pytest.CaptureFixture[str]):
    measure(Report("gpu", "smoke"))
    said = capsys.readouterr().out
    for what in (
        "machine:",
        "copies:",
        "suspend and resume:",
        "off the device and back by the driver:",
        "move to another agent:",
        "two processes on one device:",
    ):
        assert what in said


async def test_mini_batches_of_jobs_under_an_agent_are_measured(tmp_path: Path):
    async with SharedGpu(tmp_path / "shared") as gpu:
        await gpu.trains("owner", "super-resolution", 1, 0.01, MEGABYTE, role="owner")
        before = gpu.done("owner")
        await gpu.minibatches("owner", 2)
        numbers = gpu.numbers("owner")
    assert len(numbers) >= before + 2 and all(0 < took_s < at_s for at_s, took_s in numbers)


@cuda
@pytest.mark.gpu
def test_suspension_is_as_fast_as_the_paper_says_and_bound_by_the_bus():
    limits_ms = {"convolutional": 100.0, "transformer": 1000.0}
    for name, row in suspensions():
        kind = name.split()[0].rstrip(",")
        if kind in limits_ms:
            assert row["pair_ms"] < limits_ms[kind], name
            assert row["ratio_to_plain_copy"] < 1 / 0.7, name


@cuda
@pytest.mark.gpu
def test_a_job_as_large_as_resnet_50_stands_still_for_less_than_a_second_when_it_moves():
    ((_, row),) = moves("convolutional")
    assert row["pause_ms"] < 1000.0
