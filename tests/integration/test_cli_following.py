"""Commands that stay with a job: while the gateway goes, while they are interrupted, when time runs out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.testing.leftovers import nothing_left_of

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
WAITS_FOR = "until [ -e {} ]; do sleep 0.05; done"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("following")
    plan = CellPlan(state_dir=folder, agents=1, gpus_per_agent=2, gateway_port=free_port())
    with Cell(plan) as running:
        yield running
    assert nothing_left_of(folder) == []


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is submitted uploads the current directory."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


def started(cell: Cell, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SANJAYA_GATEWAY": cell.plan.gateway_url}
    pipe = subprocess.PIPE
    return subprocess.Popen([SANJAYA, *arguments], env=environment, stdout=pipe, stderr=pipe, text=True)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def sanjaya(cell: Cell, *arguments: str) -> tuple[int, str, str]:
    return finished(started(cell, *arguments))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_run_survives_the_gateway(cell: Cell, tmp_path: Path):
    go = tmp_path / "go"
    script = f"echo one; {WAITS_FOR.format(go)}; echo two; exit 5"
    running = started(cell, "run", "-n", "surviving", "--", "sh", "-c", script)
    assert first_line(running) == "one\n"
    cell.kill("gateway")
    go.touch()
    code, out, err = finished(running)
    assert (code, out) == (5, "two\n"), err


def test_followed_logs_and_events_have_no_gap_and_no_repetition(cell: Cell, tmp_path: Path):
    go = tmp_path / "go"
    with Client(cell.plan.gateway_url) as client:
        script = f"for i in 1 2 3; do echo $i; done; {WAITS_FOR.format(go)}; for i in 4 5 6; do echo $i; done"
        job_id = client.submit({"command": ["sh", "-c", script], "name": "gapless"})["id"]
        events = started(cell, "events", "-f", "--job", "gapless", "--from-offset", "0", "--json")
        logs = started(cell, "logs", "-f", "gapless", "--exit-code")
        assert [first_line(logs) for _ in range(3)] == ["1\n", "2\n", "3\n"]
        assert json.loads(first_line(events))["type"] == "job.arrived.v1"
        cell.kill("gateway")
        go.touch()
        assert finished(logs)[:2] == (0, "4\n5\n6\n")
        seen = [json.loads(first_line(events))]
        while seen[-1]["type"] != "job.succeeded.v1":
            seen.append(json.loads(first_line(events)))
        events.send_signal(signal.SIGINT)
        assert finished(events)[0] == 130
        whole = list(client.events(job=[job_id]))
    assert [event["offset"] for event in seen] == [event["offset"] for event in whole][1 : len(seen) + 1]


def test_time_runs_out_and_the_job_goes_on(cell: Cell):
    code, _, err = sanjaya(cell, "run", "-n", "long", "--timeout", "1s", "--", "sleep", "100")
    assert code == 124 and "try: sanjaya why" in err
    assert sanjaya(cell, "wait", "long", "--timeout", "0.1")[0] == 124
    assert sanjaya(cell, "cancel", "long", "no-such-job", "--grace", "1s")[0] == 3
    assert sanjaya(cell, "wait", "long")[0] == 143
    assert sanjaya(cell, "cancel", "long")[0] == 1  # it has ended
    code, out, _ = sanjaya(cell, "wait", "long", "--json")
    assert code == 143 and json.loads(out)["state"] == "CANCELLED"


def test_interrupting_run_leaves_the_job(cell: Cell):
    running = started(cell, "run", "-n", "left", "--", "sh", "-c", "echo here; sleep 100")
    assert first_line(running) == "here\n"
    running.send_signal(signal.SIGINT)
    assert finished(running)[0] == 130
    assert json.loads(sanjaya(cell, "show", "left", "--json")[1])["state"] == "RUNNING"
    assert sanjaya(cell, "cancel", "last", "--grace", "1s")[0] == 0
    assert sanjaya(cell, "wait", "last", "--exit-code")[0] == 143


def test_separators_inside_a_line_stay_inside(cell: Cell):
    text = "a\u2028b\u0085c"
    job = ["run", "-n", "odd", "--env", f"TEXT={text}", "--", sys.executable, "-c"]
    program = "import os, sys; sys.stdout.buffer.write(os.environ['TEXT'].encode() + b'\\n')"
    assert sanjaya(cell, *job, program)[:2] == (0, f"{text}\n")
    assert sanjaya(cell, "logs", "odd")[1] == f"{text}\n"
    assert sanjaya(cell, "replay", "--verify")[0] == 0


def test_waiting_says_for_what(cell: Cell):
    first = sanjaya(cell, "submit", "--gpus", "2", "--", "sleep", "100")[1].strip()
    waiting = started(cell, "run", "--gpus", "2", "-n", "waiting", "--", "true")
    assert waiting.stderr is not None
    assert any("needs 2 GPUs; 0 are free" in line for line in waiting.stderr)
    assert sanjaya(cell, "cancel", first, "--grace", "1s")[0] == 0
    assert finished(waiting)[0] == 0


def test_watching_in_a_pipe(cell: Cell):
    watching = started(cell, "jobs", "-w", "--no-headers", "-l", "watch=1")
    job = sanjaya(cell, "submit", "--label", "watch=1", "--", "true")[1].strip()
    line = first_line(watching)
    while "SUCCEEDED" not in line:
        assert line.startswith(job)
        line = first_line(watching)
    watching.send_signal(signal.SIGINT)
    assert finished(watching)[0] == 130


def test_the_doctor_sees_what_is_gone(cell: Cell):
    code, out, _ = sanjaya(cell, "doctor")
    assert code == 0, out
    assert all(f"ok   {name}" in out for name in ("gateway", "read models", "placement", "quota", "conservation"))
    pids = cell.pids()
    os.kill(pids["quota"], signal.SIGSTOP)
    try:
        assert sanjaya(cell, "submit", "--", "true")[0] == 0
        code, out, _ = sanjaya(cell, "doctor")
        assert code == 1 and "BAD  quota" in out and "standstill" in out
    finally:
        os.kill(pids["quota"], signal.SIGCONT)
    assert sanjaya(cell, "wait", "last")[0] == 0


def test_a_job_in_words(cell: Cell):
    job = sanjaya(cell, "submit", "-n", "told", "-l", "kind=told", "--", "sh", "-c", "exit 9")[1].strip()
    assert sanjaya(cell, "wait", job)[0] == 1
    text = sanjaya(cell, "show", "told")[1]
    assert f"{job}  told" in text and "FAILED" in text and "code 9" in text and "kind=told" in text
    assert "attempt 1" in text
    assert "wide" not in text and "environment" not in text
    assert "name: told" in sanjaya(cell, "show", "told", "-o", "yaml")[1]
    verdict = sanjaya(cell, "submit", "--gpus", "99", "--dry-run", "--", "true")
    assert verdict[0] == 1 and verdict[1].startswith("rejected: ")
    # The first question has the states read that the answer follows from; that can take longer than it is waited for.
    while "not known now" in (dry := sanjaya(cell, "submit", "--dry-run", "--", "true"))[1]:
        assert dry[0] == 0
    assert dry[0] == 0 and dry[1].startswith("starts: ") and "\nexpected to start " in dry[1], dry
