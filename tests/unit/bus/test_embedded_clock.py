"""The clock of an embedded log: what elapses, and not what a process's clock shows."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.embedded import clock as module
from libs.bus.embedded.clock import MOST_DRAWN, LogClock

A_DAY_S = 86_400.0


class Machine:
    """The kernel's clock and the machine's, in the hand of a test."""

    def __init__(self) -> None:
        self.machine_s, self.boottime_s, self.boot = 1_800_000_000.0, 100.0, "first"

    def elapse(self, seconds: float) -> None:
        self.machine_s += seconds
        self.boottime_s += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(module.time, "time", lambda: machine.machine_s)
    monkeypatch.setattr(module.time, "clock_gettime", lambda clock: machine.boottime_s)
    monkeypatch.setattr(module, "_boot", lambda: machine.boot)
    return machine


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    yield connection
    connection.close()


def test_it_begins_with_the_machines_clock_and_goes_on_with_what_elapses(
    machine: Machine, connection: sqlite3.Connection
):
    clock = LogClock(connection)
    assert clock.now_s() == 1_800_000_000.0
    machine.elapse(5.0)
    assert clock.now_s() == 1_800_000_005.0
    assert clock.read_s() == 1_800_000_005.0


@pytest.mark.parametrize("set_by_s", [A_DAY_S, -3600.0, 2.3e9])
def test_setting_a_clock_moves_it_by_next_to_nothing(machine: Machine, connection: sqlite3.Connection, set_by_s: float):
    clock = LogClock(connection)
    began_s = clock.now_s()
    machine.machine_s += set_by_s
    for _ in range(600):
        machine.elapse(1.0)
        clock.now_s()
    assert clock.now_s() - began_s == pytest.approx(600.0, rel=MOST_DRAWN)


def test_it_never_goes_back(machine: Machine, connection: sqlite3.Connection):
    clock, seen = LogClock(connection), []
    for _ in range(300):
        machine.elapse(0.25)
        machine.machine_s -= 1.0
        seen.append(clock.now_s())
    assert seen == sorted(seen)


def test_a_correction_of_the_machines_clock_is_followed(machine: Machine, connection: sqlite3.Connection):
    clock = LogClock(connection)
    clock.now_s()
    machine.machine_s += 0.5
    for _ in range(3_600):
        machine.elapse(1.0)
        clock.now_s()
    assert clock.now_s() == pytest.approx(machine.machine_s, abs=0.01)


def test_processes_share_it(machine: Machine, connection: sqlite3.Connection, tmp_path: Path):
    LogClock(connection).now_s()
    machine.elapse(3.0)
    machine.machine_s += A_DAY_S  # of the other process alone
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    assert LogClock(other).now_s() == 1_800_000_003.0
    other.close()


def test_after_a_boot_it_is_never_earlier_than_before(machine: Machine, connection: sqlite3.Connection):
    before_s = LogClock(connection).now_s()
    machine.boot, machine.boottime_s, machine.machine_s = "second", 3.0, before_s - A_DAY_S
    assert LogClock(connection).read_s() is None, "nothing was written since"
    assert LogClock(connection).now_s() == before_s
    machine.boot, machine.machine_s = "third", before_s + A_DAY_S
    assert LogClock(connection).now_s() == before_s + A_DAY_S


def test_a_log_of_an_older_version_is_none_the_worse(connection: sqlite3.Connection):
    assert LogClock(connection).read_s() is None
    assert abs(LogClock(connection).now_s() - time.time()) < 5.0
