"""The measurements run everywhere; on a GPU their pass marks hold."""

from __future__ import annotations

import pytest
import torch

from tests.bench.moves import moves
from tests.bench.report import Report
from tests.bench.suspension import suspensions
from tests.gpu.__main__ import measure

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
