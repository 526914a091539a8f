"""Agents that reach nothing of a cell but its gateway: killed gateways and a cut network lose and double nothing."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import chain
from pathlib import Path
from tarfile import TarFile
from tarfile import open as open_tar
from typing import Any

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import ApiError, Client, ClientError
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.contracts.introspection import NodeLost
from libs.testing.bus_contract.log import everything
from libs.testing.leftovers import nothing_left_of
from libs.testing.processes import agent_process
from libs.testing.proxy import Proxy
from libs.testing.thorough import THOROUGH
from tests.e2e.checking import checked
from tests.e2e.test_rounds import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

HOST = "127.0.0.2"
"""An address of this machine that is not the one on which it serves itself."""
JOBS, KILLS = 30, 10
CUT_S = 60.0 if THOROUGH else 3.0
WITHIN_S = 300.0
NODES = ("east", "west")


@contextmanager
def joined(cell: Cell, network: Proxy, node_id: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent started by the command that `up` shows, with the network in between."""
    assert cell.plan.joining is not None
    _, agent, *given = shlex.split(cell.plan.joining.command())
    assert agent == "agent"
    given[given.index("--join") + 1] = f"https://127.0.0.1:{network.port}"
    with agent_process(node_id, folder / node_id, *given, *more, within_s=WITHIN_S) as process:
        yield process


def patiently(client: Client, ask: Any) -> Any:
    """The answer, while gateways come and go."""
    until_s = time.monotonic() + WITHIN_S
    while True:
        try:
            return ask(client)
        except ApiError as error:
            if error.status != 503 or time.monotonic() > until_s:
                raise
        except ClientError:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.1)


def states(client: Client) -> Counter[str]:
    return Counter(job["state"] for job in patiently(client, lambda it: list(it.jobs())))


def submit(client: Client, runs: Path, number: int) -> str:
    """A job that writes down that it runs."""
    command = ["/bin/sh", "-c", f'echo "$SANJAYA_JOB_ID" >> {shlex.quote(str(runs))}; sleep 0.2']
    job = {"name": f"job-{number}", "command": command, "max_retries": 0}
    return str(patiently(client, lambda it: it.submit(job, idempotency_key=f"key-{number}"))["id"])


def test_killed_gateways_and_a_cut_network_lose_and_double_nothing(tmp_path: Path) -> None:
    # An agent that is cut off for long is not to be taken for lost.
    settings = {"SANJAYA_NODE_TIMEOUT_S": "600"}
    plan = CellPlan(tmp_path / "cell", agents=0, gateway_port=free_port(), host=HOST, settings=settings)
    runs = tmp_path / "runs"
    with (
        Proxy(plan.gateway_port, HOST) as network,
        Cell(plan) as cell,
        Client(plan.gateway_url) as client,
        ExitStack() as agents,
    ):
        for node_id in NODES:
            agents.enter_context(joined(cell, network, node_id, tmp_path))
        wait_until(lambda: set(NODES) <= {node["id"] for node in cell.get("/v1/nodes")["items"]})
        jobs: list[str] = []
        for number in range(JOBS):
            jobs.append(submit(client, runs, number))
            if number % (JOBS // KILLS) == 0:
                cell.kill("gateway")
            if number == JOBS // 2:
                network.cut()
        time.sleep(CUT_S)
        network.mend()
        wait_until(lambda: states(client) == {"SUCCEEDED": JOBS}, WITHIN_S)
        assert files_of_a_job_with_code(client) == b"fetched"
    assert Counter(runs.read_text().split()) == Counter(jobs)
    said = checked(plan.state_dir / "log.db")
    for kind in (JobStarted, JobExited):
        ends = Counter(envelope.event.job_id for envelope in said if isinstance(envelope.event, kind))
        assert all(ends[job] == 1 for job in jobs)
    assert not [envelope for envelope in said if isinstance(envelope.event, NodeLost)]
    assert len({envelope.id for envelope in said}) == len(said)
    facts = asyncio.run(facts_on(plan))
    for node_id in NODES:
        numbers = [fact.sequence for fact in facts if fact.source == f"agent/{node_id}"]
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), "a fact is missing, or there twice"
    assert nothing_left_of(tmp_path) == []


async def facts_on(plan: CellPlan) -> list[Envelope]:
    """Everything that agents have said but their telemetry, which has numbers of its own."""
    bus = await connect(plan.bus, plan.cell)
    try:
        found = [await everything(bus, topic) for topic in (Topic.CONTROL, Topic.LOGS)]
    finally:
        await bus.close()
    return [codec.envelope(message) for message in chain.from_iterable(found)]


def files_of_a_job_with_code(client: Client) -> bytes:
    """A job with a program that comes from the gateway, and a file that goes to it."""
    packed = BytesIO()
    archive: TarFile
    with open_tar(fileobj=packed, mode="w:gz") as archive:
        script = archive.gettarinfo(__file__, "script.sh")
        content = b"printf fetched > out.txt\n"
        script.size = len(content)
        archive.addfile(script, BytesIO(content))
    code_id = client.upload_code(packed.getvalue())
    job = client.submit({"name": "uploaded", "command": ["/bin/sh", "script.sh"], "code_id": code_id})["id"]
    wait_until(lambda: client.job(job)["state"] == "SUCCEEDED", WITHIN_S)
    assert [item["name"] for item in client.job_files(job)["items"]] == ["out.txt", "script.sh"]
    return client.job_file_part(job, "out.txt", 0, 100).content
