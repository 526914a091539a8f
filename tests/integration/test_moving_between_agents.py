"""A task moves from one agent to another: not a bit of its result changes, whatever is killed on the way."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from torch_agent.harness.control import current_turn, suspends
from torch_agent.processes import lives

from libs.contracts.agent import (
    JobExited,
    JobMovable,
    JobReady,
    JobRestored,
    JobResumed,
    JobStarted,
    JobSuspended,
    NodeJoined,
)
from libs.contracts.base import Event
from libs.contracts.placement import LaunchTask, RestoreTask, ResumeTask, StateSource, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.testing.builders import launch
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase
from tests.integration.example_scripts import SCRIPTS, STEPS, losses_in, losses_of

SUSPENSIONS, SLOTS, MOVES = 10, 3, 2
MANY = 10 * STEPS
OTHER = {"n1": "n2", "n2": "n1"}


class Moving:
    """One job, and where it is."""

    def __init__(self, agents: AgentCase, ports: dict[str, int]) -> None:
        self.agents, self.ports = agents, ports
        self.attempt, self.node_id, self.pid = 1, "n1", 0
        self.script = "mlp.py"

    async def launch(self, order: LaunchTask) -> None:
        """The first attempt."""
        self._open_gate(0)
        self.order = msgspec.structs.replace(order, env={"GATE": str(self.agents.folder / "gate")})
        await self.agents.order(self.order)
        self.pid = (await self.agents.fact(JobStarted)).pid
        await self.agents.fact(JobMovable)

    async def waits_after(self, losses: int) -> None:
        """Let the job train so far, where it waits in the middle of a mini-batch."""
        self._open_gate(losses)
        while self.losses <= losses:
            await asyncio.sleep(0.01)

    @property
    def losses(self) -> int:
        """Written so far."""
        file = self.agents.folder / f"{self.script}.losses"
        return len(file.read_text().split()) if file.exists() else 0

    def _open_gate(self, losses: int) -> None:
        gate = self.agents.folder / "gate"
        gate.with_suffix(".new").write_text(str(losses))
        gate.with_suffix(".new").rename(gate)

    async def suspend(self) -> JobSuspended:
        """At the end of the mini-batch that it waits in."""
        await self.agents.order(SuspendTask(node_id=self.node_id, job_id="a", attempt=self.attempt))
        pages = self.agents.task_folder("a", self.attempt, self.node_id) / "pages"
        while not suspends(current_turn(pages)):
            await asyncio.sleep(0.01)
        self._open_gate(MANY)
        suspended = await self.agents.fact(JobSuspended)
        assert suspended.parked and suspended.left_bytes < suspended.parked_bytes / 100
        self._open_gate(self.losses)
        return suspended

    async def ends(self) -> None:
        """Without further ado."""
        self._open_gate(MANY)
        assert (await self.agents.fact(JobExited)).exit_code == 0

    async def resume(self, slot: int = 0) -> None:
        await self.agents.order(ResumeTask(node_id=self.node_id, job_id="a", attempt=self.attempt, gpu_indices=[slot]))
        assert (await self.agents.fact(JobResumed)).gpu_indices == [slot]

    async def prepare(self) -> None:
        """The next attempt waits on the other node."""
        await self.warm()
        await self.agents.fact(JobReady)

    async def warm(self) -> None:
        """The next attempt is on its way."""
        changes = {"node_id": OTHER[self.node_id], "attempt": self.attempt + 1, "restores": True}
        await self.agents.order(msgspec.structs.replace(self.order, **changes))
        self.next_pid = (await self.agents.fact(JobStarted)).pid

    async def restore(self) -> None:
        """Have the next attempt fetch the state of this one."""
        source = StateSource(node_id=self.node_id, address="127.0.0.1", port=self.ports[self.node_id], first_rank=0)
        await self.agents.order(
            RestoreTask(
                node_id=OTHER[self.node_id],
                job_id="a",
                attempt=self.attempt + 1,
                from_attempt=self.attempt,
                sources=[source],
            )
        )

    async def switch_over(self) -> None:
        """The source ends where it stands, the destination goes on."""
        await self.agents.order(
            stop(self.node_id, self.attempt),
            ResumeTask(node_id=OTHER[self.node_id], job_id="a", attempt=self.attempt + 1),
        )
        facts = [await self.agents.next(), await self.agents.next()]
        ended = next(fact for fact in facts if isinstance(fact, JobExited))
        assert (ended.attempt, ended.outcome, ended.signal) == (self.attempt, "stopped", signal.SIGKILL)
        assert any(isinstance(fact, JobResumed) and fact.attempt == self.attempt + 1 for fact in facts)
        assert not lives(self.pid)
        self.attempt, self.node_id, self.pid = self.attempt + 1, OTHER[self.node_id], self.next_pid

    async def move(self) -> JobRestored:
        """From the first step to the last."""
        await self.prepare()
        await self.suspend()
        await self.restore()
        restored: JobRestored = await self.agents.fact(JobRestored)
        await self.switch_over()
        return restored

    async def reborn(self, node_id: str, *come: type[Event]) -> None:
        """kill -9 of the agent, and start it again; `come`: facts that come before it has joined or after that."""
        self.agents.kill(node_id)
        self.agents.start(node_id)
        joined, *_ = await self.agents.all_of(NodeJoined, *come)
        self.ports[node_id] = joined.state_port


def stop(node_id: str, attempt: int) -> StopTask:
    reason = Reason(code="Test", message="said by the test")
    return StopTask(node_id=node_id, job_id="a", attempt=attempt, grace_s=0.0, reason=reason)


@pytest.fixture
async def moving(tmp_path: Path) -> AsyncIterator[Moving]:
    async with AgentCase(tmp_path, "n1", "n2") as agents:
        joined = [await agents.fact(NodeJoined), await agents.fact(NodeJoined)]
        yield Moving(agents, {each.node_id: each.state_port for each in joined})
    assert nothing_left_of(tmp_path) == []
    assert list(tmp_path.rglob("state.rank-*")) == []


@pytest.mark.parametrize("script", SCRIPTS)
async def test_losses_are_the_same_to_the_bit(moving: Moving, undisturbed: Path, tmp_path: Path, script: str):
    chance = random.Random(script)
    moving.script = script
    await moving.launch(launch("a", *losses_of(tmp_path, script), "--movable"))
    disturbances = ["suspension"] * SUSPENSIONS + ["slot"] * SLOTS + ["move"] * MOVES
    chance.shuffle(disturbances)
    for disturbance in disturbances:
        await moving.waits_after(moving.losses + chance.randint(0, 6))
        if disturbance == "move":
            await moving.move()
        else:
            await moving.suspend()
            await moving.resume(chance.randint(1, 3) if disturbance == "slot" else 0)
    await moving.ends()
    losses = losses_in(tmp_path, script)
    assert losses == losses_in(undisturbed, script) and len(losses) == STEPS


async def trains(moving: Moving, folder: Path, gpus: int = 1) -> None:
    """A job that waits in the middle of a mini-batch until it is suspended."""
    await moving.launch(launch("a", *losses_of(folder, "mlp.py"), "--movable", gpus=gpus))
    await moving.waits_after(10)


async def ends_well(moving: Moving, folder: Path, undisturbed: Path) -> None:
    """With the losses of the undisturbed run."""
    await moving.ends()
    assert losses_in(folder, "mlp.py") == losses_in(undisturbed, "mlp.py")


async def test_agents_that_are_killed_in_the_middle_of_a_move_finish_what_they_began(
    moving: Moving, undisturbed: Path, tmp_path: Path
):
    await trains(moving, tmp_path)
    await moving.warm()
    await moving.reborn(OTHER[moving.node_id], JobReady)  # while the destination gets ready
    await moving.suspend()
    await moving.restore()
    await moving.reborn(OTHER[moving.node_id], JobRestored)  # while it gets its state
    await moving.switch_over()

    await moving.waits_after(90)
    await moving.prepare()
    await moving.suspend()
    moving.agents.kill(moving.node_id)
    await moving.restore()  # the source cannot be reached
    await moving.reborn(moving.node_id)
    await moving.agents.fact(JobRestored)
    await moving.reborn(OTHER[moving.node_id])  # before it is told to go on
    await moving.switch_over()
    await ends_well(moving, tmp_path, undisturbed)


async def test_when_the_destination_is_killed_the_source_goes_on_as_if_nothing_had_been(
    moving: Moving, undisturbed: Path, tmp_path: Path
):
    await trains(moving, tmp_path)
    await moving.prepare()
    await moving.suspend()
    os.kill(moving.next_pid, signal.SIGKILL)
    exited = await moving.agents.fact(JobExited)
    assert (exited.attempt, exited.outcome) == (2, "restore_failed")
    await moving.resume()
    await ends_well(moving, tmp_path, undisturbed)


async def test_when_the_source_is_killed_there_is_nothing_to_take_over(moving: Moving, tmp_path: Path):
    await trains(moving, tmp_path)
    await moving.prepare()
    await moving.suspend()
    os.kill(moving.pid, signal.SIGKILL)
    assert (await moving.agents.fact(JobExited)).outcome == "signalled"
    await moving.restore()
    exited = await moving.agents.fact(JobExited)
    assert (exited.attempt, exited.outcome) == (2, "restore_failed")
    assert exited.stderr_tail == "n1: attempt 1 of a is not here"
    assert not lives(moving.next_pid)


async def test_a_source_that_does_not_stand_still_yet_is_waited_for(moving: Moving, undisturbed: Path, tmp_path: Path):
    await trains(moving, tmp_path)
    await moving.prepare()
    await moving.restore()
    await moving.suspend()
    await moving.agents.fact(JobRestored)
    await moving.switch_over()
    await ends_well(moving, tmp_path, undisturbed)


TRAINS = """
import libs.testing.quick_torch
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""


async def test_a_script_that_does_not_hand_over_its_state_is_not_started_twice(moving: Moving, tmp_path: Path):
    script = tmp_path / "plain.py"
    script.write_text(TRAINS)
    await moving.agents.order(launch("a", sys.executable, str(script), node_id="n2", attempt=2, restores=True))
    await moving.agents.fact(JobStarted)
    exited = await moving.agents.fact(JobExited)
    assert exited.outcome == "restore_failed" and "trains without a Job" in exited.stderr_tail


async def test_a_gang_moves_together(moving: Moving, tmp_path: Path):
    await trains(moving, tmp_path, gpus=2)
    assert (await moving.move()).state_bytes > 0
    await moving.waits_after(200)
    await moving.move()
    await moving.ends()
    assert len(losses_in(tmp_path, "mlp.py")) == 2 * STEPS
