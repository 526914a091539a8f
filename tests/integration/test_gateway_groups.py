"""Arrays, DAGs and dependencies over HTTP: one request each, found as one, changed as one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.bus import codec
from libs.contracts.base import Event
from libs.contracts.failure_analysis import JobAbandoned
from libs.contracts.gateway import ArrayArrived, DagArrived, GroupChangeRequested, JobArrived
from libs.contracts.groups import Condition, Dependency, GroupPlace
from libs.contracts.placement import JobCancelled, JobSucceeded
from libs.contracts.reasons import Reason
from libs.kernel.ids import member_id
from tests.integration.gateway_cell import CONTROL, Cell, running_cell

BECAUSE = Reason(code="Test", message="")


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path) as cell:
        yield cell


async def events(cell: Cell) -> list[Event]:
    reader = await cell.bus.reader({CONTROL: 0})
    return [codec.record(message).envelope.event for message in await reader.next_batch(10_000, 0.1)]


async def post(cell: Cell, path: str, body: dict[str, Any], status: int = 201, key: str = "") -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await cell.client.post(path, json=body, headers=headers)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def arrives(cell: Cell, array: ArrayArrived) -> list[str]:
    """What the sweeps service would say."""
    ids = [member_id(array.group_id, str(index)) for index in array.indices]
    await cell.say(
        *(
            JobArrived(
                job_id=job_id,
                spec=msgspec.structs.replace(array.spec, name=f"{array.spec.name}[{index}]"),
                submitted_by="ada",
                group=GroupPlace(group_id=array.group_id, index=index),
            )
            for job_id, index in zip(ids, array.indices, strict=True)
        )
    )
    return ids


async def test_an_array_is_one_request_and_one_record_however_often_it_is_sent(cell: Cell):
    body = {"command": "python train.py", "array": "0-999%4"}
    first = await post(cell, "/v1/jobs", body, key="k")
    assert first["id"].startswith("a-") and (first["jobs"], first["name"]) == (1000, "train")
    assert first["url"] == f"/v1/groups/{first['id']}"
    assert await post(cell, "/v1/jobs", body, key="k") == first
    await post(cell, "/v1/jobs", body | {"array": "0-998%4"}, status=422, key="k")
    (event,) = await events(cell)
    assert isinstance(event, ArrayArrived)
    assert (event.group_id, len(event.indices), event.at_once) == (first["id"], 1000, 4)


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("3", [3], None),
        ("0-15", list(range(16)), None),
        ("1,3,7", [1, 3, 7], None),
        ("0-99:10%2", list(range(0, 100, 10)), 2),
        ("7,1-3%1", [1, 2, 3, 7], 1),
    ],
)
async def test_indices_are_written_as_for_slurm(cell: Cell, text: str, indices: list[int], at_once: int | None):
    await post(cell, "/v1/jobs", {"command": ["true"], "array": text})
    (event,) = await events(cell)
    assert isinstance(event, ArrayArrived) and (event.indices, event.at_once) == (indices, at_once)


@pytest.mark.parametrize("text", ["", "x", "5-1", "0-9%0", "0-9:0", "0-1000000", "-1", "1-", "0-9%", 3, []])
async def test_what_is_no_array_is_refused_with_what_was_expected(cell: Cell, text: Any):
    problem = await post(cell, "/v1/jobs", {"command": ["true"], "array": text}, status=422)
    assert problem["errors"][0]["pointer"].startswith("/array")


async def test_an_array_that_is_too_much_for_the_log_is_refused(cell: Cell):
    body = {"command": ["true"], "array": "0-9999", "env": {"A": "x" * 10_000}}
    assert "over 67108864 bytes" in (await post(cell, "/v1/jobs", body, status=422))["detail"]
    body = {"command": ["true"], "array": "0-9999", "after": ",".join(f"j{number}" for number in range(11))}
    assert "wait for one array" in (await post(cell, "/v1/jobs", body, status=422))["detail"]


async def test_an_array_is_one_row_that_opens(cell: Cell):
    alone = await cell.submit(name="alone")
    accepted = await post(cell, "/v1/jobs", {"command": "python train.py", "array": "0-3%2"})
    array = next(event for event in await events(cell) if isinstance(event, ArrayArrived))
    ids = await arrives(cell, array)
    await cell.say(JobSucceeded(job_id=ids[1], attempt=1))
    grouped = (await cell.get("/v1/jobs", grouped=True))["items"]
    assert [(item["id"], (item["group"] or {}).get("id")) for item in grouped] == [
        (ids[0], accepted["id"]),
        (alone, None),
    ]
    whole = grouped[0]["group"]
    assert whole["counts"] == {"QUEUED": 3, "SUCCEEDED": 1} and (whole["jobs"], whole["state"]) == (4, "RUNNING")
    assert [i["id"] for i in (await cell.get("/v1/jobs", grouped=True, state="SUCCEEDED"))["items"]] == [ids[0]]
    members = (await cell.get("/v1/jobs", array="train", order="oldest"))["items"]
    assert [(item["id"], item["group_index"]) for item in members] == list(zip(ids, range(4), strict=True))
    assert (await cell.get(f"/v1/jobs/{accepted['id'][:6]}[2]"))["id"] == ids[2]
    assert (await cell.get("/v1/jobs/train[2]"))["id"] == ids[2]
    assert (await cell.get(f"/v1/groups/{accepted['id']}")) == whole
    assert (await cell.get("/v1/groups"))["items"] == [whole]
    assert (await cell.client.get("/v1/jobs/train[9]")).status_code == 404


async def test_what_a_job_waits_for_is_named_by_id_name_or_array_and_its_end_is_on_the_log(cell: Cell):
    first = await cell.submit(name="prepare")
    failed, cancelled, lives = await cell.submit(), await cell.submit(), await cell.submit()
    whole = await post(cell, "/v1/jobs", {"command": ["true"], "name": "many", "array": "0-1"})
    array = next(event for event in await events(cell) if isinstance(event, ArrayArrived))
    ids = await arrives(cell, array)
    await cell.say(
        JobSucceeded(job_id=first, attempt=1),
        JobAbandoned(job_id=failed, attempt=1, exit_code=1, signal=None, reason=BECAUSE),
        JobCancelled(job_id=cancelled, attempt=1, reason=BECAUSE),
        *(JobSucceeded(job_id=job_id, attempt=1) for job_id in ids),
    )
    after = f"prepare,{failed}:fail,{cancelled}:any,{lives},many:ok,many[1]"
    job_id = await cell.submit(after=after, key="k")
    event = next(event for event in await events(cell) if event.subject == job_id)
    assert isinstance(event, JobArrived) and event.after == [
        Dependency(on=first, succeeded=True),
        Dependency(on=failed, condition=Condition.FAIL, succeeded=False),
        Dependency(on=cancelled, condition=Condition.ANY, succeeded=False),
        Dependency(on=lives),
        Dependency(on=whole["id"], succeeded=True),
        Dependency(on=ids[1], succeeded=True),
    ]
    await cell.say(JobSucceeded(job_id=lives, attempt=1))
    await cell.submit(name="prepare")  # the name means two jobs now: a repeated request has its answer nevertheless
    assert await cell.submit(after=after, key="k") == job_id


async def test_what_does_not_exist_cannot_be_waited_for(cell: Cell):
    await cell.submit(name="prepare")
    problem = await post(cell, "/v1/jobs", {"command": ["true"], "after": ["prepare", "prepaer:any"]}, status=422)
    assert problem["errors"][0]["pointer"] == "/after/1" and problem["did_you_mean"] == "prepare"
    problem = await post(cell, "/v1/jobs", {"command": ["true"], "after": "prepare:okay"}, status=422)
    assert "/after/0/condition" in problem["errors"][0]["pointer"]
    assert len(await events(cell)) == 1


def job(name: str, *after: str) -> dict[str, Any]:
    return {"name": name, "command": ["true"], "after": list(after)}


async def test_a_dag_is_accepted_as_a_whole_and_its_jobs_are_in_order(cell: Cell):
    outside = await cell.submit(name="data")
    jobs = [job("d", "b", "c:any"), job("b", "a"), job("c", "a", "data"), job("a")]
    accepted = await post(cell, "/v1/dags", {"name": "diamond", "jobs": jobs}, key="k")
    assert accepted["id"].startswith("d-") and accepted["jobs"] == 4
    assert await post(cell, "/v1/dags", {"name": "diamond", "jobs": jobs}, key="k") == accepted
    event = (await events(cell))[-1]
    assert isinstance(event, DagArrived) and len(await events(cell)) == 2
    ids = accepted["members"]
    assert [member.job_id for member in event.jobs] == [ids[name] for name in ("a", "b", "c", "d")]
    assert event.jobs[2].after == [Dependency(on=ids["a"]), Dependency(on=outside)]
    assert event.jobs[3].after == [Dependency(on=ids["b"]), Dependency(on=ids["c"], condition=Condition.ANY)]


@pytest.mark.parametrize(
    ("jobs", "pointer", "words"),
    [
        ([job("a", "c"), job("b", "a"), job("c", "b")], "/jobs", " -> "),
        ([job("a", "a")], "/jobs", "a -> a"),
        ([job("a"), job("a")], "/jobs", "two jobs have the name a"),
        ([job("a"), {**job("b"), "tenant": "nlp"}], "/jobs", "a DAG belongs to one"),
        ([job("b", "a", "x"), job("a")], "/jobs/0/after/1", 'no job, array or DAG "x"'),
        ([job("a"), {"command": ["true"]}], "/jobs/1/name", ""),
        ([], "/jobs", ""),
    ],
)
async def test_a_dag_with_a_fault_is_refused_as_a_whole(cell: Cell, jobs: list[Any], pointer: str, words: str):
    problem = await post(cell, "/v1/dags", {"jobs": jobs}, status=422)
    assert problem["errors"][0]["pointer"] == pointer and words in problem["errors"][0]["message"]
    assert await events(cell) == []


async def test_an_array_is_changed_as_a_whole(cell: Cell):
    accepted = await post(cell, "/v1/jobs", {"command": ["true"], "name": "many", "array": "0-1"})
    array = next(event for event in await events(cell) if isinstance(event, ArrayArrived))
    ids = await arrives(cell, array)
    await cell.get("/v1/jobs")
    for path, body in (("pause", {}), ("resume", {}), ("cancel", {"note": "wrong"})):
        assert (await post(cell, f"/v1/groups/many/{path}", body, status=202))["id"] == accepted["id"]
    assert (await cell.client.patch("/v1/groups/many", json={"priority": 7})).status_code == 202
    asked = [event for event in await events(cell) if isinstance(event, GroupChangeRequested)]
    assert [event.change.value for event in asked] == ["pause", "resume", "cancel", "priority"]
    assert (asked[2].note, asked[3].priority) == ("wrong", 7)
    await cell.say(*(JobCancelled(job_id=job_id, attempt=1, reason=BECAUSE) for job_id in ids))
    await cell.get("/v1/jobs")
    assert "have ended" in (await post(cell, "/v1/groups/many/cancel", {}, status=409))["detail"]
