"""Records that services could not take, as operators see them: real shells put them aside, the gateway shows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from libs.bus.connect import connect
from libs.bus.port import Bus, Message, Outgoing, Partition, TopicLayout
from libs.cli.doctor import Finding, dead_letters
from libs.client import Client
from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import MinibatchProfiled
from libs.contracts.base import Topic
from libs.contracts.quota import QuotaGranted
from libs.contracts.reasons import Reason
from libs.runtime.deadletter import dead_letter
from libs.testing.core_case import arrival, node
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase, messages
from services.gateway.adapters.dead_letters import KEPT
from services.gateway.adapters.tokens import Tokens
from services.introspection.adapters.telemetry import TelemetryFold
from services.introspection.core.windows import Rules
from services.placement.service import SERVICE as PLACEMENT
from tests.integration.gateway_cell import Cell, eventually, memory_bus, running_cell

pytest_plugins = ("libs.testing.kafka",)

SAID = Reason(code="Test", message="said by the test")
WHY = "JobAdmitted cannot be said of job a, which is running, attempt 1; expected: arrived"


@pytest.fixture(params=["memory", "embedded", "kafka"])
async def bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bus]:
    """An empty log of each kind, topics in place."""
    if request.param == "memory":
        url = "memory:"
    elif request.param == "embedded":
        url = f"sqlite:///{tmp_path / 'log.db'}"
    else:
        url = f"kafka://{request.getfixturevalue('kafka_bootstrap')}"
    bus = await connect(url, f"lab{time.time_ns()}")
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


async def admit_twice(bus: Bus) -> None:
    """Placement hears that its running job is admitted, which cannot be."""
    placement = ShellCase(PLACEMENT, FaultyBus(bus, Faults()))
    admitted = JobAdmitted(job_id="a", reason=SAID)
    granted = QuotaGranted(job_id="a", attempt=1, tenant="default", gpus=1, reason=SAID)
    await placement.give(node("n1", 2), arrival("a"), admitted, granted, admitted)
    await placement.run_to_end()


async def garble(bus: Bus) -> None:
    """Introspection gets a record of telemetry that is no JSON, about another job."""
    bad = Outgoing(Topic.TELEMETRY, "b", [("ce_type", MinibatchProfiled.wire_type.encode())], b"{")
    await bus.append([bad])
    [message] = await messages(bus, Topic.TELEMETRY)
    await bus.append(TelemetryFold(Rules()).take(message, 0.0))


async def _has(cell: Cell, letters: int) -> bool:
    return bool((await cell.client.get("/v1/deadletters")).json()["total"] == letters)


async def doctor_says(url: str) -> Finding:
    def ask() -> Finding:
        with Client(url) as client:
            return dead_letters(client)

    return await asyncio.to_thread(ask)


async def test_what_services_could_not_take_is_shown_newest_first(bus: Bus, tmp_path: Path):
    before_s = time.time() - 60.0
    await admit_twice(bus)
    async with running_cell(tmp_path / "gateway", bus=bus, serve=True, cell=bus.cell) as cell:
        url = str(cell.client.base_url)
        answer = (await cell.client.get("/v1/deadletters")).json()
        assert answer["total"] == 1, "what stood there at the start is read before it is counted"
        [impossible] = answer["items"]
        told = {name: impossible[name] for name in ("service", "type", "subject", "job_id", "error")}
        kind = JobAdmitted.wire_type
        assert told == {"service": "placement", "type": kind, "subject": "a", "job_id": "a", "error": WHY}
        assert impossible["record"].startswith("control/0@")
        assert before_s < impossible["time_s"] < time.time() + 60.0
        finding = await doctor_says(url)
        assert (finding.mark, finding.fix) == ("BAD", "sanjaya story a")
        assert finding.detail == f"1, the newest of placement: {WHY}"

        await garble(bus)
        await eventually(lambda: _has(cell, 2))
        answer = (await cell.client.get("/v1/deadletters")).json()
        assert answer["total"] == 2
        assert [item["service"] for item in answer["items"]] == ["introspection", "placement"]
        assert answer["items"][0]["subject"] == answer["items"][0]["job_id"] == "b"
        assert answer["items"][0]["record"].startswith("telemetry/")
        newest = (await cell.client.get("/v1/deadletters", params={"limit": 1})).json()
        assert newest == {"total": 2, "items": answer["items"][:1]}


async def test_a_cell_without_dead_letters_is_well(tmp_path: Path):
    async with running_cell(tmp_path, serve=True) as cell:
        assert (await cell.client.get("/v1/deadletters")).json() == {"total": 0, "items": []}
        assert await doctor_says(str(cell.client.base_url)) == Finding("dead letters", True, "0")


async def test_the_newest_are_kept_all_are_counted_and_one_put_aside_twice_is_one(tmp_path: Path):
    bus = await memory_bus()
    letters = [_letter(number) for number in range(KEPT + 20)]
    await bus.append([*letters, letters[-1]])
    async with running_cell(tmp_path, bus=bus) as cell:
        answer = (await cell.client.get("/v1/deadletters")).json()
    assert answer["total"] == KEPT + 20
    assert [item["record"] for item in answer["items"]] == [f"telemetry/0@{n}" for n in range(KEPT + 19, 19, -1)]


def _letter(number: int) -> Outgoing:
    message = Message(Partition(Topic.TELEMETRY, 0), number, "b", [], b"{", 0.0)
    return dead_letter(message, "introspection", ValueError("no JSON"))


async def test_the_right_to_read_is_needed(tmp_path: Path):
    file = tmp_path / "tokens.yaml"
    entries = [{"name": scope, "token": f"the-token-to-{scope}", "scopes": [scope]} for scope in ("read", "submit")]
    file.write_text(yaml.safe_dump({"tokens": entries}))
    async with running_cell(tmp_path, tokens=Tokens.read(file)) as cell:
        for token, status in (("the-token-to-read", 200), ("the-token-to-submit", 403), ("no", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            found = (await cell.client.get("/v1/deadletters", headers=headers)).status_code
            nodes = (await cell.client.get("/v1/nodes", headers=headers)).status_code
            assert found == nodes == status, token
            retried = await cell.client.post("/v1/deadletters/0/retry", headers=headers)
            assert retried.status_code == (401 if status == 401 else 403), token


@pytest.mark.parametrize("limit", ["0", "101", "x"])
async def test_a_wrong_limit_is_refused(tmp_path: Path, limit: str):
    async with running_cell(tmp_path) as cell:
        assert (await cell.client.get("/v1/deadletters", params={"limit": limit})).status_code == 422


async def test_a_record_that_could_not_be_read_is_given_once_more_and_only_once(bus: Bus, tmp_path: Path):
    await garble(bus)
    async with running_cell(tmp_path, bus=bus) as cell:
        await eventually(lambda: _has(cell, 1))
        [listed] = (await cell.client.get("/v1/deadletters")).json()["items"]
        path = f"/v1/deadletters/{listed['offset']}"
        found = (await cell.client.get(path)).json()
        assert (found["value"], found["key"], found["retryable"]) == ("{", "b", True)
        assert found["headers"]["x-error"] == listed["error"]
        first, second = [(await cell.client.post(f"{path}/retry")) for _ in range(2)]
        assert (first.status_code, first.json()["event"]) == (202, "deadletter.retried.v1")
        assert (second.status_code, second.json()["event"]) == (200, None)
        told = (await cell.get("/v1/events", type="deadletter.retried.v1"))["items"]
        assert [(event["data"]["record"], event["data"]["service"]) for event in told] == [
            (listed["record"], "introspection")
        ]
    before, again = await messages(bus, Topic.TELEMETRY)
    assert (again.key, again.value, again.headers) == (before.key, before.value, before.headers)


async def test_what_was_impossible_is_not_given_to_all_services_a_second_time(bus: Bus, tmp_path: Path):
    await admit_twice(bus)
    before = await bus.end_offset(Partition(Topic.CONTROL, 0))
    async with running_cell(tmp_path, bus=bus) as cell:
        await eventually(lambda: _has(cell, 1))
        [listed] = (await cell.client.get("/v1/deadletters")).json()["items"]
        found = (await cell.client.get(f"/v1/deadletters/{listed['offset']}")).json()
        assert not found["retryable"] and "every service reads" in found["why_not"]
        refused = await cell.client.post(f"/v1/deadletters/{listed['offset']}/retry")
        assert refused.status_code == 409 and found["why_not"] in refused.json()["detail"]
        assert (await cell.client.get("/v1/deadletters/99")).status_code == 404
    assert await bus.end_offset(Partition(Topic.CONTROL, 0)) == before
