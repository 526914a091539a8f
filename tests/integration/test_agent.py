"""The agent as a process: real tasks, orders from the log, facts to the log, and deaths of everything."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch_agent.processes import lives

from libs.bus import codec
from libs.bus.port import Partition, Position
from libs.contracts.agent import (
    JobExited,
    JobLogged,
    JobResumed,
    JobStarted,
    JobSuspended,
    MetricsReported,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
)
from libs.contracts.base import Event, Topic
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.testing.builders import launch, stop
from libs.testing.leftovers import nothing_left_of
from tests.integration.agent_case import FACT_WITHIN_S, AgentCase, has_ended, has_state
from tests.integration.example_scripts import EXAMPLES


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentCase]:
    async with AgentCase(tmp_path) as case:
        joined = await case.fact(NodeJoined)
        assert (joined.incarnation, len(joined.gpus), joined.virtual) == (1, 4, True)
        yield case
    assert nothing_left_of(tmp_path) == []


async def test_ranks_get_the_environment_of_torchrun_and_their_output_is_logged(agent: AgentCase):
    script = "import os; print(*[os.environ[k] for k in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'SLURM_PROCID')])"
    await agent.order(launch("a", "python", "-c", script, gpus=2))
    exited = await agent.fact(JobStarted, JobExited)
    assert (exited.exit_code, exited.outcome) == (0, "exited")
    assert await logged(agent, "a") == {"0 2 0 0", "1 2 1 1"}


async def logged(agent: AgentCase, job_id: str) -> set[str]:
    reader = await agent.bus.reader(dict.fromkeys(await agent.bus.partitions(Topic.LOGS), 0))
    events = [codec.record(message).envelope.event for message in await reader.next_batch(100, FACT_WITHIN_S)]
    await reader.close()
    return {line.text for e in events if isinstance(e, JobLogged) and e.job_id == job_id for line in e.lines}


async def test_a_rank_that_fails_is_named_and_takes_the_others_along(agent: AgentCase):
    script = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('boom')\ntime.sleep(60)"
    await agent.order(launch("a", "python", "-c", script, gpus=2))
    exited = await agent.fact(JobStarted, JobExited)
    assert (exited.exit_code, exited.rank, exited.stderr_tail) == (1, 1, "boom\n")


async def test_what_cannot_be_started_is_said_so(agent: AgentCase):
    await agent.order(launch("a", "no-such-program"))
    exited = await agent.fact(JobExited)
    assert exited.outcome == "launch_failed" and "no-such-program" in exited.stderr_tail


async def test_the_time_limit_ends_a_task(agent: AgentCase):
    await agent.order(launch("a", "sleep", "60", time_limit_s=0.3))
    assert (await agent.fact(JobStarted, JobExited)).outcome == "time_limit"


async def test_a_task_that_ignores_the_polite_signal_is_killed(agent: AgentCase):
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    await agent.order(launch("a", "python", "-c", script))
    await agent.fact(JobStarted)
    assert await logged(agent, "a") == {"deaf"}
    await agent.order(stop("a", grace_s=0.3))
    exited = await agent.fact(JobExited)
    assert (exited.outcome, exited.signal) == ("stopped", signal.SIGKILL)


async def test_suspend_resume_and_stop_while_suspended(agent: AgentCase):
    await agent.order(launch("a", "sleep", "60"))
    pid = (await agent.fact(JobStarted)).pid
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await agent.fact(JobSuspended)
    await has_state(pid, "T")
    await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1))
    await agent.fact(JobResumed)
    await has_state(pid, "S")
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await agent.fact(JobSuspended)
    await agent.order(stop("a"))
    assert (await agent.fact(JobExited)).outcome == "stopped"


async def test_a_killed_agent_adopts_its_running_task(agent: AgentCase):
    go = agent.folder / "go"
    await agent.order(launch("a", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done; exit 3"))
    pid = (await agent.fact(JobStarted)).pid
    agent.kill()
    assert lives(pid)
    agent.start()
    joined = await agent.fact(NodeJoined)
    assert (joined.incarnation, [(t.job_id, t.attempt) for t in joined.tasks]) == (2, [("a", 1)])
    go.touch()
    assert (await agent.fact(JobExited)).exit_code == 3


async def test_what_ended_while_the_agent_was_away_is_reported(agent: AgentCase):
    await agent.order(launch("a", "sleep", "60"))
    pid = (await agent.fact(JobStarted)).pid
    agent.kill()
    os.kill(pid, signal.SIGSEGV)
    agent.start()
    exited = await agent.fact(NodeJoined, JobExited)
    assert (exited.outcome, exited.signal) == ("signalled", signal.SIGSEGV)


async def test_orders_given_while_the_agent_was_away_are_carried_out_once(agent: AgentCase):
    agent.kill()
    await agent.order(launch("a", "true"), launch("a", "true"))
    agent.start()
    await agent.fact(NodeJoined, JobStarted, JobExited)
    await agent.order(launch("b", "true"))
    assert (await agent.fact(JobStarted, JobExited)).job_id == "b"


@pytest.mark.parametrize("pause_s", [0.0, 0.03])
async def test_a_script_reports_the_last_of_each_second_and_the_last_of_all(pause_s: float, agent: AgentCase):
    script = f"""
