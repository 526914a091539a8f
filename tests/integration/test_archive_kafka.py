"""An archive of a log on Kafka: its offsets have gaps."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from libs.bus.naming import CONTROL, log_id
from libs.bus.port import BusError, Outgoing
from libs.contracts.base import Topic
from libs.inspect.archive import archive, give_back, whole_reader
from tests.unit.inspect.archived_cell import filled, told, verified
from tests.unit.inspect.small_cell import messages

pytest_plugins = ("libs.testing.kafka",)


async def test_archive_and_live_log_read_as_the_log_before(kafka_bootstrap: str, tmp_path: Path) -> None:
    url, cell = f"kafka://{kafka_bootstrap}", f"a{time.time_ns()}"
    bus = await filled(url, cell)
    session = await bus.open_session("a transaction")  # its end takes an offset that no record has
    late = messages()[0]
    for _ in range(2):
        await session.commit([Outgoing(topic=Topic.CONTROL, key=late.key, headers=late.headers, value=late.value)])
    node = next(message.key for message in messages() if message.partition.topic is Topic.ORDERS)

    await bus.end_offset(CONTROL)  # waits for the marker of the last commit: what that has committed can be read

    def seen() -> object:
        return verified(url, cell=cell), told(url, node, cell)

    earlier, name, end = await asyncio.to_thread(seen), await log_id(bus), await bus.end_offset(CONTROL)
    for before in (40, end):
        opened = await archive(bus, tmp_path / "archive", before, contiguous=False)
        await give_back(bus, opened, before, {"placement": end})
        assert await bus.begin_offset(CONTROL) == before
        assert await bus.end_offset(CONTROL) == end
        assert await log_id(bus) == name
        assert await asyncio.to_thread(seen) == earlier
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    with pytest.raises(BusError, match=rf"control/0@0-{end - 1} of cell {cell} are in the archive"):
        await whole_reader(bus, {CONTROL: 0})
    await bus.close()
