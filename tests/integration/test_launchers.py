"""Commands of every kind on virtual GPUs: how many processes there are, and what is seen of each of them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch_agent.pages import pages

from libs.contracts.agent import (
    JobExited,
    JobRanksApart,
    JobResumed,
    JobStarted,
    JobSuspended,
    NodeErrorsLogged,
    NodeJoined,
)
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.kernel import ids
from libs.kernel.launchers import PER_GPU, PER_NODE
from libs.testing import quick_torch
from libs.testing.builders import launch, stop
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase, has_ended, has_state
from tests.unit.torch_agent.test_broken_code import nested

SCRIPT = str(Path(__file__).with_name("launched_script.py"))
STEPS = 6


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    async with AgentCase(tmp_path, environment=quick_torch.environment()) as case:
        await case.fact(NodeJoined)
        yield case
    assert nothing_left_of(tmp_path) == []


def batch_script(folder: Path, *lines: str) -> str:
    path = folder / "train.sh"
    path.write_text("\n".join(("#!/bin/bash", "#SBATCH --gpus 2", *lines, "")))
    return str(path)


async def places(agent: AgentCase, job_id: str, ranks: int) -> list[str]:
    """What the processes say of their place, when all is over and each rank has been seen once with all it did."""
    exited = await agent.fact(JobExited)
    folder = agent.task_folder(job_id)
    output = "".join(path.read_text() for path in sorted(folder.glob("rank-*.out")))
    errors = "".join(path.read_text() for path in sorted(folder.glob("rank-*.err")))
    assert (exited.exit_code, exited.outcome) == (0, "exited"), errors
    assert exited.minibatches_total == STEPS
    readings = pages(folder / "pages")
    assert [reading.rank for reading in readings] == list(range(ranks)), errors
    for reading in readings:
        assert reading.minibatches_total == STEPS and reading.minibatch_mean_s > 0
        assert reading.loss is not None and 0 <= reading.loss < 100
    return sorted(line.removeprefix("places ") for line in output.splitlines() if line.startswith("places"))


LAUNCHERS = [
    pytest.param(["torchrun", "--nproc_per_node=2", SCRIPT, "--ddp"], id="torchrun"),
    pytest.param(["torchrun", SCRIPT, "--ddp"], id="torchrun without a number"),
    pytest.param(["torchrun", "--standalone", "--nproc-per-node", "2", SCRIPT, "--ddp"], id="torchrun --standalone"),
    pytest.param(["torchrun", "--rdzv-backend=c10d", SCRIPT, "--ddp"], id="torchrun --rdzv-backend=c10d"),
    pytest.param(["python", "-m", "torch.distributed.run", SCRIPT, "--ddp"], id="torch.distributed.run"),
    pytest.param(["python", "-m", "torch.distributed.launch", SCRIPT, "--ddp"], id="torch.distributed.launch"),
    pytest.param(["/bin/sh", "-c", f"cd / && torchrun {SCRIPT} --ddp"], id="a line for the shell"),
    pytest.param(
        ["accelerate", "launch", SCRIPT, "--ddp"],
        id="accelerate launch",
        marks=pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed here"),
    ),
]


@pytest.mark.parametrize("command", LAUNCHERS)
async def test_a_launcher_is_started_once_and_its_ranks_are_seen(agent: AgentCase, command: list[str]):
    await agent.order(launch("a", *command, gpus=2, launcher=PER_NODE))
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=2) == ["0 2 0 - - -", "1 2 1 - - -"]
    assert len(list(agent.task_folder("a").glob("rank-*.out"))) == 1


async def test_ddp_as_plain_python_is_started_once_per_gpu(agent: AgentCase):
    torch_as_it_is = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    await agent.order(launch("a", "python", SCRIPT, "--ddp", gpus=2, env=torch_as_it_is))
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=2) == ["0 2 0 0 0 2", "1 2 1 1 1 2"]


TRAINERS = [
    pytest.param(
        name, id=name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed here")
    )
    for name in ("transformers", "lightning")
]
"""Frameworks with a loop of their own; their scripts meet torch as it is."""


def of_trainer(name: str) -> str:
    return str(Path(__file__).with_name("trainer_script.py" if name == "transformers" else "lightning_script.py"))


@pytest.fixture
def torch_as_it_is() -> dict[str, str]:
    return {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}


@pytest.mark.parametrize("name", TRAINERS)
async def test_the_loop_of_a_framework_is_seen_step_by_step(
    agent: AgentCase, name: str, torch_as_it_is: dict[str, str]
):
    await agent.order(launch("a", "python", of_trainer(name), env=torch_as_it_is))
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=1) == ["- - - 6"]


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("starter", ["torchrun", "python", "srun python"])
async def test_the_loop_of_a_framework_is_seen_on_each_rank(
    agent: AgentCase, name: str, starter: str, torch_as_it_is: dict[str, str]
):
    options = "--devices 2" if name == "lightning" else ""
    command = ["/bin/sh", "-c", f"{starter} {of_trainer(name)} {options}"]
    launcher = PER_GPU if starter == "python" else PER_NODE
    await agent.order(launch("a", *command, gpus=2, launcher=launcher, env=torch_as_it_is))
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=2) == ["0 2 0 6", "1 2 1 6"]


async def test_a_script_on_one_gpu_is_told_no_rank(agent: AgentCase):
    await agent.order(launch("a", "python", SCRIPT))
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=1) == ["- - - - - -"]


@pytest.mark.parametrize("options", ["", "-n 2", "--ntasks=2 --cpus-per-task 4", "--ntasks-per-node=2 -N1"])
async def test_srun_in_a_batch_script_starts_the_ranks(agent: AgentCase, tmp_path: Path, options: str):
    script = batch_script(tmp_path, "echo once", f"srun {options} python {SCRIPT} --ddp")
    await agent.order(launch("a", "/bin/bash", script, gpus=2, launcher=PER_NODE))
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=2) == ["0 2 0 0 0 2", "1 2 1 1 1 2"]
    [output] = agent.task_folder("a").glob("rank-*.out")
    assert output.read_text().count("once") == 1


async def test_srun_takes_the_number_of_ranks_from_the_directives(agent: AgentCase, tmp_path: Path):
    script = batch_script(tmp_path, f"srun python {SCRIPT}")
    order = launch("a", "/bin/bash", script, gpus=2, launcher=PER_NODE, env={"SLURM_NTASKS": "1"})
    await agent.order(order)
    await agent.fact(JobStarted)
    assert await places(agent, "a", ranks=1) == ["- - - 0 0 1"]


async def test_an_option_that_srun_does_not_know_is_named(agent: AgentCase, tmp_path: Path):
    script = batch_script(tmp_path, "srun --multi-prog conf.txt")
    await agent.order(launch("a", "/bin/bash", script, gpus=2, launcher=PER_NODE))
    exited = await agent.fact(JobStarted, JobExited)
    assert exited.exit_code == 2 and "srun: --multi-prog: expected -n" in exited.stderr_tail


async def test_a_torchrun_for_more_nodes_than_there_are_is_refused(agent: AgentCase):
    await agent.order(launch("a", "torchrun", "--nnodes=2", SCRIPT, gpus=2, launcher=PER_NODE))
    exited = await agent.fact(JobExited)
    assert exited.outcome == "launch_failed"
    assert exited.stderr_tail == "torchrun --nnodes=2, but the gang has 1 node; expected 1, or nothing"


async def running_pages(agent: AgentCase, job_id: str, ranks: int) -> list[int]:
    """The processes of the ranks, once all of them train."""
    folder = agent.task_folder(job_id) / "pages"
    while True:
        found = [reading.pid for reading in pages(folder) if reading.minibatches_total > 1]
        if len(found) == ranks:
            return found
        await agent.pause()


ENDLESS = ("--ddp", "--steps", "100000000")


@pytest.mark.parametrize("starter", ["torchrun", "srun python"])
async def test_ranks_of_a_launcher_are_parked_and_go_on(agent: AgentCase, starter: str):
    script = f"cd / && {starter} {SCRIPT} {' '.join(ENDLESS)}"
    await agent.order(launch("a", "/bin/sh", "-c", script, gpus=2, launcher=PER_NODE))
    await agent.fact(JobStarted)
    ranks = await running_pages(agent, "a", 2)
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    suspended = await agent.fact(JobSuspended)
    assert suspended.parked and suspended.minibatches_total > 1
    for pid in ranks:
        await has_state(pid, "T")
    await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1))
    await agent.fact(JobResumed)
    before = {reading.rank: reading.minibatches_total for reading in pages(agent.task_folder("a") / "pages")}
    while any(r.minibatches_total <= before[r.rank] for r in pages(agent.task_folder("a") / "pages")):
        await agent.pause()
    await agent.order(stop("a", grace_s=30.0))
    assert (await agent.fact(JobExited)).outcome == "stopped"
    for pid in ranks:
        has_ended(pid)


async def test_a_kill_reaches_ranks_in_process_groups_of_their_own(agent: AgentCase):
    await agent.order(launch("a", "torchrun", SCRIPT, *ENDLESS, gpus=2, launcher=PER_NODE))
    await agent.fact(JobStarted)
    ranks = await running_pages(agent, "a", 2)
    await agent.order(stop("a", grace_s=0.0))
    assert (await agent.fact(JobExited)).outcome == "stopped"
    for pid in ranks:
        has_ended(pid)


async def test_ranks_in_process_groups_of_their_own_do_not_outlive_their_shim(agent: AgentCase):
    await agent.order(launch("a", "torchrun", SCRIPT, *ENDLESS, gpus=2, launcher=PER_NODE))
    await agent.fact(JobStarted)
    ranks = await running_pages(agent, "a", 2)
    agent.kill_shim("a")
    assert (await agent.fact(JobExited)).outcome == "lost"
    for pid in ranks:
        has_ended(pid)


LEAVES = """
import os, signal, sys, time
def leave(*_):
    print("saved", os.environ["SLURM_PROCID"], flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
print("there", flush=True)
while True: signal.pause()
"""


async def test_ranks_of_a_batch_script_are_told_once_to_leave_and_have_the_time_for_it(
    agent: AgentCase, tmp_path: Path
):
    (tmp_path / "leaves.py").write_text(LEAVES)
    script = batch_script(tmp_path, f"srun {sys.executable} {tmp_path}/leaves.py")
    await agent.order(launch("a", "/bin/bash", script, gpus=2, launcher=PER_NODE))
    await agent.fact(JobStarted)
    output = agent.task_folder("a") / "rank-0.out"
    while output.read_text().count("there") < 2:
        await agent.pause()
    await agent.order(stop("a", grace_s=30.0))
    assert (await agent.fact(JobExited)).outcome == "stopped"
    assert sorted(output.read_text().splitlines()) == ["saved 0", "saved 1", "there", "there"]


async def test_ranks_that_never_meet_are_said(agent: AgentCase):
    await agent.order(launch("a", "python", SCRIPT, *ENDLESS[1:], gpus=2))
    apart = await agent.fact(JobStarted, JobRanksApart)
    assert apart.processes == 2 and apart.reason.message.startswith("2 processes train side by side without a process")
    await agent.order(stop("a", grace_s=0.0))
    await agent.fact(JobExited)


async def test_an_archive_of_nested_folders_ends_its_attempt_and_not_the_agent(agent: AgentCase):
    archive = nested(2000)
    code_id = ids.code_id(hashlib.sha256(archive).digest())
    cache = agent.folder / "n1" / "code"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / f"{code_id}.tar.gz").write_bytes(archive)
    await agent.order(launch("a", "true", code_id=code_id), launch("b", "true"))
    ended = await agent.fact(JobExited)
    assert (ended.job_id, ended.outcome) == ("a", "launch_failed")
    assert "it has 2000 folders in each other" in ended.stderr_tail
    assert (await agent.fact(JobStarted, JobExited)).job_id == "b"


async def test_a_launch_that_the_node_fails_is_not_the_jobs_fault(agent: AgentCase):
    (agent.folder / "n1" / "checkpoints").write_text("no folder")
    await agent.order(launch("a", "true"))
    ended, logged = await agent.all_of(JobExited, NodeErrorsLogged)
    assert ended.outcome == "node_failed" and "checkpoints" in ended.stderr_tail
    assert logged.errors == 1 and logged.last.startswith("a.1 cannot be launched: ")
    (agent.folder / "n1" / "checkpoints").unlink()


async def test_a_launch_that_hangs_is_ended_by_a_stop_and_says_what_it_was_doing(tmp_path: Path):
    asked: list[asyncio.StreamWriter] = []  # takes the question, and never answers
    listening = await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    async with AgentCase(tmp_path, environment={"SANJAYA_GATEWAY": f"http://{host}:{port}"}) as agent:
        await agent.fact(NodeJoined)
        await agent.order(launch("a", "true", code_id="c-" + "a" * 32))
        while not asked:
            await agent.pause()
        await agent.order(stop("a", grace_s=0.0), launch("b", "true"))
        ended = await agent.fact(JobExited)
        assert ended.outcome == "stopped"
        assert ended.stderr_tail == f"fetching and unpacking code c-{'a' * 32} from http://{host}:{port}"
        assert (await agent.fact(JobStarted, JobExited)).job_id == "b"
        for writer in asked:
            writer.close()
            await writer.wait_closed()  # the end of the agent is waited for without this loop
    listening.close()
