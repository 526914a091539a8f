"""Snapshots are a cache: whatever happens to them, the state is that of the log."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text

from libs.bus.connect import connect
from libs.bus.port import TopicLayout
from libs.contracts.base import Topic
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobQueued
from libs.contracts.reasons import Reason
from libs.kernel.machine import Machine, Turn
from libs.kernel.replica import Replica
from libs.kernel.service import Service
from libs.runtime.recovery import CONTROL, log_id, recover
from libs.runtime.shell import Options
from libs.runtime.snapshots import KEPT, Snapshots
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import CAREFUL, ShellCase, ids, replayed
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
    return await recover(service, snapshots, await log_id(case.bus.bus), case.position)


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
    changed = Service[Any](**{**vars(TOY), "state_type": state_type, "check": lambda state: None})
    with caplog.at_level(logging.WARNING):
        replica = await restored(case, snapshots, changed)
    assert replica.next_offset == 0
    assert "snapshot dropped" in caplog.text


async def test_a_snapshot_whose_state_contradicts_itself_is_dropped(url: str):
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


def deciding_otherwise() -> Service[Any]:
    """The toy of another release, which queues attempt 2."""
    changed: Machine[ToyState] = Machine(TOY.name)

    @changed.decides(JobArrived)
    def arrived(state: ToyState, event: JobArrived, turn: Turn[ToyState]) -> None:
        state.due_s[event.job_id] = turn.now_s + PATIENCE_S
        turn.emit(JobQueued(job_id=event.job_id, attempt=2, reason=Reason(code="Toy", message="waits")))

    return Service[Any](**{**vars(TOY), "machine": changed})


async def test_a_core_that_now_decides_otherwise_is_reported(url: str, caplog: pytest.LogCaptureFixture):
    case = await a_life(Snapshots(url, "t"))
    case.service, case.snapshots = deciding_otherwise(), None
    await case.give(arrival("late"))
    with caplog.at_level(logging.WARNING):
        await case.run_to_end()
    assert case.shell.stats.replay_differences == JOBS
    assert "the replay derived other decisions" in caplog.text
    assert await case.bus.bus.end_offset(CONTROL) == 2 * JOBS + 2
