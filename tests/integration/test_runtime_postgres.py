"""Snapshots on a real PostgreSQL."""

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from libs.bus.connect import connect
from libs.bus.port import TopicLayout
from libs.kernel.replica import Replica, Snapshot
from libs.runtime.recovery import from_snapshot, log_id
from libs.runtime.snapshots import KEPT, Snapshots
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase, replayed
from libs.testing.toy import TOY, ToyState

pytest_plugins = ("libs.testing.postgres",)


@pytest.fixture
def snapshots(postgres_url: str) -> Iterator[Snapshots]:
    snapshots = Snapshots(postgres_url, "t")
    yield snapshots
    snapshots.close()


def taken_at(offset: int, cell_state: int = 0) -> Snapshot:
    replica = Replica(TOY)
    replica.state, replica.next_offset = ToyState(stopped=cell_state), offset
    return replica.snapshot()


async def test_a_shell_comes_back_from_its_snapshot(snapshots: Snapshots):
    bus = FaultyBus(await connect("memory:", "t"), Faults())
    await bus.create_topics(TopicLayout())
    case = ShellCase(TOY, bus, snapshots)
    await case.give(*(arrival(f"j{number}") for number in range(10)))
    await case.run_to_end()
    replica = await from_snapshot(TOY, snapshots, "", await log_id(bus.bus), case.position)
    assert replica.next_offset == case.position == 20
    assert replica.state_hash == (await replayed(TOY, bus.bus)).state_hash


def test_large_states_and_offsets_come_back_to_the_byte(snapshots: Snapshots):
    state = ToyState(due_s={f"j{number}": number / 7 for number in range(100_000)})
    replica = Replica(TOY)
    replica.state, replica.next_offset = state, 2**40
    snapshot = replica.snapshot()
    snapshots.save(snapshot, "log", 1.5)
    [stored] = snapshots.load(TOY.name, "log", 2**40)
    assert stored.open() == snapshot


def test_old_ones_and_those_of_other_logs_are_forgotten(snapshots: Snapshots):
    snapshots.save(taken_at(10_000), "an older log", 0.0)
    for number in range(KEPT + 3):
        snapshots.save(taken_at(number), "log", float(number))
    assert [stored.next_offset for stored in snapshots.load(TOY.name, "log", 99)] == [5, 4, 3]
    assert snapshots.load(TOY.name, "an older log", 10**6) == []


def test_the_same_place_can_be_saved_again(snapshots: Snapshots):
    snapshots.save(taken_at(7, 1), "log", 1.0)
    snapshots.save(taken_at(7, 2), "log", 2.0)
    [stored] = snapshots.load(TOY.name, "log", 7)
    assert b'"stopped":2' in stored.open().state


def test_services_that_start_together_create_one_table(postgres_url: str):
    stores = [Snapshots(postgres_url, f"cell-{number}") for number in range(8)]
    errors: list[Exception] = []

    def save(store: Snapshots) -> None:
        try:
            store.save(taken_at(1), "log", 0.0)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert errors == []


def test_a_broken_connection_is_replaced(snapshots: Snapshots, postgres_url: str):
    snapshots.save(taken_at(1), "log", 0.0)
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
    engine.dispose()
    snapshots.save(taken_at(2), "log", 1.0)
    assert [stored.next_offset for stored in snapshots.load(TOY.name, "log", 9)] == [2, 1]