import sys, time
from sanjaya_job import report
for step in range(1, 51):
    report(step, accuracy=step / 50)
    time.sleep({pause_s})
sys.exit("torch" in sys.modules)
"""
    await agent.order(launch("a", "python", "-c", script, gpus=2))  # of both ranks, rank 0 reports
    await agent.fact(JobStarted)
    reports, exited = await until(agent, JobExited)
    assert exited.exit_code == 0
    assert reports[-1] == MetricsReported(job_id="a", attempt=1, node_id="n1", step=50.0, values={"accuracy": 1.0})
    assert (agent.task_folder("a") / "reports.jsonl").read_text().count("\n") == 50
    times_s = await reported_at_s(agent)
    assert len(times_s) == len(reports)
    assert all(later - earlier >= 1.0 - 1e-5 for earlier, later in pairwise(times_s[:-1]))


async def reported_at_s(agent: AgentCase) -> list[float]:
    reader = await agent.bus.reader({Partition(Topic.CONTROL, 0): 0})
    envelopes = [codec.record(message).envelope for message in await reader.next_batch(100, 10.0)]
    await reader.close()
    return [envelope.time_s for envelope in envelopes if isinstance(envelope.event, MetricsReported)]


@pytest.mark.parametrize(("last_step", "told_then"), [(2, [MetricsReported]), (1, [])])
async def test_while_the_agent_is_away_no_report_is_lost_and_none_is_told_again(
    last_step: int, told_then: list[type[Event]], agent: AgentCase, tmp_path: Path
):
    script = """
import sys
from sanjaya_job import report
report(1, loss=1.0)
open(sys.argv[1]).read()
if sys.argv[2] == "2":
    report(2, loss=0.5)
