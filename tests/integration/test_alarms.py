"""Jobs that hang, diverge or leave their GPUs idle: real training processes, an agent, and introspection beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.agent import JobExited, JobStarted, NodeJoined
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.introspection import GpuIdle, HostProfiled, JobProfiled, JobRecovered, JobStalled, LossDiverged
from libs.contracts.placement import JobPlaced, StopTask
from libs.contracts.reasons import Reason
from libs.contracts.runtime import ServiceStarted
from libs.runtime.cell_key import ensure_key
from libs.testing.builders import launch
from libs.testing.processes import Processes, give
from tests.integration.agent_case import AgentCase

WHY = Reason(code="Test", message="said by the test")
TRAINS = """
import os, sys
import libs.testing.quick_torch
import torch

def waits_for_its_turn():
    with open(sys.argv[1]) as pipe:  # until a writer comes
        pipe.read()

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
number = 0
while not os.path.exists(sys.argv[2]):
    loss = model(torch.randn(8, 4)).square().mean() * (float("nan") if "nan" in sys.argv else 1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    number += 1
    if number == 40 and "nan" not in sys.argv:
        waits_for_its_turn()
"""
HOLDS = "import sys; open(sys.argv[1]).read()"


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    """An agent, and introspection with the patience of a test."""
    ensure_key(tmp_path / "cell.key")
    environment = {"SANJAYA_CELL_KEY_FILE": str(tmp_path / "cell.key")}
    processes = Processes(
        {
            **environment,
            "SANJAYA_BUS": f"sqlite:///{tmp_path}/log.db",
            "SANJAYA_CELL": "test",
            "SANJAYA_STATE_DIR": str(tmp_path / "introspection"),
            "SANJAYA_STALL_MIN_S": "3",
            "SANJAYA_STALL_COMPUTING_TIMES": "1",
            "SANJAYA_IDLE_GPU_S": "3",
            "SANJAYA_NODE_TIMEOUT_S": "600",
        }
    )
    async with AgentCase(tmp_path, environment=environment) as case:
        await processes.start("services.introspection")
        yield case
        await processes.kill_all()


async def placed(agent: AgentCase, *command: str) -> None:
    """Have a task run, and say that it was placed, as placement would."""
    gang = [TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0)]
    await give(agent.bus, 1, [JobPlaced(job_id="a", attempt=1, gang=gang, reason=WHY)])
    await agent.order(launch("a", *command))


async def alarm(agent: AgentCase) -> Event:
    """The next fact about a job that is neither its start nor a measurement."""
    while isinstance(event := await agent.next(), HostProfiled | JobPlaced | JobProfiled | JobStarted | ServiceStarted):
        continue
    assert event is not None, (agent.folder / "agent.log").read_text()[-3000:]
    return event


async def test_a_job_that_hangs_is_told_with_its_stacks_and_so_is_that_it_goes_on(agent: AgentCase, tmp_path: Path):
    (tmp_path / "train.py").write_text(TRAINS)
    pipe, done = tmp_path / "pipe", tmp_path / "done"
    os.mkfifo(pipe)
    await agent.fact(NodeJoined)
    await placed(agent, "python", f"{tmp_path}/train.py", str(pipe), str(done))
    stalled = await alarm(agent)
    assert isinstance(stalled, JobStalled), stalled
    assert stalled.quiet_s >= stalled.limit_s >= 3.0 and stalled.minibatches_total == 40
    [stack] = stalled.stacks
    assert (stack.node_id, stack.rank, stalled.stacks_note) == ("n1", 0, "")
    assert "in waits_for_its_turn" in stack.text
    pipe.write_text("go")
    while isinstance(recovered := await alarm(agent), GpuIdle):  # an idle GPU is a fact of its own
        continue
    assert isinstance(recovered, JobRecovered), recovered
    while recovered.alarm != "stalled":
        recovered = await alarm(agent)
    assert recovered.minibatches_total > 40
    done.touch()
    while not isinstance(ended := await alarm(agent), JobExited):
        assert isinstance(ended, JobRecovered) and ended.alarm == "idle"
    assert ended.exit_code == 0


async def test_a_loss_that_is_no_number_and_gpus_that_are_held_idle_are_told(agent: AgentCase, tmp_path: Path):
    (tmp_path / "train.py").write_text(TRAINS)
    done = tmp_path / "done"
    await agent.fact(NodeJoined)
    await placed(agent, "python", f"{tmp_path}/train.py", "-", str(done), "nan")
    while not isinstance(diverged := await alarm(agent), LossDiverged):
        assert isinstance(diverged, GpuIdle | JobRecovered)  # a slow import of torch
    assert (diverged.loss_nonfinite, diverged.rank) == ("nan", 0) and diverged.in_a_row >= 5
    done.touch()
    while not isinstance(ended := await alarm(agent), JobExited):
        assert isinstance(ended, JobRecovered)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    gang = [TaskPlacement(node_id="n1", gpu_indices=[1], first_rank=0)]
    await give(agent.bus, 2, [JobPlaced(job_id="b", attempt=1, gang=gang, reason=WHY)])
    await agent.order(launch("b", "python", "-c", HOLDS, str(pipe), gpu_indices=[1]))
    idle = await alarm(agent)
    assert isinstance(idle, GpuIdle) and (idle.job_id, idle.gpus, idle.idle_s >= 3.0) == ("b", 1, True)
    await agent.order(StopTask(node_id="n1", job_id="b", attempt=1, grace_s=0.0, reason=WHY))
    assert isinstance(await alarm(agent), JobExited)
