"""The mechanisms on this machine's device, in one go; on a CPU in smoke form.

python -m tests.gpu [--smoke]      # writes tests/bench/results/gpu.json and .md, unless it is only smoke
"""

from __future__ import annotations

import sys

import torch
from torch_agent.harness.parking.storages import skip_what_is_there

from tests.bench.moves import moves
from tests.bench.report import Report
from tests.bench.suspension import SMALL, suspensions
from tests.gpu.driver import driver_checkpoints
from tests.gpu.facts import facts
from tests.gpu.pairs import KINDS, pairs
from tests.gpu.transfers import transfers

MEGABYTE = 1_000_000


def measure(report: Report, *, smoke: bool) -> None:
    """Everything, in rows."""
    report.row("machine", **facts())
    sizes = (MEGABYTE,) if smoke else (64 * MEGABYTE, 512 * MEGABYTE, 2048 * MEGABYTE)
    for row in transfers(sizes):
        report.row("copies", **row)
    for name, row in suspensions(SMALL if smoke else None):
        report.row(f"suspend and resume: {name}", **row)
    for row in driver_checkpoints():
        report.row("off the device and back by the driver", **row)
    for name, row in moves("small" if smoke else None):
        report.row(f"move to another agent: {name}", **row)
    for row in pairs(1.0, KINDS[:1]) if smoke else pairs(15.0):
        report.row("two processes on one device", **row)


def main() -> None:
    """Measure, and write the results unless it is only smoke."""
    smoke = "--smoke" in sys.argv[1:]
    if not smoke and not torch.cuda.is_available():
        sys.exit("there is no CUDA device here  try: python -m tests.gpu --smoke")
    torch.set_num_threads(1)
    skip_what_is_there()
    report = Report("gpu", "The agent's mechanisms on a real GPU")
    measure(report, smoke=smoke)
    if not smoke:
        report.write()


if __name__ == "__main__":
    main()
