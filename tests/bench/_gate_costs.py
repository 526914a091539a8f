"""What a gate costs a guest, and an owner's signals per mini-batch; in one process, without training."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from torch_agent.harness.control import GUEST, Allowance, ControlReader, allow, create_control
from torch_agent.harness.gate.gate import Gate
from torch_agent.harness.gate.signals import Signals
from torch_agent.harness.gpu_page import GpuPage, create

from tests.bench.report import Report

TIMES, BLOCKS = 20_000, 15
GATE_MOST_US, OWNER_MOST_US = 1.5, 2.0
MINIBATCH_S = 0.06


def tell_costs(say: Report) -> None:
    """Medians of blocks of calls."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_control(folder)
        create(folder / "gpu.page")
        page = GpuPage(folder / "gpu.page")
        _tell_gates(say, folder, page)
        us = _us(_minibatch(Signals([page])))
        say.row("signals of an owner, per mini-batch", us=us, within_limit=us <= OWNER_MOST_US)


def _tell_gates(say: Report, folder: Path, page: GpuPage) -> None:
    gate = Gate(ControlReader(str(folder)), [page], None)

    def row(what: str, share_ratio: float) -> None:
        allow(folder, Allowance(role=GUEST, memory_limit_bytes=None, share_ratio=share_ratio))
        say.row(f"a gate, {what}", us=(us := _us(gate)), within_limit=us <= GATE_MOST_US)

    row("share 1", 1.0)
    row("no owner", 0.0)
    page.own(os.getpid())
    now_s = time.monotonic()
    page.wait_for_data(now_s, now_s + 30.0)
    row("in a gap of the owner", 0.0)


def _minibatch(signals: Signals) -> Callable[[], None]:
    def call() -> None:
        signals.waits(0)
        signals.computes()
        signals.goes_on()
        signals.goes_on()
        signals.boundary(MINIBATCH_S)

    return call


def _us(call: Callable[[], None]) -> float:
    """Microseconds of CPU time per call."""
    found = []
    for _ in range(BLOCKS):
        began_s = time.process_time()
        for _ in range(TIMES):
            call()
        found.append((time.process_time() - began_s) / TIMES)
    return round(median(found) * 1e6, 2)
