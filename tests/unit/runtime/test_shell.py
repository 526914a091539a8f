"""What a shell does around its core."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import BusUnavailable, Fenced, Outgoing, Partition, Position, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.gateway import JobArrived, JobCancelRequested, JobPriorityChanged
from libs.contracts.runtime import TimerFired
from libs.runtime.exits import CoreFailed
from libs.runtime.recovery import CONTROL
from libs.runtime.shell import Options, Shell
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Phase
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus, unknown
from libs.testing.shells import CAREFUL, ShellCase, ids, messages
from libs.testing.toy import PATIENCE_S, TOY


@pytest.fixture
async def bus() -> AsyncIterator[FaultyBus]:
    bus = FaultyBus(await connect("memory:", "t"), Faults())
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(f"sqlite:///{tmp_path}/snapshots.db", "t")


def cancel(job_id: str, note: str = "") -> JobCancelRequested:
    return JobCancelRequested(job_id=job_id, requested_by="test", note=note)


async def timers_of(bus: FaultyBus) -> list[tuple[float, float]]:
    """(time of the event, due time) of every TimerFired."""
    envelopes = [codec.record(message).envelope for message in await messages(bus.bus, Topic.CONTROL)]
    return [(e.source_time_s, e.event.due_s) for e in envelopes if isinstance(e.event, TimerFired)]


async def test_a_timer_is_fired_when_its_time_has_come_and_not_before(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    due_s = case.clock.now_s() + PATIENCE_S
    await case.run_to_end()
    case.clock.advance(PATIENCE_S - 0.001)
    await case.run_to_end()
    assert await timers_of(bus) == []
    case.clock.advance(0.25)
    await case.run_until(lambda: case.shell.stats.timers == 1)
    await case.run_to_end()
    assert await timers_of(bus) == [(due_s + 0.249, due_s)]


async def test_the_clock_wakes_a_waiting_shell(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    await case.run_to_end()
    fired = asyncio.create_task(case.run_until(lambda: case.shell.stats.timers == 1))
    await asyncio.sleep(0)
    case.clock.advance(PATIENCE_S)
    await fired
    assert len(await timers_of(bus)) == 1


async def test_a_restart_between_a_timer_and_its_reading_fires_it_once(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    await case.run_to_end()
    case.clock.advance(PATIENCE_S)
    while not await timers_of(bus):
        await case.run_until(lambda: case.shell.stats.timers == 1)
    for _ in range(3):
        await case.run_to_end()
    assert len(await timers_of(bus)) == 1
    assert len(await ids(bus.bus, Topic.ORDERS)) == 1


async def test_a_commit_in_doubt_that_happened_is_not_repeated(bus: FaultyBus):
    bus.faults.fail("commit.done", unknown())
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"), arrival("b"))
    await case.run_to_end()
    assert case.lives == 2  # no new life: the second one only read on
    assert len(await ids(bus.bus, Topic.CONTROL)) == 4


async def test_a_commit_in_doubt_that_did_not_happen_is_repeated(bus: FaultyBus):
    bus.faults.fail("commit", unknown())
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"), arrival("b"))
    await case.run_to_end()
    log = await ids(bus.bus, Topic.CONTROL)
    assert len(log) == len(set(log)) == 4


@pytest.mark.parametrize("moment", ["open", "position", "read", "commit"])
async def test_a_log_that_is_away_is_waited_for(bus: FaultyBus, moment: str):
    bus.faults.fail(moment, BusUnavailable("no broker (injected)"))
    bus.faults.fail(moment, BusUnavailable("no broker (injected)"))
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    await case.run_to_end()
    assert len(await ids(bus.bus, Topic.CONTROL)) == 2


async def test_a_stop_does_not_wait_for_the_log(bus: FaultyBus):
    for _ in range(100):
        bus.faults.fail("commit", BusUnavailable("no broker (injected)"))
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    stop = asyncio.Event()
    shell = Shell(TOY, bus, clock=case.clock)
    running = asyncio.create_task(shell.run(stop))
    while "commit" not in bus.faults.moments:
        await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(1):
        await running
    assert shell.stats.phase is Phase.STOPPED


async def test_a_second_instance_fences_the_first(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    stop = asyncio.Event()
    first = Shell(TOY, bus, clock=case.clock, options=CAREFUL)
    running = asyncio.create_task(first.run(stop))
    await case.give(arrival("a"))
    await bus.until(lambda: case.position == 2)
    await bus.open_session(TOY.name)
    await case.give(arrival("b"))
    with pytest.raises(Fenced):
        await running


async def test_a_fenced_instance_that_reopens_notices_that_others_moved_on(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    bus.faults.fail("commit", unknown())
    running = asyncio.create_task(case.run_until(lambda: False))
    while "commit" not in bus.faults.moments:
        await asyncio.sleep(0)
    newer = await bus.bus.open_session(TOY.name)
    await newer.commit([], {CONTROL: Position(1, "")})
    with pytest.raises(Fenced, match="another instance has moved"):
        await running


async def test_a_record_that_cannot_be_handled_stops_the_core_there(bus: FaultyBus):
    case = ShellCase(TOY, bus, options=Options(batch_records=100))
    await case.give(arrival("a"), arrival("b"), cancel("a"), arrival("c"))
    for _ in range(2):
        with pytest.raises(CoreFailed, match=r"placement cannot handle job\.cancel_requested\.v1 .* control/0@2"):
            await case.run_until(lambda: False)
        assert case.position == 2
        assert len(await ids(bus.bus, Topic.CONTROL)) == 6


async def test_decisions_that_nobody_could_read_are_not_written(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"), cancel("a", note="inf"))
    with pytest.raises(CoreFailed, match=r"control/0@1: Unencodable.*job.queued.v1 of a: .*reason.numbers"):
        await case.run_until(lambda: False)
    assert len(await ids(bus.bus, Topic.CONTROL)) == 3, "two inputs, and what the first has led to"


async def test_a_record_that_cannot_be_decoded_stops_the_core_there(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    await bus.append([Outgoing(Topic.CONTROL, "x", [("ce_type", b"job.arrived.v1")], b"{")])
    with pytest.raises(CoreFailed, match=r"cannot be decoded: control/0@1: header 'ce_time' is missing"):
        await case.run_until(lambda: False)
    assert len(await messages(bus.bus, Topic.CONTROL)) == 3


async def test_an_altered_record_stops_the_core(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    log: list = bus.bus.log.messages("t", CONTROL)  # type: ignore[attr-defined]
    log[0] = type(log[0])(**{**vars(log[0]), "value": log[0].value.replace(b'"count":1', b'"count":8')})
    with pytest.raises(CoreFailed, match="was altered after it was written"):
        await case.run_until(lambda: False)


async def test_a_state_that_contradicts_itself_is_counted_and_stops_only_the_strict(bus: FaultyBus):
    case = ShellCase(TOY, bus, options=Options(check_every_records=1, commit_every_records=1))
    await case.give(JobPriorityChanged(job_id="a", priority=-1, requested_by="test"))
    await case.run_to_end()
    assert case.shell.stats.violations == 1
    strict = ShellCase(TOY, bus)
    await case.give(JobPriorityChanged(job_id="a", priority=-1, requested_by="test"))
    with pytest.raises(CoreFailed, match="control/0@0: the sum of priorities is -1"):
        await strict.run_until(lambda: False)


async def test_positions_move_without_decisions_too(bus: FaultyBus):
    case = ShellCase(TOY, bus, options=Options(commit_every_records=10, commit_every_s=60.0, batch_records=1))
    await case.give(*(JobPriorityChanged(job_id="a", priority=1, requested_by="test") for _ in range(25)))
    await case.run_until(lambda: case.position == 20)
    assert case.position == case.shell.stats.next_offset > 20  # a graceful stop commits what was read since


async def test_large_decisions_are_committed_in_several_transactions(bus: FaultyBus):
    case = ShellCase(TOY, bus, options=Options(batch_records=100, commit_bytes=1))
    await case.give(*(arrival(f"j{number}") for number in range(5)))
    await case.run_to_end()
    assert bus.faults.moments.count("commit") >= 5
    assert len(await ids(bus.bus, Topic.CONTROL)) == 10


async def test_a_record_that_comes_twice_is_taken_once(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    await bus.append([Outgoing(Topic.CONTROL, "a", m.headers, m.value) for m in await messages(bus.bus, Topic.CONTROL)])
    await case.run_to_end()
    kinds = [type(codec.record(m).envelope.event) for m in await messages(bus.bus, Topic.CONTROL)]
    assert kinds.count(JobArrived) == 2
    assert len(kinds) == 3


async def test_a_core_that_never_gets_past_a_moment_is_stopped(bus: FaultyBus, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("libs.runtime.timers.MOST_REPEATS", 3)
    stuck = replace(TOY, next_wakeup=lambda state: 1.0 if state.due_s or state.stopped else None)
    case = ShellCase(stuck, bus)
    await case.give(arrival("a"))
    case.clock.advance(PATIENCE_S)
    with pytest.raises(CoreFailed, match="asked 3 times in a row to be woken at 1"):
        await case.run_until(lambda: False)


async def test_orders_go_out_with_their_decision(bus: FaultyBus):
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"))
    await case.run_to_end()
    case.clock.advance(PATIENCE_S)
    await case.run_until(lambda: case.shell.stats.decisions == 1)
    [order] = await messages(bus.bus, Topic.ORDERS)
    assert order.key == "n1"
    assert order.partition == Partition(Topic.ORDERS, order.partition.index)