"""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await agent.order(launch("a", "python", "-c", script, str(gate), str(last_step)))
    pid = (await agent.fact(JobStarted)).pid
    assert (await agent.fact(MetricsReported)).step == 1
    agent.kill()
    gate.write_text("go on")
    has_ended(pid)
    agent.start()
    await agent.fact(NodeJoined, *told_then, JobExited)


async def test_a_killed_shim_takes_its_task_along_and_that_is_said(agent: AgentCase):
    await agent.order(launch("a", "sleep", "60"))
    pid = (await agent.fact(JobStarted)).pid
    os.kill(json.loads((agent.task_folder("a") / "shim.json").read_text())["pid"], signal.SIGKILL)
    assert (await agent.fact(JobExited)).outcome == "lost"
    assert not lives(pid)


async def positions_are_lost(agent: AgentCase) -> None:
    """As a broker forgets them, of a group without members."""
    session = await agent.bus.open_session("agent/n1")
    orders = await agent.bus.partitions(Topic.ORDERS)
    await session.commit([], dict.fromkeys(orders, Position(0)))
    await session.close()


async def test_an_agent_that_has_lost_its_position_carries_out_no_order_again(agent: AgentCase):
    await agent.order(launch("a", "true"))
    await agent.fact(JobStarted, JobExited)
    agent.kill()
    await positions_are_lost(agent)
    await agent.order(launch("b", "true"))
    agent.start()
    assert (await agent.fact(NodeJoined)).tasks == []
    assert (await agent.fact(JobStarted, JobExited)).job_id == "b"


async def test_an_agent_refuses_a_journal_of_a_newer_format_and_its_tasks_go_on(agent: AgentCase):
    await agent.order(launch("a", "sleep", "60"))
    pid = (await agent.fact(JobStarted)).pid
    agent.kill()
    path = agent.folder / "n1" / "journal.db"
    journal = sqlite3.connect(path)
    journal.execute("PRAGMA user_version = 99")
    journal.execute("UPDATE notes SET value = 99 WHERE name = 'format'")
    journal.commit()
    journal.close()
    before = path.read_bytes()
    agent.start()
    assert agent.processes["n1"].wait(60) == 78
    assert f"{path}: a journal of format 99" in (agent.folder / "agent.log").read_text().splitlines()[-1]
    assert path.read_bytes() == before and lives(pid)
    shim_pid = json.loads((agent.task_folder("a") / "shim.json").read_text())["pid"]
    os.killpg(pid, signal.SIGKILL)
    has_ended(pid)
    has_ended(shim_pid)  # there is no agent that would wait for it


NESTED = b'{"of the task": ' + b"[" * 100_000
WRONG = [
    *(b"", b"[]", b'{"exit_code": 0', b'{"pid": 1, "ranks": {"0": 0}}', b'{"version": 99}', bytes(range(128, 256))),
    pytest.param(NESTED, id="nested deeper than a decoder goes"),
]
"""What may lie where a record of a task is expected."""


@pytest.mark.parametrize("content", WRONG)
async def test_a_result_that_is_none_ends_its_own_task_alone(agent: AgentCase, content: bytes):
    await agent.order(launch("b", "sleep", "60"), launch("a", "sleep", "60", gpu_indices=[1]))
    started = {fact.job_id: fact for fact in [await agent.fact(JobStarted), await agent.fact(JobStarted)]}
    result = agent.task_folder("a") / "exit.json"
    result.write_bytes(content)
    await agent.order(SuspendTask(node_id="n1", job_id="b", attempt=1))
    assert (await agent.fact(JobSuspended)).job_id == "b"  # the agent lives, and waits for what a's shim says
    os.kill(json.loads((agent.task_folder("a") / "shim.json").read_text())["pid"], signal.SIGKILL)
    exited = await agent.fact(JobExited)
    assert (exited.job_id, exited.outcome, exited.exit_code) == ("a", "lost", None)
    assert exited.stderr_tail.startswith(f"{result}: ")
    has_ended(started["a"].pid)
    await agent.order(stop("b", grace_s=0))
    assert (await agent.fact(JobExited)).job_id == "b"


@pytest.mark.parametrize("content", [*WRONG, None])
async def test_a_task_without_its_processes_on_record_is_still_stopped(agent: AgentCase, content: bytes | None):
    script = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(7)); print('up'); time.sleep(60)"
    await agent.order(launch("a", "python", "-c", script), launch("b", "sleep", "60", gpu_indices=[1]))
    await agent.fact(JobStarted, JobStarted)
    assert await logged(agent, "a") == {"up"}
    record = agent.task_folder("a") / "shim.json"
    record.unlink() if content is None else record.write_bytes(content)
    agent.kill()
    agent.start()
    assert len((await agent.fact(NodeJoined)).tasks) == 2
    await agent.order(stop("a"))
    exited = await agent.fact(JobExited)
    assert (exited.job_id, exited.outcome, exited.exit_code) == ("a", "stopped", 7)
    await agent.order(stop("b", grace_s=0))
    assert (await agent.fact(JobExited)).job_id == "b"


async def test_a_task_that_removes_its_folder_is_lost_and_the_others_go_on(agent: AgentCase):
    go = agent.folder / "go"
    script = f"""
import os, shutil, time
while not os.path.exists({str(go)!r}):
    time.sleep(0.01)
shutil.rmtree(os.path.dirname(os.environ["SANJAYA_REPORTS"]))
"""
    await agent.order(launch("b", "sleep", "60"), launch("a", "python", "-c", script, gpu_indices=[1]))
    await agent.fact(JobStarted, JobStarted)
    go.touch()
    exited = await agent.fact(JobExited)
    assert (exited.job_id, exited.outcome) == ("a", "lost")
    await agent.order(stop("b", grace_s=0))
    assert (await agent.fact(JobExited)).job_id == "b"


async def test_what_a_task_leaves_in_its_folder_disturbs_the_agent_in_nothing(agent: AgentCase):
    script = """
