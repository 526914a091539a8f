"""Which tokens open sessions inside jobs, and what the log has of that: a real gateway, and a real task."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from torch_agent.files.server import FileServer
from torch_agent.folders import TaskFolder
from torch_agent.sessions.entering import Entrance
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from libs.client import ApiError, Client
from libs.client.sessions import exec_path, opened
from libs.contracts.sessions import LONGEST_COMMAND_BYTES, EndOfInput, Exited, Opened, Start
from libs.node.serving import Agent, Proof
from libs.node.task import Status, Task, Want
from libs.runtime.cell_key import ensure_key, read_key
from libs.testing.builders import launch
from libs.testing.core_case import node
from services.gateway.adapters.entering import AgentRefused, enter
from services.gateway.adapters.tokens import Tokens
from tests.integration.gateway_cell import Cell, eventually, running_cell
from tests.unit.projection.story import grant, placed, started

ENTRIES = [
    {"name": "olga", "token": "the-token-of-olga", "scopes": ["read", "submit"], "tenants": ["vision"]},
    {"name": "steve", "token": "the-token-of-steve", "scopes": ["read", "submit"], "tenants": ["nlp"]},
    {"name": "rita", "token": "the-token-of-rita", "scopes": ["read"]},
    {"name": "oscar", "token": "the-token-of-oscar", "scopes": ["operate"]},
]


class Lab:
    """The cell, and its job of two ranks on two nodes, both played by one agent's server."""

    def __init__(self, cell: Cell, task: Task, job: str, port: int) -> None:
        self.cell, self.task, self.job, self.port = cell, task, job, port
        self.url = str(cell.client.base_url).rstrip("/")

    def client(self, name: str) -> Client:
        return Client(self.url, f"the-token-of-{name}")

    async def refused(self, name: str, path: str = "", **query: int) -> tuple[int, str]:
        """Status and detail of the answer instead of a session."""
        with self.client(name) as client, pytest.raises(ApiError) as error:
            async with opened(client, path or exec_path(self.job), **query):
                pass
        return error.value.status, error.value.detail

    async def runs(self, name: str, *command: str) -> Exited:
        """A command to its end."""
        with self.client(name) as client:
            async with opened(client, exec_path(self.job)) as session:
                await session.send(Start(command=list(command)))
                await session.send(EndOfInput())
                async for message in session:
                    if isinstance(message, Exited):
                        return message
        raise AssertionError("it was not told how it has ended")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    file = tmp_path / "tokens.yaml"
    file.write_text(yaml.safe_dump({"tokens": ENTRIES}))
    return Tokens.read(file)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[TaskFolder]:
    """Of a task that runs."""
    folder = TaskFolder(tmp_path / "n1" / "tasks" / "j.1")
    spec = {
        "command": ["sleep", "100000"],
        "cwd": str(folder.work),
        "environments": [{"SANJAYA_RANK": "0", "PATH": "/usr/bin:/bin", "SANJAYA_HARNESS_DIR": str(folder.pages)}],
        "time_limit_s": None,
        "data_limit_bytes": 0,
        "nice": 0,
    }
    shim = folder.start_shim(spec)
    yield folder
    folder.signal_ranks(9)
    shim.wait()


@pytest.fixture
async def lab(tmp_path: Path, tokens: Tokens, folder: TaskFolder) -> AsyncIterator[Lab]:
    key = tmp_path / "cell.key"
    ensure_key(key)
    tasks: dict[str, Task] = {}
    agent = FileServer(tmp_path / "n1", "n1", Proof(read_key(key)), Entrance(tasks.get, lambda task: folder))
    port = agent.start("127.0.0.1", 0)
    async with running_cell(tmp_path / "cell", tokens=tokens, serve=True, cell_key_file=key) as cell:
        cell.client.headers["Authorization"] = "Bearer the-token-of-olga"
        for node_id in ("n1", "n2"):
            await cell.say(msgspec.structs.replace(node(node_id, 4), address="127.0.0.1", files_port=port))
        job = await cell.submit(name="mine", tenant="vision", gpus=2)
        await cell.say(grant(job), placed(job), started("n1", job_id=job), started("n2", job_id=job))
        await cell.get(f"/v1/jobs/{job}")
        tasks[f"{job}.1"] = task = Task(order=launch(job), status=Status.RUNNING)
        await eventually(lambda: asyncio.to_thread(folder.ranks))
        yield Lab(cell, task, job, port)
    agent.close()


async def test_strangers_are_refused_before_anything_happens(lab: Lab) -> None:
    before = (await lab.cell.client.get("/v1/status")).json()["next_offset"]
    for path in ("", f"/v1/jobs/{lab.job}/forward/80"):
        status, detail = await lab.refused("steve", path)
        assert status == 403 and "the token of steve is not for tenant vision (it is for nlp)" in detail
        status, detail = await lab.refused("rita", path)
        assert status == 403 and "rita lacks the scope submit (has read)" in detail
        assert (await lab.refused("nobody", path))[0] == 401
    assert (await lab.cell.client.get("/v1/status")).json()["next_offset"] == before


