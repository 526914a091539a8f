"""The machine's clock is set, and nothing of the agent hurries or stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch_agent.clock import from_machine, go_on, now_s, offset_s
from torch_agent.complaints import Complaints
from torch_agent.coordinating.changes import Changes
from torch_agent.leasing import Leasing
from torch_agent.probes.virtual import VirtualGpus
from torch_agent.telemetry import Telemetry

from libs.bus.port import Outgoing
from libs.node.lease import DEFAULTS

HOUR_S = 3600.0
REAL = time.time


@pytest.mark.parametrize("jump_s", [-HOUR_S, 24 * HOUR_S])
def test_it_does_not_jump(jump_s: float, monkeypatch: pytest.MonkeyPatch):
    before_s = now_s()
    monkeypatch.setattr(time, "time", lambda: REAL() + jump_s)
    assert 0 <= now_s() - before_s < 60
    assert abs(from_machine(time.time()) - now_s()) < 60


def test_the_next_agent_goes_on_with_the_clock_of_the_one_before():
    before = offset_s()
    try:
        go_on(before + HOUR_S)
        assert abs(now_s() - REAL() - HOUR_S) < 60
    finally:
        go_on(before)


class Log:
    """Counts what is appended."""

    def __init__(self) -> None:
        self.appended: asyncio.Queue[int] = asyncio.Queue()

    async def append(self, messages: Sequence[Outgoing]) -> None:
        self.appended.put_nowait(len(messages))


async def test_heartbeats_go_on_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log, leasing = Log(), Leasing(tmp_path / "lease", DEFAULTS)
    telemetry = Telemetry(
        log,  # type: ignore[arg-type]
        "n1",
        lambda: 1,
        VirtualGpus(1, "virtual", 1 << 30),
        active=list,
        pages_of=lambda task: tmp_path,
        cpu_s=lambda task: 0.0,
        report=lambda event: None,
        leasing=leasing,
        refused=lambda error: None,
        complaints=Complaints(),
        changes=Changes("n1"),
    )
    run = asyncio.create_task(telemetry.run(heartbeat_s=0.01))
    await log.appended.get()
    monkeypatch.setattr(time, "time", lambda: REAL() - HOUR_S)
    for _ in range(5):
        await asyncio.wait_for(log.appended.get(), 10)
    run.cancel()
    assert leasing.holds