import os, pathlib
pages = pathlib.Path(os.environ["SANJAYA_HARNESS_DIR"])
(pages / "state.rank-0").mkdir()
(pages / "control").unlink()
(pages / "control").mkdir()
(pages / "rank-0-1.page").mkdir()
os.mkfifo(pages / "rank-0-2.page")
os.mkfifo(pages.parent / "rank-9.out")
(pages.parent / "rank-x.out").write_text("no rank")
(pages.parent / "fetched-0.json").write_text("nothing")
pathlib.Path(os.environ["SANJAYA_REPORTS"]).mkdir()
print("done", flush=True)
import time
time.sleep(60)
"""
    await agent.order(launch("a", "python", "-c", script))
    await agent.fact(JobStarted)
    assert await logged(agent, "a") == {"done"}
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    assert not (await agent.fact(JobSuspended)).parked
    await agent.order(stop("a"))
    assert (await agent.fact(JobExited)).outcome == "stopped"
    await agent.order(launch("b", "true"))
    assert (await agent.fact(JobStarted, JobExited)).exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_that_is_stopped_leaves_its_tasks_to_the_next_one(tmp_path: Path, number: int):
    go = tmp_path / "go"
    async with AgentCase(tmp_path, on_exit="keep") as agent:
        await agent.fact(NodeJoined)
        await agent.order(launch("a", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done; echo done"))
        pid = (await agent.fact(JobStarted)).pid
        agent.processes["n1"].send_signal(number)
        assert agent.processes["n1"].wait(30) == 0 and lives(pid)
        go.touch()
        has_ended(pid)
        agent.start()
        assert len((await agent.fact(NodeJoined)).tasks) == 1
        assert (await agent.fact(JobExited)).exit_code == 0
        assert await logged(agent, "a") == {"done"}


async def test_what_an_agent_has_left_is_listed_and_ended_and_its_job_has_not_failed(tmp_path: Path):
    async with AgentCase(tmp_path, on_exit="keep") as agent:
        await agent.fact(NodeJoined)
        await agent.order(launch("a", "sleep", "600", gpus=2))
        pid = (await agent.fact(JobStarted)).pid
        command = [sys.executable, "-m", "torch_agent.left", str(tmp_path / "n1")]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 78 and "another agent works in" in refused.stderr
        agent.processes["n1"].terminate()
        assert agent.processes["n1"].wait(30) == 0
        for more in ([], ["--end"]):
            [task] = json.loads(subprocess.run([*command, *more], stdout=subprocess.PIPE, check=True).stdout)
            assert (task["job_id"], task["gpus"], task["status"], pid in task["pids"]) == ("a", [0, 1], "running", True)
        assert not any(lives(each) for each in task["pids"])
        assert json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) == []
        agent.start()
        assert (await agent.fact(NodeJoined, JobExited)).outcome == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_orderly_exit_ends_the_tasks_and_says_goodbye(agent: AgentCase, number: int):
    await agent.order(launch("a", "sleep", "60"))
    await agent.fact(JobStarted)
    agent.processes["n1"].send_signal(number)
    exited = await agent.fact(NodeLeaving, JobExited)  # placement reads them in this order, however late it does
    assert exited.outcome == "stopped"
    await agent.fact(NodeLeft)
    assert agent.processes["n1"].wait(30) == 0


async def test_an_agent_that_is_killed_while_it_leaves_has_said_so_before_its_tasks_end(agent: AgentCase):
    go = agent.folder / "go"
    script = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.01)
raise SystemExit(1)
"""
    await agent.order(launch("a", "python", "-c", script))
    await agent.fact(JobStarted)
    assert await logged(agent, "a") == {"up"}
    agent.processes["n1"].terminate()
    await agent.fact(NodeLeaving)
    agent.kill()
    agent.start()
    assert len((await agent.fact(NodeJoined)).tasks) == 1
    go.touch()
    assert (await agent.fact(JobExited)).outcome == "stopped"


async def test_a_second_agent_on_the_same_directory_is_refused(agent: AgentCase):
    first = agent.processes["n1"]
    agent.start()
    assert agent.processes["n1"].wait(30) == 2
    assert "another agent" in (agent.folder / "agent.log").read_text()
    agent.processes["n1"] = first


async def test_the_example_for_sweeps_reports_its_epochs_also_after_a_suspension(agent: AgentCase):
    command = ["python", str(EXAMPLES / "digits_sweep.py"), "--epochs", "4", "--pause", "0.01"]
    await agent.order(launch("a", *command, env={"SANJAYA_TRIAL_PARAMS": '{"lr": 0.05, "hidden": 32}'}))
    first = await agent.fact(JobStarted, MetricsReported)
    assert sorted(first.values) == ["accuracy", "loss"]
    await agent.order(SuspendTask(node_id="n1", job_id="a", attempt=1))
    await until(agent, JobSuspended)
    await agent.order(ResumeTask(node_id="n1", job_id="a", attempt=1))
    await until(agent, JobResumed)
    reports, exited = await until(agent, JobExited)
    assert exited.exit_code == 0
    assert reports[-1].step == 4 and reports[-1].values["accuracy"] > 0.9


async def until(agent: AgentCase, last: type[Event]) -> tuple[list[MetricsReported], Any]:
    """The reports before a fact of this type, and that fact."""
    reports: list[MetricsReported] = []
    while isinstance(fact := await agent.next(), MetricsReported):
        reports.append(fact)
    assert type(fact) is last, fact
    return reports, fact
