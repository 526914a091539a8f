"""Environments of jobs, with a real agent and real processes: setup, interpreters, image runners, data."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.agent import JobExited, JobSettingUp, JobStarted, NodeJoined
from libs.contracts.placement import StopTask
from libs.contracts.reasons import Reason
from libs.testing import quick_torch
from libs.testing.builders import launch
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import AgentCase
from tests.integration.test_launchers import SCRIPT, STEPS

PODMAN = f"""#!{sys.executable} -IS
# Stands for podman: notes its command line, and runs the command with nothing but the variables that it is given.
import os, sys

with open(__file__ + ".line", "w") as file:
    file.write("\\n".join(sys.argv))
words = sys.argv[2:]
options = [words.pop(0) for _ in range(next(i for i, word in enumerate(words) if not word.startswith("--")))]
names = [option.removeprefix("--env=") for option in options if option.startswith("--env=")]
[workdir] = [option.removeprefix("--workdir=") for option in options if option.startswith("--workdir=")]
os.chdir(workdir)
os.execvpe(words[1], words[1:], {{"PATH": "/usr/bin:/bin", **{{name: os.environ[name] for name in names}}}})
"""


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder in which setups leave marks: how often each ran."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    programs, data = tmp_path / "programs", tmp_path / "imagenet"
    programs.mkdir()
    data.mkdir()
    (data / "labels").write_text("cat\n")
    (programs / "podman").write_text(PODMAN)
    (programs / "podman").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SANJAYA_DATA": f"imagenet={data}:ro"}
    async with AgentCase(tmp_path, environment=environment) as case:
        joined = await case.fact(NodeJoined)
        assert (joined.features, joined.image_runner) == (["data:imagenet", "images"], "podman")
        yield case
    assert nothing_left_of(tmp_path) == []


def output(agent: AgentCase, job_id: str, stream: str = "out") -> str:
    return "".join(path.read_text() for path in sorted(agent.task_folder(job_id).glob(f"rank-*.{stream}")))


async def ends_well(agent: AgentCase, job_id: str) -> str:
    exited = await agent.fact(JobExited)
    assert (exited.job_id, exited.exit_code, exited.outcome) == (job_id, 0, "exited"), output(agent, job_id, "err")
    return output(agent, job_id)


def setup_of(marks: Path, package: str = "dear") -> str:
    """A setup that installs a package, as pip would, and leaves a mark."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return f'echo "preparing"; echo x >> {marks}/{package}; touch "$(python -c "{where}")/{package}.py"'


async def test_a_setup_runs_once_for_two_jobs_and_again_for_other_content(agent: AgentCase, marks: Path):
    command = ("python", "-c", "import dear, msgspec, sys; print(sys.prefix)")
    first = launch("a", *command, setup=setup_of(marks), working_dir=str(marks))
    await agent.order(first)
    said = await agent.fact(JobSettingUp)
    assert said.reason.message.startswith("setting up: echo") and said.limit_s > 0
    await agent.fact(JobStarted)
    lines = (await ends_well(agent, "a")).splitlines()
    assert "[setup] preparing" in lines
    assert lines[-1].startswith(str(agent.folder / "n1" / "setups" / "s-")), "the environment is active"
    await agent.order(launch("b", *command, setup=setup_of(marks), working_dir=str(marks)))
    await agent.fact(JobStarted)
    assert (await ends_well(agent, "b")).splitlines()[-1] == lines[-1]
    assert (marks / "dear").read_text() == "x\n", "it ran once"
    await agent.order(launch("c", *command, setup=setup_of(marks), working_dir=str(agent.folder)))
    await agent.fact(JobSettingUp, JobStarted)
    assert (await ends_well(agent, "c")).splitlines()[-1] != lines[-1]
    assert (marks / "dear").read_text() == "x\nx\n", "other content has another environment"


async def test_two_jobs_that_need_the_same_at_once_wait_for_one_setup(agent: AgentCase, marks: Path):
    orders = [
        launch(job_id, "python", "-c", "import dear", setup=setup_of(marks), gpu_indices=[index])
        for index, job_id in enumerate("ab")
    ]
    await agent.order(*orders)
    ended = [fact for _ in range(6) if isinstance(fact := await agent.next(), JobExited)]
    assert [(fact.exit_code, fact.outcome) for fact in ended] == [(0, "exited")] * 2
    assert (marks / "dear").read_text() == "x\n"


async def test_a_setup_that_fails_ends_the_attempt_with_its_reason(agent: AgentCase, marks: Path):
    await agent.order(launch("a", "python", "-c", "pass", setup="echo no such package >&2; exit 3"))
    await agent.fact(JobSettingUp)
    exited = await agent.fact(JobExited)
    assert (exited.outcome, exited.exit_code) == ("setup_failed", None)
    assert exited.stderr_tail.splitlines()[-1] == "setup ended with exit code 3: no such package"
    assert "[setup] no such package" in output(agent, "a")
    await agent.order(launch("b", "python", "-c", "pass", setup="echo no such package >&2; exit 3"))
    await agent.fact(JobSettingUp, JobExited)


