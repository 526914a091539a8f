"""The mechanisms on this machine's device, in one go; on a CPU in smoke form.

    python -m tests.gpu [--only PART ...]      # writes tests/bench/results/gpu.json and .md
    python -m tests.gpu --smoke                # the least of everything, on a CPU, too; nothing is written

Each part is a process of its own: what one leaves in CUDA is not in the way of the next, and of one that fails or takes
too long there is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import torch
from torch_agent.harness.parking.storages import skip_what_is_there

from tests.bench.moves import moves
from tests.bench.report import Report
from tests.bench.suspension import SMALL, suspensions
from tests.gpu.driver import driver_checkpoints
from tests.gpu.facts import facts
from tests.gpu.memory import memory_rows, sensitivity_rows
from tests.gpu.pairs import KINDS, pairs
from tests.gpu.sharing import SCRIPT, burst_rows, sharing_rows
from tests.gpu.table2 import table_rows
from tests.gpu.transfers import transfers

MEGABYTE = 1_000_000
Rows = Iterator[tuple[str, dict[str, Any]]]


WITHIN_S = 240.0
"""For one part."""


def _machine(smoke: bool) -> Rows:
    yield "machine", facts()


def _copies(smoke: bool) -> Rows:
    sizes = (MEGABYTE,) if smoke else (64 * MEGABYTE, 512 * MEGABYTE, 2048 * MEGABYTE)
    for row in transfers(sizes):
        yield "copies", row


def _on_gpu(rows: Callable[[], Rows]) -> Callable[[bool], Rows]:
    """A part that a CPU has no form of."""

    def part(smoke: bool) -> Rows:
        if torch.cuda.is_available():
            yield from rows()

    return part


def _suspension(smoke: bool) -> Rows:
    for name, row in suspensions(SMALL if smoke else None):
        yield f"suspend and resume: {name}", row


def _moves(smoke: bool) -> Rows:
    for name, row in moves("small" if smoke else None):
        yield f"move to another agent: {name}", row


def _driver(smoke: bool) -> Rows:
    for row in driver_checkpoints():
        yield "off the device and back by the driver", row


def _pairs(smoke: bool) -> Rows:
    for row in pairs(1.0, KINDS[:1]) if smoke else pairs(5.0):
        yield "two processes on one device", row


PARTS: dict[str, Callable[[bool], Rows]] = {
    "machine": _machine,
    "copies": _copies,
    "memory": _on_gpu(memory_rows),
    "sensitivity": _on_gpu(sensitivity_rows),
    "sharing": _on_gpu(sharing_rows),
    "bursts": _on_gpu(burst_rows),
    "table2": _on_gpu(table_rows),
    "suspension": _suspension,
    "moves": _moves,
    "driver": _driver,
    "pairs": _pairs,
}


def measure(report: Report) -> None:
    """The least of everything, in this process."""
    for part in PARTS.values():
        for what, row in part(True):
            report.row(what, **row)


def _part(report: Report, name: str) -> None:
    """All of one part, by a process of its own."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.gpu", "--rows", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(WITHIN_S, process.send_signal, [signal.SIGABRT])
        timer.start()
        for line in process.stdout:
            what, row = json.loads(line)
            report.row(what, **row)
        status = process.wait()
        timer.cancel()
    if status:
        report.row(f"{name} ended early", status=status, within_limit=False)
        _end_tasks()
    report.write()


def _end_tasks() -> None:
    """Those of a part that has ended early: they live on, as tasks do, and have memory of the GPU."""
    for process in psutil.process_iter(["cmdline"]):
        if str(SCRIPT) in (process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _rows(name: str) -> None:
    torch.set_num_threads(1)
    skip_what_is_there()
    for row in PARTS[name](False):
        print(json.dumps(row), flush=True)


def main() -> None:
    """Measure, and write the results unless it is only smoke."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--smoke", action="store_true", help="the least of everything, on a CPU, too")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts, in this order")
    parser.add_argument("--rows", choices=list(PARTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    report = Report("gpu", "The agent's mechanisms on a real GPU", module="tests.gpu")
    if options.smoke:
        measure(report)
    elif not torch.cuda.is_available():
        sys.exit("there is no CUDA device here  try: python -m tests.gpu --smoke")
    elif options.rows:
        _rows(options.rows)
    else:
        for name in options.only:
            _part(report, name)


if __name__ == "__main__":
    main()
