"""Into running jobs: `exec`, `shell` and `forward` through a real gateway and a real agent."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest
from torch_agent.processes import lives
from websockets.asyncio.client import connect

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.gateway import JobSessionClosed, JobSessionOpened
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.patience import PATIENT
from tests.e2e.test_rounds import wait_until
from tests.e2e.window import Window

pytestmark = pytest.mark.e2e

SANJAYA = (sys.executable, "-m", "libs.cli.main")
ENDED_WITH_THE_JOB = "the job's processes on this node (have ended|are being stopped)"
SERVER = """
import asyncio, sys
from websockets.asyncio.server import serve

async def page(reader, writer):  # answers once it has heard everything: the other side has to say that it is done
    said = await reader.read()
    writer.write(b"%d bytes heard" % len(said))
    writer.close()

async def echo(socket):
    async for message in socket:
        await socket.send(message)

async def main():
    await asyncio.start_server(page, "127.0.0.1", int(sys.argv[2]))
    async with serve(echo, "127.0.0.1", int(sys.argv[1])):
        print("listening", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Lab:
    """A cell, and jobs on it."""

    def __init__(self, cell: Cell, client: Client, folder: Path) -> None:
        self.cell, self.client, self.folder = cell, client, folder

    def runs(self, name: str, *command: str, gpus: int = 1) -> str:
        """Submit a job and wait until it runs."""
        body = {"name": name, "gpus": gpus, "command": list(command or ("sleep", "100000"))}
        job = str(self.client.submit(body)["id"])
        wait_until(lambda: self.client.job(job)["state"] == "RUNNING")
        return job

    def command(self, *words: str) -> list[str]:
        return [*SANJAYA, *words]

    @property
    def environment(self) -> dict[str, str]:
        return {"SANJAYA_GATEWAY": self.cell.plan.gateway_url}

    def done(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """A command to its end: exit code, output, errors."""
        found = subprocess.run(
            self.command(*words), input=stdin, capture_output=True, env={**os.environ, **self.environment}
        )
        return found.returncode, found.stdout.decode(), found.stderr.decode()

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            self.command(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.environment},
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def window(self, *words: str) -> Window:
        return Window(self.command(*words), self.environment, rows=30, columns=90)

    def sessions(self, job: str) -> list[dict[str, object]]:
        """What is on the log of sessions in it."""
        events = list(self.client.events(job=job))
        return [event for event in events if event["type"].startswith("job.session_")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("inside")
    plan = CellPlan(state_dir=folder / "cell", gpus_per_agent=32, gateway_port=free_port(), settings=PATIENT)
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        lab = Lab(cell, client, folder)
        yield lab
        for job in client.jobs():
            if job["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED"):
                client.cancel(job["id"], grace_s=0)
        wait_until(lambda: all(job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED") for job in client.jobs()))
        log = folder / "log.jsonl"
        log.write_bytes(b"".join(client.export()))
    checked(log)
    assert nothing_left_of(folder) == []


def first_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode().strip()


def test_a_command_runs_beside_the_jobs_own(lab: Lab) -> None:
    job = lab.runs("beside", gpus=2)
    code, out, err = lab.done(
        "exec", "beside", "--", "sh", "-c", "pwd; echo oh no >&2; cat; exit 7", stdin=b"in" * 500_000
    )
    folder, _, read = out.partition("\n")
    assert (code, err, read) == (7, "oh no\n", "in" * 500_000)
    assert folder == lab.client.job(job)["folder"]
    shown = "import os, sys; print(os.environ['SANJAYA_RANK'], 'RANK' in os.environ, 'sanjaya_harness' in sys.modules)"
    assert lab.done("exec", "beside", "--rank", "1", "--", "python", "-c", shown) == (0, "1 False False\n", "")
    assert lab.done("exec", "beside", "--", "sh", "-c", "kill -9 $$")[0] == 137
    code, out, err = lab.done("exec", "beside", "--", "no-such-program")
    assert code == 127 and "cannot start 'no-such-program' in" in err


def test_each_session_is_on_the_log(lab: Lab) -> None:
    job = lab.runs("audited")
    lab.done("exec", job, "--", "sh", "-c", "exit 3")
    wait_until(lambda: len(lab.sessions(job)) == 2)
    opened, closed = lab.sessions(job)
    assert (opened["type"], closed["type"]) == (JobSessionOpened.wire_type, JobSessionClosed.wire_type)
    said, ended = opened["data"], closed["data"]
    assert (said["opened_by"], said["kind"], said["command"]) == ("anonymous", "exec", ["sh", "-c", "exit 3"])
    assert (ended["session_id"], ended["exit_code"], ended["note"]) == (said["session_id"], 3, "")
    story = lab.done("story", job)[1]
    assert "anonymous opens a command in rank 0 on n1: sh -c 'exit 3'" in story and "is over (exit code 3)" in story


def test_jobs_that_do_not_run_are_refused(lab: Lab) -> None:
    job = lab.runs("over")
    lab.client.cancel(job)
    wait_until(lambda: lab.client.job(job)["state"] == "CANCELLED")
    for words in (("exec", job, "--", "id"), ("forward", job, "80:0")):
        code, _, err = lab.done(*words)
        assert code == 1 and "does not run: it is CANCELLED" in err
    code, _, err = lab.done("exec", "no-such-job", "--", "id")
    assert code == 3 and 'there is no job "no-such-job"' in err
    assert lab.sessions(job) == []


def test_ctrl_c_is_passed_on(lab: Lab) -> None:
    job = lab.runs("interrupted")
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    with lab.running("exec", job, "--", "sh", "-c", script) as process:
        assert first_line(process.stdout) == "ready"
        process.send_signal(signal.SIGINT)
        assert first_line(process.stdout) == "caught"
        assert process.wait() == 5


@pytest.mark.parametrize("end", ["killed client", "terminated client", "end of the job", "end of the command"])
def test_no_process_outlives_its_session(lab: Lab, end: str) -> None:
    job = lab.runs(end.replace(" ", "-"))
    stays = "" if end == "end of the command" else "; wait"
    script = f"trap '' HUP; setsid nohup sleep 99999 & echo $!; env -i setsid sh -c 'sleep 99998 & echo $!'{stays}"
    with lab.running("exec", job, "--", "bash", "-c", script) as process:
        pids = [int(first_line(process.stdout)) for _ in range(2)]
        if end == "killed client":
            process.kill()
        elif end == "terminated client":
            process.terminate()
            assert process.wait() == 143
        elif end == "end of the job":
            lab.client.cancel(job, grace_s=0)
            assert process.wait() != 0
            assert re.search(ENDED_WITH_THE_JOB, process.communicate()[1].decode())
        else:
            assert process.wait() == 0
        wait_until(lambda: not any(lives(pid) for pid in pids))


def test_no_process_outlives_the_agent(lab: Lab) -> None:
    job = lab.runs("without-agent")
    with lab.running("exec", job, "--", "sh", "-c", "echo $$; setsid sleep 99999") as process:
        pid = int(first_line(process.stdout))
        lab.cell.kill("agent-n1")
        assert process.wait() == 1
        assert b"the connection to the node was cut" in process.communicate()[1]
        wait_until(lambda: not lives(pid))
    wait_until(lambda: lab.done("exec", job, "--", "true")[0] == 0)
    assert lab.client.job(job)["attempt"] == 1, "the job itself has not noticed"


def test_a_session_stands_still_while_its_job_is_suspended(lab: Lab) -> None:
    job = lab.runs("still")
    with lab.running("exec", job, "--", "sh", "-c", "echo $$; read line; echo $line") as process:
        pid = int(first_line(process.stdout))
        lab.client.pause(job)
        assert first_line(process.stderr) == f"{job} is suspended, and this session with it"
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        wait_until(lambda: lab.client.job(job)["state"] == "SUSPENDED")
        code, _, err = lab.done("exec", job, "--", "true")
        assert code == 1 and "does not run: it is SUSPENDED" in err
        lab.client.resume(job)
        assert first_line(process.stderr) == f"{job} goes on"
        assert process.communicate(b"went on\n")[0] == b"went on\n"


PROMPT = r"bash[^\r\n]*[#$] "
"""Only behind it is typed: what comes while a shell changes its terminal's modes may be lost, or end it."""


def test_a_terminal_with_its_keys_sizes_and_title(lab: Lab) -> None:
    job = lab.runs("terminal")
    with lab.window("shell", job, "--", "bash", "--norc") as window:
        window.shows(rf"\x1b\]2;terminal \({job}\) on n1\x07")
        window.shows(PROMPT)
        window.type("stty size; echo $TERM; tty >/dev/null && echo is a tty\r")
        window.shows(r"30 90\r\nxterm-256color\r\nis a tty")
        window.shows(PROMPT)
        window.resize(40, 120)
        window.type("trap 'stty size' WINCH; sleep 1; stty size\r")
        window.shows(r"40 120")
        window.shows(PROMPT)
        window.type("sh -c \"echo as''leep; exec sleep 99999\"\r")
        window.shows("asleep")  # said by what the key shall end: the shell itself does not end a command for the key
        window.type("\x03")
        window.shows(r"\^C")
        window.shows(PROMPT)
        window.type("echo code $?\r")
        window.shows("code 130")
        window.shows(PROMPT)
        window.type("printf '\\033]2;own title\\a'; exit 9\r")
        window.shows("\x1b\\]2;own title\x07")
        assert window.ends() == 9
        assert window.settings() == window.settings_before
        assert b"\x1b[23;2t" in window.shown


@pytest.mark.parametrize("end", ["the client", "the job"])
def test_the_users_terminal_is_restored_however_a_shell_ends(lab: Lab, end: str) -> None:
    job = lab.runs(end.replace(" ", "-"))
    with lab.window("shell", job, "--", "sh") as window:
        window.type("echo $((40 + 2))\r")
        window.shows("42")
        assert window.settings() != window.settings_before
        if end == "the client":
            window.process.terminate()
            assert window.ends() == 143
        else:
            lab.client.cancel(job, grace_s=0)
            window.shows(ENDED_WITH_THE_JOB)
            assert window.ends() != 0
        assert window.settings() == window.settings_before


def test_the_users_terminal_is_restored_when_the_connection_is_cut(lab: Lab) -> None:
    job = lab.runs("cut")
    with lab.window("shell", job, "--", "sh") as window:
        window.type("echo $((40 + 2)) $$\r")
        pid = int(window.shows(r"42 (\d+)").group(1))
        lab.cell.kill("gateway")
        window.shows("error: the gateway at .* broke off")
        assert window.ends() == 5
        assert window.settings() == window.settings_before
        wait_until(lambda: not lives(pid))
    wait_until(lambda: lab.done("exec", job, "--", "true")[0] == 0)


def test_a_shell_needs_a_terminal(lab: Lab) -> None:
    code, _, err = lab.done("shell", "any")
    assert code == 2 and "needs a terminal" in err and "sanjaya exec any" in err


async def test_connections_reach_a_server_of_the_job(lab: Lab) -> None:
    script = lab.folder / "server.py"
    script.write_text(SERVER)
    sockets, page = free_port(), free_port()
    job = lab.runs("server", sys.executable, str(script), str(sockets), str(page))
    wait_until(lambda: any(line["text"] == "listening" for line in lab.client.logs(job)))
    with lab.running("forward", job, f"{sockets}:0") as one, lab.running("forward", job, f"{page}:0") as other:
        echo, url = first_line(one.stdout), first_line(other.stdout)
        assert echo.startswith("http://127.0.0.1:")
        async with connect(echo.replace("http", "ws")) as first, connect(echo.replace("http", "ws")) as second:
            big = os.urandom(900_000)
            await asyncio.gather(first.send(big), second.send("small"))
            assert await asyncio.gather(second.recv(), first.recv()) == ["small", big]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"x" * 300_000)
        writer.write_eof()
        assert await reader.read() == b"300000 bytes heard"
        writer.close()
        async with connect(echo.replace("http", "ws")):
            one.send_signal(signal.SIGINT)
            assert b"Traceback" not in (await asyncio.to_thread(one.communicate))[1]
        assert one.returncode == 0
        lab.client.cancel(job, grace_s=0)
        assert other.wait() == 1 and re.search(ENDED_WITH_THE_JOB, other.communicate()[1].decode())
    wait_until(lambda: len(lab.sessions(job)) == 4)
    kinds = [(event["data"].get("kind"), event["data"].get("port")) for event in lab.sessions(job)]
    assert kinds.count(("forward", sockets)) == kinds.count(("forward", page)) == 1
    assert len(kinds) == 4, "the forwards are audited, not their connections"


def test_a_port_where_nothing_listens_is_told_at_each_connection(lab: Lab) -> None:
    job, port = lab.runs("silent"), free_port()
    with lab.running("forward", job, f"{port}:0") as process:
        local = int(first_line(process.stdout).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", local)) as connection:
            assert connection.recv(1) == b""
        assert first_line(process.stderr).startswith("forwarding to port")
        assert first_line(process.stderr) == f"node n1: nothing listens on port {port} there (yet)"
        assert process.poll() is None
