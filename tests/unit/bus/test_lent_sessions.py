"""Sessions of the embedded log that another process holds: taken over once per claim, committed once per number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.bus.embedded import EmbeddedBus
from libs.bus.port import BusError, Fenced, LendsSessions, Position
from libs.contracts.base import Topic
from libs.testing.bus_contract.log import CONTROL, text, texts, until_end
from libs.testing.shared_file import SharedFile

AT = {CONTROL: Position(1, "note")}


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SharedFile]:
    log = SharedFile(tmp_path)
    yield log
    await log.close()


async def lender(log: SharedFile) -> EmbeddedBus:
    bus = await log.connect()
    assert isinstance(bus, EmbeddedBus) and isinstance(bus, LendsSessions)
    return bus


async def test_a_commit_that_comes_again_is_the_same_also_in_the_next_process(log: SharedFile) -> None:
    bus = await lender(log)
    epoch = await bus.lend_session("agent/n1", "claim")
    outputs = [text(Topic.CONTROL, "k", "a"), text(Topic.ORDERS, "n1", "b")]
    offsets = await bus.commit_lent("agent/n1", epoch, 1, outputs, AT)
    assert await bus.commit_lent("agent/n1", epoch, 1, outputs, AT) == offsets
    await log.crash(bus)
    again = await lender(log)
    assert await again.commit_lent("agent/n1", epoch, 1, outputs, AT) == offsets
    await again.commit_lent("agent/n1", epoch, 2, [text(Topic.CONTROL, "k", "c")], {})
    assert texts(await until_end(again, CONTROL)) == ["a", "c"]
    assert await again.committed("agent/n1", CONTROL) == AT[CONTROL]


async def test_another_number_is_refused(log: SharedFile) -> None:
    bus = await lender(log)
    epoch = await bus.lend_session("agent/n1", "claim")
    for number in (0, 2):
        with pytest.raises(BusError, match=f"commit {number} of session agent/n1: expected 1"):
            await bus.commit_lent("agent/n1", epoch, number, [text(Topic.CONTROL, "k", "v")], {})
    for number in (1, 2):
        await bus.commit_lent("agent/n1", epoch, number, [text(Topic.CONTROL, "k", str(number))], {})
    with pytest.raises(BusError, match="commit 1 of session agent/n1: expected 3"):
        await bus.commit_lent("agent/n1", epoch, 1, [text(Topic.CONTROL, "k", "late")], {})
    assert texts(await until_end(bus, CONTROL)) == ["1", "2"]


async def test_the_same_claim_again_fences_no_holder_and_another_does(log: SharedFile) -> None:
    bus = await lender(log)
    first = await bus.lend_session("agent/n1", "first")
    await bus.commit_lent("agent/n1", first, 1, [text(Topic.CONTROL, "k", "a")], {})
    assert await bus.lend_session("agent/n1", "first") == first
    await bus.commit_lent("agent/n1", first, 2, [text(Topic.CONTROL, "k", "b")], {})
    second = await bus.lend_session("agent/n1", "second")
    for number in (2, 3):
        with pytest.raises(Fenced):
            await bus.commit_lent("agent/n1", first, number, [text(Topic.CONTROL, "k", "zombie")], AT)
    await bus.commit_lent("agent/n1", second, 1, [text(Topic.CONTROL, "k", "c")], {})
    assert texts(await until_end(bus, CONTROL)) == ["a", "b", "c"]


async def test_a_process_on_the_log_itself_and_one_elsewhere_fence_each_other(log: SharedFile) -> None:
    bus = await lender(log)
    here = await bus.open_session("agent/n1")
    epoch = await bus.lend_session("agent/n1", "claim")
    with pytest.raises(Fenced):
        await here.commit([text(Topic.CONTROL, "k", "zombie")])
    await bus.commit_lent("agent/n1", epoch, 1, [text(Topic.CONTROL, "k", "a")], {})
    here = await bus.open_session("agent/n1")
    for number in (1, 2):
        with pytest.raises(Fenced):
            await bus.commit_lent("agent/n1", epoch, number, [text(Topic.CONTROL, "k", "zombie")], {})
    await here.commit([text(Topic.CONTROL, "k", "b")])
    assert texts(await until_end(bus, CONTROL)) == ["a", "b"]
