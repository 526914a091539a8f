"""The output of a job, as it is read from the log."""

from __future__ import annotations

import math

import pytest

from libs.bus import codec
from libs.bus.memory import MemoryBus
from libs.bus.port import BusError, TopicLayout
from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.envelope import Envelope
from libs.testing.late import LateBus
from services.gateway.adapters.job_logs import JobLogs, LineFilter

TEXTS = ["one", "two", "three"]


async def written(takes_s: float) -> JobLogs:
    """Three records with a line each, on a log whose readers are late."""
    bus = LateBus(MemoryBus("lab", None), takes_s)
    await bus.create_topics(TopicLayout())
    for text in TEXTS:
        line = LogLine(time_s=1.0, stream="stdout", rank=0, text=text)
        event = JobLogged(job_id="a", attempt=1, node_id="n1", lines=[line])
        await bus.append([codec.outgoing(Envelope(id=text, source="agent/n1", time_s=1.0, event=event))])
    return JobLogs(bus, "a", LineFilter())


async def has_ended() -> bool:
    return True


async def test_lines_that_come_late_are_not_left_out() -> None:
    lines, end = await (await written(9.0)).tail(None)
    assert ([line["text"] for line in lines], end) == (TEXTS, 3)
    chunks = [chunk async for chunk in (await written(9.0)).follow(0, 1.0, has_ended)]
    assert [line["text"] for chunk in chunks if chunk for line in chunk.lines] == TEXTS


async def test_lines_that_do_not_come_are_an_error() -> None:
    with pytest.raises(BusError, match="nothing came"):
        await (await written(math.inf)).tail(None)
    with pytest.raises(BusError, match="expected messages up to 3"):
        await anext((await written(math.inf)).follow(0, 1.0, has_ended))