async def test_a_setup_that_was_killed_in_the_middle_is_made_anew(agent: AgentCase, marks: Path):
    """The agent is killed while the setup waits for the mark `go`, and has installed half of it."""
    waits = f"while [ ! -e {marks}/go ]; do sleep 0.05; done"
    setup = f"echo x >> {marks}/begun; {waits}; {setup_of(marks)}"
    await agent.order(launch("a", "python", "-c", "import dear", setup=setup))
    await agent.fact(JobSettingUp)
    while not (marks / "begun").exists():
        await agent.pause()
    agent.kill()
    (marks / "go").touch()
    agent.start()
    facts = [await agent.next() for _ in range(3)]
    assert [type(fact) for fact in facts] == [NodeJoined, JobStarted, JobExited], "it was said before"
    assert facts[-1].exit_code == 0, output(agent, "a", "err")
    assert (marks / "begun").read_text() == "x\nx\n"


async def test_a_job_that_is_stopped_leaves_no_process_of_its_setup(agent: AgentCase, marks: Path):
    setup = f"echo $$ > {marks}/shell; sleep 1000 & echo $! > {marks}/sleeper; wait"
    await agent.order(launch("a", "python", "-c", "pass", setup=setup))
    await agent.fact(JobSettingUp)
    while not (marks / "sleeper").exists() or not (marks / "sleeper").read_text():
        await agent.pause()
    reason = Reason(code="Cancelled", message="a user wants it")
    await agent.order(StopTask(node_id="n1", job_id="a", attempt=1, grace_s=0.0, reason=reason))
    exited = await agent.fact(JobExited)
    assert exited.outcome == "stopped" and exited.stderr_tail.startswith("setting up: ")
    for name in ("shell", "sleeper"):
        while Path(f"/proc/{(marks / name).read_text().strip()}").exists():
            await agent.pause()


async def test_a_virtual_environment_and_an_interpreter_are_those_of_the_task(agent: AgentCase, tmp_path: Path):
    making = await asyncio.create_subprocess_exec(
        "/usr/bin/python3", "-m", "venv", "--without-pip", str(tmp_path / "v")
    )
    assert await making.wait() == 0
    shows = "import os, sys; print(sys.prefix, os.environ.get('VIRTUAL_ENV'), 'torch' in sys.modules)"
    await agent.order(launch("a", "python", "-c", shows, venv=str(tmp_path / "v")))
    await agent.fact(JobStarted)
    assert await ends_well(agent, "a") == f"{tmp_path / 'v'} {tmp_path / 'v'} False\n"
    inside = str(tmp_path / "v" / "bin" / "python")
    await agent.order(launch("b", "python3", "-c", "import sys; print(sys.prefix)", python=inside))
    await agent.fact(JobStarted)
    assert await ends_well(agent, "b") == f"{tmp_path / 'v'}\n"
    assert output(agent, "b", "err") == "", "the harness finds no torch, and says nothing"
    await agent.order(launch("c", "python", "-c", "pass", venv=str(tmp_path / "w")))
    exited = await agent.fact(JobExited)
    assert exited.outcome == "launch_failed"
    assert "no virtual environment at" in exited.stderr_tail and str(tmp_path / "v") in exited.stderr_tail


async def test_a_job_with_an_image_runs_in_the_nodes_runner(agent: AgentCase, tmp_path: Path):
    shows = "import os; print(os.getcwd(), os.environ['SANJAYA_DATA_IMAGENET'], os.environ['MINE'], len(os.environ))"
    order = launch(
        "a", sys.executable, "-c", shows, image="ubuntu:24.04", mounts={"imagenet": "/data"}, env={"MINE": "a b"}
    )
    await agent.order(order)
    await agent.fact(JobStarted)
    work = agent.task_folder("a") / "work"
    assert (await ends_well(agent, "a")).startswith(f"{work} /data a b ")
    line = (tmp_path / "programs" / "podman.line").read_text().splitlines()
    assert f"--volume={tmp_path / 'imagenet'}:/data:ro" in line and "--env=MINE" in line
    assert "a b" not in " ".join(line), "values stand on no command line"


async def test_data_is_found_by_its_name(agent: AgentCase, tmp_path: Path):
    await agent.order(launch("a", "/bin/sh", "-c", 'cat "$SANJAYA_DATA_IMAGENET/labels"', mounts={"imagenet": ""}))
    await agent.fact(JobStarted)
    assert await ends_well(agent, "a") == "cat\n"
    await agent.order(launch("b", "true", mounts={"coco": ""}))
    exited = await agent.fact(JobExited)
    assert (exited.outcome, exited.stderr_tail) == ("launch_failed", "no data coco on this node; it has imagenet")


@pytest.mark.parametrize("named", ["python", "setup", "image"])
async def test_mini_batches_are_counted_in_every_environment(agent: AgentCase, named: str):
    what = {"python": sys.executable, "setup": "true", "image": "ubuntu:24.04"}[named]
    python = sys.executable if named == "image" else "python"
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **quick_torch.environment()}
    await agent.order(launch("a", python, str(SCRIPT), env=env, **{named: what}))
    exited = None
    while not isinstance(exited, JobExited):
        exited = await agent.next()
        assert exited is not None
    assert (exited.exit_code, exited.minibatches_total) == (0, STEPS), output(agent, "a", "err")
