"""What a gate costs a guest, an owner's signals per mini-batch, and how soon a gate opens; without training."""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NoReturn

from torch_agent.harness.allowance import GUEST, Allowance
from torch_agent.harness.control import ControlReader, allow, create_control
from torch_agent.harness.gate.gate import Gate
from torch_agent.harness.gate.signals import Signals
from torch_agent.harness.gpu_page import GpuPage, create

from tests.bench.report import Report

TIMES, BLOCKS = 20_000, 15
GATE_MOST_US, OWNER_MOST_US = 1.5, 2.0
MINIBATCH_S = 0.06
GAPS, GAP_S, BUSY_S, LATENCY_MOST_MS = 500, 0.005, 30.0, 1.0


def tell_costs(say: Report) -> None:
    """Medians of blocks of calls."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_control(folder)
        create(folder / "gpu.page")
        page = GpuPage(folder / "gpu.page")
        _tell_gates(say, folder, page)
        us = _us(_minibatch(Signals([page], None)))
        say.row("signals of an owner, per mini-batch", us=us, within_limit=us <= OWNER_MOST_US)
        _tell_latency(say, folder, page)


def _tell_gates(say: Report, folder: Path, page: GpuPage) -> None:
    gate = Gate(ControlReader(str(folder)), [page], None)

    def row(what: str, share_ratio: float) -> None:
        allow(folder, Allowance(role=GUEST, share_ratio=share_ratio))
        say.row(f"a gate, {what}", us=(us := _us(gate)), within_limit=us <= GATE_MOST_US)

    row("share 1", 1.0)
    row("no owner", 0.0)
    page.own(os.getpid())
    now_s = time.monotonic()
    page.wait_for_data(now_s, now_s + 30.0)
    row("in a gap of the owner", 0.0)


def _tell_latency(say: Report, folder: Path, page: GpuPage) -> None:
    """From the flag of an owner that begins to wait to the first group of operations of a guest, both on one CPU."""
    allow(folder, Allowance(role=GUEST, share_ratio=0.0))
    page.busy(time.monotonic() + BUSY_S)
    before, cpu = os.sched_getaffinity(0), min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    try:
        reads, writes = os.pipe()
        guest = os.fork()
        if guest == 0:
            _pass_gates(folder, writes)
        os.close(writes)
        found = sorted(_latencies(page, reads))
        os.waitpid(guest, 0)
    finally:
        os.sched_setaffinity(0, before)
    p99_ms = found[len(found) * 99 // 100] * 1e3
    say.row(
        "from an owner's flag to a guest's gate",
        p50_ms=round(median(found) * 1e3, 3),
        p99_ms=round(p99_ms, 3),
        within_limit=p99_ms <= LATENCY_MOST_MS,
    )


def _latencies(page: GpuPage, reads: int) -> list[float]:
    found = []
    with os.fdopen(reads, "rb", buffering=0) as times:
        for _ in range(GAPS):
            page.busy(time.monotonic() + BUSY_S)
            time.sleep(GAP_S)  # the guest comes to its closed gate
            began_s = time.monotonic()
            page.wait_for_data(began_s, began_s + BUSY_S)
            found.append(struct.unpack("d", times.read(8))[0] - began_s)
    return found


def _pass_gates(folder: Path, writes: int) -> NoReturn:
    """In a child: one group of operations per gap of the owner, then no more."""
    try:
        page = GpuPage(folder / "gpu.page")
        gate = Gate(ControlReader(str(folder)), [page], None)
        for _ in range(GAPS):
            gate()
            os.write(writes, struct.pack("d", time.monotonic()))
            while page.gap_s(time.monotonic()) > 0.0:  # until the owner has gone on
                time.sleep(GAP_S / 20)
    finally:
        os._exit(0)


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
