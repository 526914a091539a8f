"""Killed at any moment of its work, a shell goes on as if nothing had been."""

from pathlib import Path
from typing import Any

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, TopicLayout
from libs.contracts.base import Topic
from libs.kernel.replica import Replica
from libs.runtime.recovery import CONTROL
from libs.runtime.snapshots import Snapshots
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase, ids, messages, replayed
from libs.testing.thorough import sample
from libs.testing.toy import PATIENCE_S, TOY

JOBS = 5


async def play(url: str, database: Path, crash_at: int | None) -> tuple[list[str], list[str], str, Faults]:
    """Jobs arrive, wait, and are stopped when their timers come; one crash on the way."""
    faults = Faults()
    if crash_at is not None:
        faults.crash_at(crash_at)
    bus = FaultyBus(await connect(url, "crash"), faults)
    await bus.create_topics(TopicLayout())
    snapshots = Snapshots(f"sqlite:///{database}", "crash")
    case = ShellCase(TOY, bus, snapshots)
    for name in "ab":
        await case.give(*(arrival(f"{name}{number}") for number in range(JOBS)))
        await case.run_to_end()
        case.clock.advance(PATIENCE_S)
        await case.run_until(lambda: case.shell.stats.next_offset > 0 and not case.shell.replica.state.due_s)
        await case.run_to_end()
    replica = await replayed(TOY, bus.bus)
    assert (await from_snapshot(snapshots, bus.bus)).state_hash == replica.state_hash
    log = await ids(bus.bus, Topic.CONTROL), await ids(bus.bus, Topic.ORDERS)
    snapshots.close()
    await bus.close()
    return *log, replica.state_hash, faults


async def from_snapshot(snapshots: Snapshots, bus: Bus) -> Replica[Any]:
    """The core from its newest snapshot and the tail of the log."""
    [newest, *_] = snapshots.load(TOY.name, (await ids(bus, Topic.CONTROL))[0], await bus.end_offset(CONTROL))
    replica = Replica.restore(TOY, newest.open())
    for message in await messages(bus, Topic.CONTROL):
        replica.step(codec.record(message))
    return replica


@pytest.mark.thorough
async def test_a_crash_at_any_moment_changes_nothing(tmp_path: Path):
    control, orders, state_hash, faults = await play("memory:", tmp_path / "undisturbed.db", None)
    assert len(orders) == 2 * JOBS
    assert len(set(control)) == len(control)
    for moment in sample(range(len(faults.moments)), by_default=40):
        found = await play("memory:", tmp_path / f"{moment}.db", moment)
        at = f"crash at moment {moment} ({faults.moments[moment]})"
        assert found[0] == control, at
        assert found[1] == orders, at
        assert found[2] == state_hash, at
