"""Jobs that fail in as many ways, in a whole cell: the right reason by their lines, and what fits it.

Failure analysis is killed again and again meanwhile: no verdict is lost, none comes twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import NodeTested
from libs.contracts.envelope import Envelope
from libs.contracts.failure_analysis import (
    FailureClassified,
    FailureObserved,
    GpuSuspected,
    JobAbandoned,
    RetryScheduled,
    RulesLoaded,
)
from libs.contracts.placement import JobPlaced, NodeCordoned, NodeReturned
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked
from tests.e2e.failing_jobs import MIB, WAYS

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

WITHIN_S = 400.0
KILL_EVERY = 5
"""Jobs that have ended; it has to be back before the next ones can."""
ENDED = ("FAILED", "SUCCEEDED", "CANCELLED", "REJECTED")
SERVICE = "failure_analysis"


@pytest.fixture(scope="module", params=cases("embedded", thorough=("kafka",)))
def cell(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("failures")
    plan = CellPlan(
        state_dir=folder / "cell",
        agents=2,
        gpus_per_agent=4,
        gateway_port=free_port(),
        kafka="" if request.param == "kafka" else None,
    )
    with Cell(plan) as running:
        yield running
    assert nothing_left_of(folder) == []


FAKE_GPU = """
import os, re, sys
node = re.search(r"/nodes/(n[0-9]+)/", os.environ["SANJAYA_HARNESS_DIR"]).group(1)
path = os.path.join({folder!r}, "broken")
if not os.path.exists(path):
    open(path, "w").write(node)
if open(path).read() == node:
    sys.exit("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.")
"""
"""Fails on one of the nodes: where the first job has run."""


def test_a_gpu_that_fails_three_jobs_of_two_users_is_cordoned_tested_and_returned(cell: Cell, tmp_path: Path):
    # The first test of the cell: failures of the other one's jobs would count.
    command = ["python", "-c", FAKE_GPU.format(folder=str(tmp_path))]
    with Client(cell.plan.gateway_url) as client:
        jobs = []
        for user in ("ada", "bob", "ada"):
            job = {"name": f"of-{user}", "command": command, "user": user, "max_retries": 1}
            jobs.append(str(client.submit(job)["id"]))
            until(lambda: client.job(jobs[-1])["state"] in ENDED)
        broken = (tmp_path / "broken").read_text()
        until(lambda: b"node.returned.v1" in b"".join(client.export()))
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
    said = checked(tmp_path / "log.jsonl")
    [suspected] = [each.event for each in said if isinstance(each.event, GpuSuspected)]
    assert set(suspected.jobs) >= {*jobs} and suspected.node_id == broken
    assert "of 2 users" in suspected.reason.message
    [index] = [suspected.index]
    after = [each.event for each in said if isinstance(each.event, NodeCordoned | NodeTested | NodeReturned)]
    assert [type(event) for event in after] == [NodeCordoned, NodeTested, NodeReturned]
    assert [event.gpu_indices for event in after] == [[index]] * 3


def run_all(cell: Cell, client: Client, folder: Path) -> dict[str, str]:
    """{name: job id} of all jobs, when they have ended."""
    ids = {name: str(client.submit(way.job(name, str(folder)))["id"]) for name, way in WAYS.items()}
    cell.kill(SERVICE)
    deadline, left, kill_at = time.monotonic() + WITHIN_S, list(ids), len(ids) - KILL_EVERY
    while left := [name for name in left if client.job(ids[name])["state"] not in ENDED]:
        assert time.monotonic() < deadline, left
        if len(left) <= kill_at:
            cell.kill(SERVICE)
            kill_at = len(left) - KILL_EVERY
        time.sleep(0.2)
    return ids


def of(said: list[Envelope], job_id: str, kind: type) -> list[Envelope]:
    return [each for each in said if isinstance(each.event, kind) and each.event.subject == job_id]


def test_each_failure_has_its_reason_and_its_consequence_over_kills(cell: Cell, tmp_path: Path):
    with Client(cell.plan.gateway_url) as client:
        ids = run_all(cell, client, tmp_path)
        states = {name: client.job(job)["state"] for name, job in ids.items()}
        stories = {name: str(client.story(job)) for name, job in ids.items()}
        (tmp_path / "log.jsonl").write_bytes(b"".join(client.export()))
        table = {row["key"]: row["jobs"] for row in client.failures("cause")["items"]}
    assert (table["json_broken"], table["syntax"]) == (2, 1)
    said = checked(tmp_path / "log.jsonl")
    assert any(isinstance(each.event, RulesLoaded) for each in said)
    assert len({each.id for each in said}) == len(said)
    wrong = []
    for name, way in WAYS.items():
        verdicts = [each.event for each in of(said, ids[name], FailureClassified)]
        followed = [each.event for each in of(said, ids[name], RetryScheduled) + of(said, ids[name], JobAbandoned)]
        failed = way.attempts - (way.state == "SUCCEEDED")
        found = [event.cause for event in verdicts], followed[0].consequence, states[name]
        if found != ([way.cause] * failed, way.consequence, way.state):
            wrong.append((name, *found))
        assert len({event.attempt for event in verdicts}) == len(verdicts), name
        assert verdicts[0].deciding_line in stories[name], name
    assert wrong == []
    check_details(said, ids)


def check_details(said: list[Envelope], ids: dict[str, str]) -> None:
    """What was changed, what was avoided, whose line it was."""
    [gang] = [each.event for each in of(said, ids["gang"], FailureClassified)]
    assert (gang.rank, gang.root_of, gang.gpu_index is not None) == (1, [0], True)
    for name in ("xid", "ecc", "shm"):
        first, second = (each.event.gang[0].node_id for each in of(said, ids[name], JobPlaced))
        [retry] = [each.event for each in of(said, ids[name], RetryScheduled)]
        assert retry.avoided_nodes == [first] and first != second, name
        assert f"not on {first}, where it has failed" in of(said, ids[name], JobPlaced)[1].event.reason.message
    [more] = [each.event for each in of(said, ids["host_memory"], RetryScheduled)]
    assert more.memory_bytes == 144 * MIB
    [other] = [each.event for each in of(said, ids["gpu_memory"], RetryScheduled)]
    assert other.env == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    words = Counter(
        (each.event.job_id, each.event.attempt)
        for each in said
        if isinstance(each.event, FailureObserved) and each.event.complete
    )
    assert set(words.values()) == {1}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
