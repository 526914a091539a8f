"""Snapshots are a cache: whatever happens to them, the state is that of the log."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Message, Outgoing, TopicLayout
from libs.contracts import wire
from libs.contracts.base import Topic
from libs.contracts.gateway import JobArrived, JobPriorityChanged
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import Reason
from libs.contracts.runtime import ServiceStarted
from libs.kernel.machine import Machine, Turn
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.runtime.exits import CoreFailed
from libs.runtime.recovery import CONTROL, Recovery, from_snapshot, log_id
from libs.runtime.shell import Epoch, Options
from libs.runtime.snapshots import KEPT, Snapshots
from libs.runtime.stats import Stats
from libs.runtime.timers import Note
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.forgetful import ForgetfulBus
from libs.testing.shells import CAREFUL, ShellCase, ids, messages, replayed
from libs.testing.toy import PATIENCE_S, TOY, ToyState

JOBS = 12


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/snapshots.db"


async def a_life(snapshots: Snapshots, options: Options = CAREFUL, bus: FaultyBus | None = None) -> ShellCase:
    """A shell that has handled some jobs and stopped in order."""
    if bus is None:
        bus = FaultyBus(await connect("memory:", "t"), Faults())
        await bus.create_topics(TopicLayout())
    case = ShellCase(TOY, bus, snapshots, options)
    await case.give(*(arrival(f"j{number}") for number in range(JOBS)))
    await case.run_to_end()
    return case


def tamper(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


async def restored(case: ShellCase, snapshots: Snapshots, service: Service[Any] = TOY) -> Replica[Any]:
    return await from_snapshot(service, snapshots, "", await log_id(case.bus.bus), case.position)


async def test_snapshots_are_taken_on_the_way_and_at_the_end_and_old_ones_are_forgotten(url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    [log_name] = (await ids(case.bus.bus, Topic.CONTROL))[:1]
    stored = snapshots.load(TOY.name, log_name, 10**9)
    assert len(stored) == KEPT
    assert stored[0].next_offset == case.position == 2 * JOBS
    assert stored[0].open().state_hash == (await replayed(TOY, case.bus.bus)).state_hash


async def test_a_restart_reads_only_the_tail(url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    case.bus.faults.moments.clear()
    await case.give(arrival("late"))
    await case.run_to_end()
    assert case.shell.stats.records == 2
    assert case.shell.replica.state_hash == (await replayed(TOY, case.bus.bus)).state_hash


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE core_snapshots SET body = x'00' || substr(body, 2)",
        "UPDATE core_snapshots SET body = x''",
        "UPDATE core_snapshots SET body_digest = 'forged'",
        "DELETE FROM core_snapshots",
        "UPDATE core_snapshots SET next_offset = next_offset + 1000",
        "UPDATE core_snapshots SET log_id = 'of another log'",
    ],
)
async def test_a_damaged_snapshot_is_never_used(url: str, damage: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    tamper(url, damage)
    assert (await restored(case, snapshots)).next_offset == 0
    await case.give(arrival("late"))
    await case.run_to_end()
    assert case.shell.replica.state_hash == (await replayed(TOY, case.bus.bus)).state_hash


async def test_an_older_snapshot_serves_when_the_newest_is_damaged(url: str, caplog: pytest.LogCaptureFixture):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    newest = "(SELECT max(next_offset) FROM core_snapshots)"
    tamper(url, f"UPDATE core_snapshots SET body_digest = '' WHERE next_offset = {newest}")
    with caplog.at_level(logging.WARNING):
        replica = await restored(case, snapshots)
    assert 0 < replica.next_offset < case.position
    assert "snapshot dropped" in caplog.text


class NewerState(msgspec.Struct, kw_only=True):
    """The state class of a later release: one more field."""

    due_s: dict[str, float] = {}
    stopped: int = 0
    priorities: int = 0
    favourites: list[str] = []


class OtherState(msgspec.Struct, kw_only=True):
    """A state class that does not even decode."""

    due_s: list[int] = []


@pytest.mark.parametrize("state_type", [NewerState, OtherState])
async def test_a_snapshot_of_another_state_class_is_rebuilt_from_the_log(
    url: str, state_type: type, caplog: pytest.LogCaptureFixture
):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    changed: Service[Any] = replace(TOY, state_type=state_type, check=lambda state: None)
    with caplog.at_level(logging.INFO):
        replica = await restored(case, snapshots, changed)
    assert replica.next_offset == 0
    assert any("another state class" in str(vars(record)) for record in caplog.records)
    assert (await restored(case, snapshots)).next_offset == case.position, "it still serves the version that made it"


async def test_a_snapshot_of_a_state_that_contradicts_itself_is_dropped(url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    replica = Replica(TOY)
    replica.state, replica.next_offset = ToyState(priorities=-1), case.position
    snapshots.save(replica.snapshot(), await log_id(case.bus.bus), case.clock.now_s())
    assert (await restored(case, snapshots)).state.priorities == 0


async def test_snapshots_of_a_log_that_is_gone_are_not_used(url: str):
    snapshots = Snapshots(url, "t")
    await a_life(snapshots)
    new_log = FaultyBus(await connect("memory:", "t"), Faults())
    await new_log.create_topics(TopicLayout())
    case = ShellCase(TOY, new_log, snapshots)
    case.given = 100
    await case.give(arrival("only"))
    await case.run_to_end()
    assert list(case.shell.replica.state.due_s) == ["only"]
    assert (await restored(case, snapshots)).state_hash == (await replayed(TOY, new_log.bus)).state_hash


async def test_a_database_that_is_away_costs_only_time(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    snapshots = Snapshots(f"sqlite:///{tmp_path}", "t")  # a directory: cannot be opened
    with caplog.at_level(logging.WARNING):
        case = await a_life(snapshots)
    assert case.position == 2 * JOBS
    assert case.shell.stats.snapshot_failures > 0
    assert "snapshots cannot be read" in caplog.text


async def test_cells_and_services_do_not_mix(url: str):
    mine, other = Snapshots(url, "a"), Snapshots(url, "b")
    case = await a_life(mine)
    assert other.load(TOY.name, await log_id(case.bus.bus), 10**9) == []
    assert mine.load("quota", await log_id(case.bus.bus), 10**9) == []


async def test_a_snapshot_of_other_rules_is_left_alone(url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)
    log_name = await log_id(case.bus.bus)
    assert (await from_snapshot(TOY, snapshots, "new rules", log_name, case.position)).next_offset == 0
    assert (await restored(case, snapshots)).next_offset == case.position


def deciding_otherwise() -> Service[Any]:
    """The toy of another release, which queues attempt 2 and tells so twice."""
    changed: Machine[ToyState] = Machine(TOY.name)
    changed._evolves = TOY.machine._evolves

    @changed.decides(JobArrived)
    def arrived(state: ToyState, event: JobArrived, turn: Turn[ToyState]) -> None:
        for _ in range(2):
            turn.emit(JobQueued(job_id=event.job_id, attempt=2, reason=Reason(code="Toy", message="waits")))

    return replace(TOY, machine=changed)


async def test_a_core_that_now_decides_otherwise_has_the_recorded_state_and_decides_only_what_is_new(url: str):
    case = await a_life(Snapshots(url, "t"))
    before = (await replayed(TOY, case.bus.bus)).state_bytes
    case.service, case.snapshots = deciding_otherwise(), None
    await case.run_to_end()
    assert case.shell.replica.state_bytes == before
    assert await case.bus.bus.end_offset(CONTROL) == 2 * JOBS, "nothing is decided again"
    await case.give(arrival("late"))
    await case.run_to_end()
    assert await case.bus.bus.end_offset(CONTROL) == 2 * JOBS + 3


def pending(case: ShellCase) -> bool:
    """Whether a timer is on the log that the core has not read."""
    position = case.bus.positions[TOY.name][CONTROL]
    return bool(msgspec.json.decode(position.metadata, type=Note).pending)


@pytest.mark.parametrize("with_snapshots", [True, False])
@pytest.mark.parametrize("timer", ["none", "read", "pending"])
async def test_a_position_that_was_forgotten_is_found_on_the_log(url: str, with_snapshots: bool, timer: str):
    snapshots = Snapshots(url, "t") if with_snapshots else None
    case = await a_life(snapshots or Snapshots(url, "other"))
    case.snapshots = snapshots
    if timer != "none":
        case.clock.advance(PATIENCE_S)
        await case.run_until(lambda: pending(case) if timer == "pending" else case.position > 2 * JOBS)
    control = await ids(case.bus.bus, Topic.CONTROL)
    state = case.shell.replica.state_bytes
    forgetful = ForgetfulBus(case.bus.bus)
    forgetful.forget()
    case.bus = FaultyBus(forgetful, Faults())
    await case.give(arrival("late"))
    await case.run_to_end()
    assert case.shell.stats.repairs == 1
    assert (await ids(case.bus.bus, Topic.CONTROL))[: len(control)] == control
    assert len(await ids(case.bus.bus, Topic.CONTROL)) == len(control) + 2, "the job and its place in the queue"
    assert len(await ids(case.bus.bus, Topic.ORDERS)) == (0 if timer == "none" else JOBS), "each order once"
    assert state != case.shell.replica.state_bytes


async def test_a_position_beyond_the_logs_end_is_refused(url: str):
    case = await a_life(Snapshots(url, "t"))
    shorter = FaultyBus(await connect("memory:", "t"), Faults())
    await shorter.create_topics(TopicLayout())
    await shorter.append([codec.outgoing(codec.record((await messages(case.bus.bus, Topic.CONTROL))[0]).envelope)])
    recovery = Recovery(TOY, shorter, "", None, Stats(TOY.name), asyncio.Event())
    with pytest.raises(CoreFailed, match="has handled control up to offset 24, and the log ends at 1"):
        await recovery.run(await log_id(shorter), case.position)


async def test_an_epoch_begins_with_other_rules_and_not_with_a_restart(url: str):
    snapshots = Snapshots(url, "t")
    case = await a_life(snapshots)

    async def epochs(rules: str) -> list[tuple[str, int]]:
        case.epoch = Epoch("1.0", rules)
        await case.give(JobPriorityChanged(job_id="j0", priority=1, requested_by="test"))
        await case.run_to_end()
        found = [codec.record(message).envelope.event for message in await messages(case.bus.bus, Topic.CONTROL)]
        return [(event.rules, event.next_offset) for event in found if isinstance(event, ServiceStarted)]

    first, second = ("a", 2 * JOBS), ("b", 2 * JOBS + 3)
    assert await epochs("a") == [first]
    assert await epochs("a") == [first]
    assert await epochs("b") == [first, second]
    assert await epochs("b") == [first, second]
    assert await epochs("a") == [first, second, ("a", 2 * JOBS + 6)], "although it has a snapshot of its own rules"


def relabelled(message: Message, wire_type: str) -> Outgoing:
    """The record as a newer version would write it, under another type."""
    headers = [(n, wire_type.encode() if n == "ce_type" else v) for n, v in message.headers if n != "ce_digest"]
    headers.append(("ce_digest", wire.digest(dict(headers), message.value).encode()))
    return Outgoing(topic=Topic.CONTROL, key=message.key, headers=headers, value=message.value)


async def test_types_of_a_newer_version_are_passed_over_and_newer_versions_of_known_types_are_refused(url: str):
    case = await a_life(Snapshots(url, "t"))
    [first, *_] = await messages(case.bus.bus, Topic.CONTROL)
    await case.bus.append([relabelled(first, "job.admired.v1")])
    await case.run_to_end()
    case.snapshots = None
    await case.give(arrival("late"))
    await case.run_to_end()
    assert case.shell.replica.state_hash == (await folded(case)).state_hash
    await case.bus.append([relabelled(first, "job.arrived.v9")])
    with pytest.raises(CoreFailed, match=r"control/0@\d+: job.arrived.v9 was written by a newer version than this one"):
        await case.run_to_end()


async def folded(case: ShellCase) -> Replica[Any]:
    """By a process without snapshots."""
    recovery = Recovery(TOY, case.bus, "", None, Stats(TOY.name), asyncio.Event())
    return (await recovery.run(await log_id(case.bus), case.position)).replica
