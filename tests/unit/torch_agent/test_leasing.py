"""The agent's side of a lease: what renews it, and what is proof after an acknowledgement that came too late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch_agent.leasing import Leasing
from torch_agent.shim import read_lease

from libs.node.lease import LeaseTerms
from torch_agent import leasing as module

TERMS = LeaseTerms(node_timeout_s=20.0, margin_s=4.0, grace_s=600.0)


class Machine:
    """Its clock, and a node whose proof is given by hand."""

    def __init__(self, folder: Path) -> None:
        self.path, self.now_s = folder / "lease", 1000.0
        self.asked = 0
        self.proof = asyncio.Event()

    def start(self) -> Leasing:
        return Leasing(self.path, TERMS)

    async def prove(self) -> None:
        self.asked += 1
        await self.proof.wait()
        self.proof.clear()

    @contextmanager
    def running(self, leasing: Leasing) -> Iterator[None]:
        work = asyncio.create_task(leasing.run(self.prove))
        yield
        work.cancel()

    @property
    def renewed_s(self) -> float | None:
        found = read_lease(self.path)
        return found["renewed_s"] if found is not None else None


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(module, "boottime_s", lambda: made.now_s)
    return made


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_it_counts_from_before_the_heartbeat_was_sent(machine: Machine):
    leasing = machine.start()
    assert leasing.holds, "a node that is new has no lease to lose"
    machine.now_s = 1003.0
    leasing.acknowledged(1001.0)
    assert machine.renewed_s == 1001.0
    machine.now_s = 1016.9
    assert leasing.holds
    machine.now_s = 1017.0
    assert not leasing.holds


async def test_an_acknowledgement_before_the_time_out_renews_a_lease_that_has_run_out(machine: Machine):
    leasing = machine.start()
    leasing.acknowledged(1000.0)
    machine.now_s = 1019.9
    assert not leasing.holds
    leasing.acknowledged(1019.5)
    assert leasing.holds and machine.renewed_s == 1019.5


async def test_a_later_one_renews_nothing_before_there_is_proof(machine: Machine):
    leasing = machine.start()
    leasing.acknowledged(1000.0)
    with machine.running(leasing):
        machine.now_s = 1020.0
        leasing.acknowledged(1019.9)
        await settled()
        assert machine.asked == 1
        machine.now_s = 1022.0
        leasing.acknowledged(1021.9)
        assert machine.renewed_s == 1000.0 and not leasing.holds
        machine.proof.set()
        await settled()
        assert machine.renewed_s == 1021.9 and leasing.holds
        machine.now_s = 1100.0
        leasing.acknowledged(1099.0)
        await settled()
        assert machine.asked == 2


async def test_proof_of_before_another_silence_is_none(machine: Machine):
    leasing = machine.start()
    leasing.acknowledged(1000.0)
    with machine.running(leasing):
        machine.now_s = 1030.0
        leasing.acknowledged(1029.0)
        await settled()
        machine.now_s = 1060.0
        leasing.acknowledged(1059.0)
        machine.proof.set()
        await settled()
        assert machine.renewed_s == 1000.0 and machine.asked == 2
        machine.proof.set()
        await settled()
        assert machine.renewed_s == 1059.0


@pytest.mark.parametrize(("away_s", "needs_proof"), [(5.0, False), (30.0, True)])
async def test_the_next_agent_goes_on_with_the_lease_of_the_one_before(
    machine: Machine, away_s: float, needs_proof: bool
):
    machine.start().acknowledged(1000.0)
    machine.now_s += away_s
    leasing = machine.start()
    assert leasing.holds is not needs_proof
    with machine.running(leasing):
        leasing.acknowledged(machine.now_s)
        await settled()
        assert machine.renewed_s == (1000.0 if needs_proof else machine.now_s)
        assert machine.asked == int(needs_proof)
        machine.proof.set()
        await settled()
        assert machine.renewed_s == machine.now_s and leasing.holds


async def test_what_waits_for_the_lease_goes_on_when_it_is_renewed(machine: Machine):
    leasing = machine.start()
    leasing.acknowledged(1000.0)
    machine.now_s = 1017.0
    waiting = asyncio.create_task(leasing.until_it_holds())
    await settled()
    assert not waiting.done()
    leasing.acknowledged(1016.9)
    await asyncio.wait_for(waiting, 5)


async def test_tasks_that_are_left_in_order_are_not_killed(machine: Machine):
    leasing = machine.start()
    leasing.acknowledged(1000.0)
    leasing.keep()
    found = read_lease(machine.path)
    assert found is not None and (found["renewed_s"], found["grace_s"]) == (1000.0, None)
    leasing.acknowledged(1001.0)
    found = read_lease(machine.path)
    assert found is not None and found["grace_s"] == 600.0


async def test_a_lease_that_cannot_be_written_runs_out(machine: Machine):
    leasing = machine.start()
    leasing.acknowledged(1000.0)
    machine.path.unlink()
    machine.path.mkdir()
    machine.now_s = 1010.0
    leasing.acknowledged(1009.0)
    machine.now_s = 1016.0
    assert not leasing.holds