async def test_the_command_line_says_so(lab: Lab) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "libs.cli.main", "exec", lab.job, "--", "id"),
        env={"SANJAYA_GATEWAY": lab.url, "SANJAYA_TOKEN": "the-token-of-steve", "PYTHONPATH": ":".join(sys.path)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 4
    assert said.decode() == "error: the token of steve is not for tenant vision (it is for nlp)\n"


@pytest.mark.parametrize("name", ["olga", "oscar"])
async def test_a_session_is_on_the_log_by_the_name_of_its_token(lab: Lab, name: str) -> None:
    ended = await lab.runs(name, "sh", "-c", "exit 4")
    assert ended == Exited(exit_code=4)
    await eventually(lambda: _is_closed(lab))
    events = (await lab.cell.get(f"/v1/events?job={lab.job}"))["items"][-2:]
    said, closed = (event["data"] for event in events)
    assert [event["type"] for event in events] == ["job.session_opened.v1", "job.session_closed.v1"]
    assert (said["opened_by"], said["kind"], said["command"]) == (name, "exec", ["sh", "-c", "exit 4"])
    assert (said["node_id"], said["attempt"], said["rank"]) == ("n1", 1, 0)
    assert (closed["session_id"], closed["exit_code"]) == (said["session_id"], 4)


async def _is_closed(lab: Lab) -> bool:
    last = (await lab.cell.get(f"/v1/events?job={lab.job}"))["items"][-1]
    return bool(last["type"] == "job.session_closed.v1")


async def test_a_command_that_cannot_be_logged_does_not_begin(lab: Lab) -> None:
    ended = await lab.runs("olga", "echo", "x" * LONGEST_COMMAND_BYTES)
    assert ended == Exited(note=f"command: expected at most {LONGEST_COMMAND_BYTES} bytes")
    assert (await lab.runs("olga")).note == "command: expected one word or more where there is no terminal"


async def test_wrong_places_are_refused(lab: Lab) -> None:
    assert (await lab.refused("olga", rank=7))[0] == 422
    assert (await lab.refused("olga", f"/v1/jobs/{lab.job}/forward/70000"))[0] == 422
    assert (await lab.refused("olga", exec_path("no-such-job")))[0] == 404
    waits = await lab.cell.submit(name="waits", tenant="vision")
    status, detail = await lab.refused("olga", exec_path(waits))
    assert status == 409 and f"{waits} does not run: it is QUEUED" in detail
    lab.task.want = Want.SUSPEND
    status, detail = await lab.refused("olga")
    assert status == 409 and "is suspended: other jobs may use its GPUs" in detail
    lab.task.want = Want.STOP
    assert "is being stopped" in (await lab.refused("olga"))[1]


async def test_connections_belong_to_the_forward_of_their_user(lab: Lab) -> None:
    with lab.client("olga") as client:
        async with opened(client, f"/v1/jobs/{lab.job}/forward/9") as session:
            told = await anext(aiter(session))
            assert isinstance(told, Opened)
            assert (await lab.refused("oscar", f"/v1/forwards/{told.session_id}"))[0] == 404
            status, detail = await lab.refused("olga", f"/v1/forwards/{told.session_id}")
            assert status == 409 and "nothing listens on port 9 there (yet)" in detail
        await eventually(lambda: _is_over(lab, told.session_id))


async def _is_over(lab: Lab, session_id: str) -> bool:
    return (await lab.refused("olga", f"/v1/forwards/{session_id}"))[0] == 404


async def test_pages_of_other_sites_are_refused(lab: Lab) -> None:
    with pytest.raises(InvalidStatus) as error:
        await connect(f"ws{lab.url.removeprefix('http')}{exec_path(lab.job)}", origin="http://evil.example")
    assert error.value.response.status_code == 403 and b"a page of another site" in (error.value.response.body or b"")


async def test_without_tokens_only_this_machine_is_served(tmp_path: Path) -> None:
    async with running_cell(tmp_path, serve=True) as cell:
        url = f"ws{str(cell.client.base_url).rstrip('/').removeprefix('http')}/v1/jobs/j/exec"
        with pytest.raises(InvalidStatus) as error:
            await connect(url, additional_headers={"Host": "evil.example:8420"})
        assert error.value.response.status_code in (400, 403)


async def test_a_recorded_request_is_good_for_nothing(lab: Lab) -> None:
    agents, port = lab.cell.gateway.agents, lab.port
    recorded = Agent("n1", "127.0.0.1", port)
    asked: dict[str, str | int] = {"job": lab.job, "attempt": 1, "session": "x-1", "kind": "forward"}
    async with await enter(agents, recorded, asked):
        with pytest.raises(AgentRefused, match="was opened before"):
            await enter(agents, recorded, asked)
