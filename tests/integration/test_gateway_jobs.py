"""Jobs over HTTP: each once, found again, changed with care."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.agent import JobSuspended
from libs.contracts.gateway import JobArrived, PolicyChanged
from libs.contracts.placement import JobQueued, JobSucceeded, TimeSliceStarted
from libs.contracts.reasons import Reason
from libs.testing.core_case import node
from tests.integration.gateway_cell import CONTROL, Cell, running_cell
from tests.unit.projection.story import grant, placed, started


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path) as cell:
        yield cell


async def test_a_job_is_on_the_log_when_it_is_answered(cell: Cell) -> None:
    body = {"command": "python train.py", "gpus": "v100:2", "tenant": "vision", "labels": {"team": "a"}}
    answer = await cell.client.post("/v1/jobs", json=body)
    assert answer.status_code == 201
    accepted = answer.json()
    assert answer.headers["location"] == accepted["url"] == f"/v1/jobs/{accepted['id']}"
    assert answer.headers["sanjaya-offset"] == str(accepted["offset"]) == "0"
    reader = await cell.bus.reader({CONTROL: 0})
    from libs.bus import codec

    event = codec.record((await reader.next_batch(1, 1.0))[0]).envelope.event
    assert isinstance(event, JobArrived)
    assert (event.job_id, event.spec.name, event.spec.gpus.types) == (accepted["id"], "train", ["v100"])
    assert event.spec.command == ["/bin/sh", "-c", "python train.py"]


async def test_ones_own_writes_can_be_read_at_once(cell: Cell) -> None:
    for _ in range(5):
        job_id = await cell.submit()
        answer = await cell.client.get(f"/v1/jobs/{job_id}")
        assert (answer.status_code, answer.json()["state"]) == (200, "QUEUED")
        assert answer.headers["etag"] == f'"{answer.json()["version"]}"'


async def test_a_repeated_key_is_the_same_request(cell: Cell) -> None:
    body = {"command": ["true"], "gpus": 2}
    first = await cell.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"})
    again = await cell.client.post("/v1/jobs", json={"gpus": 2, "command": ["true"]}, headers={"Idempotency-Key": "k"})
    assert again.json() == first.json()
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    other = await cell.client.post("/v1/jobs", json=body | {"gpus": 3}, headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    assert await cell.bus.end_offset(CONTROL) == 1


async def test_many_clients_with_the_same_keys_at_once_make_each_job_once(cell: Cell) -> None:
    keys = [f"k{number}" for number in range(40)] * 3
    ids = await asyncio.gather(*(cell.submit(key=key) for key in keys))
    assert len(set(ids)) == 40
    assert ids[:40] == ids[40:80] == ids[80:]
    assert await cell.bus.end_offset(CONTROL) == 40


async def test_requests_that_come_together_share_a_commit(cell: Cell) -> None:
    await asyncio.gather(*(cell.submit() for _ in range(64)))
    commits = cell.gateway.metrics.registry.get_sample_value("sanjaya_gateway_commit_requests_count")
    assert commits is not None and commits < 64


async def test_lists_are_paged_in_order_of_arrival(cell: Cell) -> None:
    ids = [await cell.submit(name=f"job{number}") for number in range(7)]
    await cell.get("/v1/jobs")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = (await cell.client.get("/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]
    oldest = await cell.get("/v1/jobs", order="oldest", limit=2)
    assert [item["id"] for item in oldest["items"]] == ids[:2]


async def test_lists_can_be_filtered(cell: Cell) -> None:
    a = await cell.submit(name="a", tenant="vision", labels={"team": "x", "kind": "cnn"}, user="bob")
    b = await cell.submit(name="b", tenant="nlp", labels={"team": "x"}, user="eve")
    await cell.say(node("n1", 2), JobSucceeded(job_id=b, attempt=1))

    async def found(**params: object) -> set[str]:
        return {item["id"] for item in (await cell.get("/v1/jobs", **params))["items"]}

    assert await found(tenant=["vision", "nlp"]) == {a, b}
    assert await found(tenant="vision") == await found(user="bob") == await found(state="QUEUED") == {a}
    assert await found(label="team=x") == {a, b}
    assert await found(label=["team=x", "kind=cnn"]) == {a}
    assert await found(state=["SUCCEEDED", "FAILED"]) == await found(name="b") == {b}
    assert await found(label="team=y") == await found(submitted_after_s=1e11) == set()


async def test_fields_can_be_chosen(cell: Cell) -> None:
    job_id = await cell.submit(name="a")
    assert (await cell.get("/v1/jobs", fields="id,state"))["items"] == [{"id": job_id, "state": "QUEUED"}]
    answer = await cell.client.get("/v1/jobs", params={"fields": "stat"})
    assert (answer.status_code, answer.json()["did_you_mean"]) == (422, "state")


async def test_waiting_jobs_know_their_place(cell: Cell) -> None:
    ids = [await cell.submit(name=name) for name in ("first", "second")]
    ids.append(await cell.submit(name="urgent", priority=5))
    await cell.say(*(grant(job_id, 1) for job_id in ids))
    assert await places(cell) == {"urgent": 1, "first": 2, "second": 3}


async def places(cell: Cell) -> dict[str, int | None]:
    found = (await cell.get("/v1/jobs", fields="name,queue_position"))["items"]
    return {item["name"]: item["queue_position"] for item in found}


async def test_jobs_that_wait_for_other_things_than_gpus_are_before_no_job_that_waits_for_them(cell: Cell) -> None:
    ids = {name: await cell.submit(name=name) for name in ("paused", "unasked", "cancelled", "waits")}
    await cell.say(*(grant(ids[name], 1) for name in ("paused", "cancelled", "waits")))
    for name, change in (("paused", "pause"), ("cancelled", "cancel")):
        assert (await cell.client.post(f"/v1/jobs/{ids[name]}/{change}")).status_code == 202
    assert await places(cell) == {"paused": None, "unasked": None, "cancelled": None, "waits": 1}
    assert (await cell.get(f"/v1/jobs/{ids['waits']}/why"))["queue_position"] == 1


async def test_a_suspended_job_that_is_to_go_on_has_its_place_under_a_policy_with_an_order(cell: Cell) -> None:
    stands, waits = [await cell.submit(name=name) for name in ("stands", "waits")]
    await cell.say(node("n1", 2), node("n2", 2), grant(stands, 2), placed(stands), grant(waits, 2))
    await cell.say(*(started(node_id, job_id=stands) for node_id in ("n1", "n2")), turn(1, suspended=[stands]))
    await cell.say(*(JobSuspended(job_id=stands, attempt=1, node_id=node_id) for node_id in ("n1", "n2")))
    assert await places(cell) == {"stands": 1, "waits": 2}
    for policy, expected in (
        ("gandiva", {"stands": None, "waits": 1}),
        ("max_min_fairness", {"stands": None, "waits": None}),
    ):
        await cell.say(PolicyChanged(policy=policy, requested_by="op"))
        assert await places(cell) == expected


async def test_a_job_is_found_by_the_beginning_of_its_id_or_its_name(cell: Cell) -> None:
    job_id = await cell.submit(name="resnet")
    for reference in (job_id, job_id[:6], "resnet"):
        assert (await cell.get(f"/v1/jobs/{reference}"))["id"] == job_id
    other = await cell.submit(name="resnet")
    await cell.get("/v1/jobs")
    answer = await cell.client.get("/v1/jobs/resnet")
    assert (answer.status_code, set(answer.json()["candidates"])) == (409, {job_id, other})
    answer = await cell.client.get("/v1/jobs/resnat")
    assert (answer.status_code, answer.json()["did_you_mean"]) == (404, "resnet")


async def test_a_running_job_says_where_and_how_it_runs(cell: Cell) -> None:
    job_id = await cell.submit(name="resnet", gpus=2)
    await cell.say(node("n1", 2), node("n2", 2), grant(job_id), placed(job_id))
    await cell.say(started("n1", job_id=job_id), started("n2", job_id=job_id))
    job = await cell.get(f"/v1/jobs/{job_id}")
    assert (job["state"], job["where"], job["attempt"]) == ("RUNNING", "n1:0, n2:0", 1)
    assert [(attempt["attempt"], attempt["outcome"]) for attempt in job["attempts"]] == [(1, "")]
    gpus = await cell.get("/v1/gpus")
    assert {gpu["id"]: gpu["state"] for gpu in gpus["items"]} == {
        "n1:0": "busy",
        "n1:1": "free",
        "n2:0": "busy",
        "n2:1": "free",
    }
    nodes = await cell.get("/v1/nodes")
    assert [(item["id"], item["gpus"], item["free"], item["jobs"]) for item in nodes["items"]] == [
        ("n1", 2, 1, [job_id]),
        ("n2", 2, 1, [job_id]),
    ]


async def test_why_gives_the_reasons_of_the_log(cell: Cell) -> None:
    job_id = await cell.submit(gpus=2, tenant="vision")
    reason = Reason(code="GangFragmented", message="2 free, not together", numbers={"free_gpus": 2})
    await cell.say(node("n1", 2), grant(job_id), JobQueued(job_id=job_id, attempt=1, reason=reason))
    why = await cell.get(f"/v1/jobs/{job_id}/why")
    assert (why["state"], why["reason"], why["numbers"]) == ("QUEUED", "GangFragmented", {"free_gpus": 2})
    verdicts = {check["check"]: (check["verdict"], check["code"]) for check in why["checks"]}
    assert verdicts == {
        "admission": ("not asked yet", ""),
        "quota": ("not the cause", "WithinQuota"),
        "placement": ("the cause", "GangFragmented"),
    }
    assert [waited["code"] for waited in why["before"]] == ["NotYetEvaluated", "NotYetEvaluated"]


async def test_why_names_the_job_before_it_and_what_that_one_waits_for(cell: Cell) -> None:
    first, second = [await cell.submit(gpus=2, tenant="vision", name=name) for name in ("first", "second")]
    reasons = [Reason(code=code, message="said by the test") for code in ("InsufficientGpus", "Behind")]
    await cell.say(
        node("n1", 2),
        grant(first),
        JobQueued(job_id=first, attempt=1, reason=reasons[0], line="2", leads=True),
        grant(second),
        JobQueued(job_id=second, attempt=1, reason=reasons[1], line="2", behind=first),
    )
    why = await cell.get(f"/v1/jobs/{second}/why")
    assert (why["reason"], why["behind"], why["waits_for"]) == ("Behind", first, "InsufficientGpus")
    assert set(why["waits_s"]) <= {"NotYetEvaluated", "InsufficientGpus"}
    assert {check["check"] for check in why["checks"]} == {"admission", "quota", "placement"}


def turn(number: int, **fields: list[str]) -> TimeSliceStarted:
    """A time slice on n1 that resumes no job."""
    lists: dict[str, list[str]] = {"running": [], "suspended": [], "started": [], **fields}
    why = Reason(code="SliceIsOver", message=f"slice {number} is over")
    return TimeSliceStarted(
        server="n1", nodes=["n1"], number=number, ends_s=60.0 * number, resumed=[], reason=why, **lists
    )


async def test_the_story_tells_the_turns_that_change_something_for_the_job(cell: Cell) -> None:
    job_id = await cell.submit(gpus=2)
    await cell.say(node("n1", 2), grant(job_id), placed(job_id), started("n1", job_id=job_id))
    await cell.say(turn(1, suspended=["another"], running=[job_id]), turn(2, suspended=[job_id]))
    await cell.say(JobSuspended(job_id=job_id, attempt=1, node_id="n1"), turn(3, suspended=["another"]))
    told = await cell.get(f"/v1/jobs/{job_id}/story")
    turns = [line["text"] for line in told["told"] if line["event"] == "TimeSliceStarted"]
    assert turns == [f"turn 2 on n1: {job_id} suspended (slice 2 is over)"]
    assert [line["event"] for line in told["told"]][-2:] == ["TimeSliceStarted", "JobSuspended"]


async def test_a_job_is_cancelled_once(cell: Cell) -> None:
    job_id = await cell.submit()
    first = await cell.client.post(f"/v1/jobs/{job_id}/cancel", json={"grace_s": 3, "note": "wrong data"})
    assert (first.status_code, first.json()["event"]) == (202, "job.cancel_requested.v1")
    await cell.get("/v1/jobs")
    again = await cell.client.delete(f"/v1/jobs/{job_id}")
    assert (again.status_code, again.json()["event"]) == (200, None)
    assert (await cell.get(f"/v1/jobs/{job_id}"))["message"] == "anonymous wants it cancelled: wrong data"


async def test_nothing_can_be_asked_of_a_job_that_has_ended_but_repeats_are_answered(cell: Cell) -> None:
    job_id = await cell.submit()
    key = {"Idempotency-Key": "stop"}
    asked = await cell.client.delete(f"/v1/jobs/{job_id}", headers=key)
    await cell.say(JobSucceeded(job_id=job_id, attempt=1))
    await cell.get("/v1/jobs")
    answer = await cell.client.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
    assert "SUCCEEDED" in answer.json()["detail"]
    repeated = await cell.client.delete(f"/v1/jobs/{job_id}", headers=key)
    assert (repeated.status_code, repeated.json()) == (202, asked.json())


async def test_a_job_is_paused_and_resumed(cell: Cell) -> None:
    job_id = await cell.submit()
    assert (await cell.client.post(f"/v1/jobs/{job_id}/pause")).status_code == 202
    job = await cell.get(f"/v1/jobs/{job_id}")
    assert (job["held"], job["reason"]) == (True, "OnHold")
    assert (await cell.client.post(f"/v1/jobs/{job_id}/pause")).status_code == 200
    assert (await cell.client.post(f"/v1/jobs/{job_id}/resume")).status_code == 202
    assert (await cell.get(f"/v1/jobs/{job_id}"))["held"] is False


async def test_a_change_decided_on_an_older_version_is_refused(cell: Cell) -> None:
    job_id = await cell.submit()
    seen = (await cell.client.get(f"/v1/jobs/{job_id}")).headers["etag"]
    changed = await cell.client.patch(f"/v1/jobs/{job_id}", json={"priority": 7}, headers={"If-Match": seen})
    assert (changed.status_code, changed.json()["priority"]) == (200, 7)
    late = await cell.client.patch(f"/v1/jobs/{job_id}", json={"priority": 9}, headers={"If-Match": seen})
    assert (late.status_code, late.headers["etag"]) == (412, changed.headers["etag"])
    anyway = await cell.client.patch(f"/v1/jobs/{job_id}", json={"priority": 9}, headers={"If-Match": "*"})
    assert anyway.json()["priority"] == 9


async def test_of_two_changes_decided_on_the_same_version_one_is_made(cell: Cell) -> None:
    job_id = await cell.submit()
    seen = {"If-Match": (await cell.client.get(f"/v1/jobs/{job_id}")).headers["etag"]}
    answers = await asyncio.gather(
        *(cell.client.patch(f"/v1/jobs/{job_id}", json={"priority": n}, headers=seen) for n in (1, 2, 3))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412]


async def test_a_dry_run_appends_nothing(cell: Cell) -> None:
    await cell.say(node("n1", 4), node("n2", 4))
    await cell.get("/v1/nodes")
    end = await cell.bus.end_offset(CONTROL)

    async def plan(**body: object) -> tuple[str, str]:
        answer = await cell.client.post("/v1/jobs", params={"dry_run": True}, json={"command": ["x"], **body})
        assert answer.status_code == 200, answer.text
        return answer.json()["verdict"], answer.json()["reason"]

    assert await plan(gpus=4) == ("starts", "Fits")
    assert await plan(gpus=9) == ("rejected", "NeverFits")
    assert await plan(gpus="a100:1") == ("rejected", "NeverFits")
    assert await cell.bus.end_offset(CONTROL) == end


async def test_the_most_gpus_of_an_elastic_job_are_changed_within_its_range(cell: Cell) -> None:
    job_id = await cell.submit(gpus=2, elastic="1:8")
    path = f"/v1/jobs/{job_id}"
    both = {"priority": 3, "max_gpus": 4}
    changed = [await cell.client.patch(path, json=both, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [(answer.status_code, answer.json()["max_gpus"], answer.json()["priority"]) for answer in changed] == [
        (200, 4, 3)
    ] * 2
    assert await cell.bus.end_offset(CONTROL) == 3
    for body in ({"max_gpus": 1}, {"max_gpus": 16}, {}):
        refused = await cell.client.patch(path, json=body)
        assert refused.status_code == 422, refused.text
    assert "expected from 2, which it asks for, to 8" in (await cell.client.patch(path, json={"max_gpus": 1})).text
    plain = await cell.submit()
    refused = await cell.client.patch(f"/v1/jobs/{plain}", json={"max_gpus": 1})
    assert refused.status_code == 422 and "not elastic" in refused.text


async def test_bounds_of_a_job_are_refused_where_no_gpu_could_keep_them(cell: Cell) -> None:
    job_id = await cell.submit()
    path = f"/v1/jobs/{job_id}/limits"
    for body in ({"memory_limit_bytes": 999_999}, {"memory_limit_bytes": "2GB"}, {"compute_share_ratio": 1.5}):
        refused = await cell.client.put(path, json=body)
        assert refused.status_code == 422, refused.text
    taken = await cell.client.put(path, json={"memory_limit_bytes": 2_000_000, "compute_share_ratio": 0.3})
    assert (taken.status_code, taken.json()["event"]) == (202, "job.limits_requested.v1")
    assert (await cell.client.put(path, json={})).status_code == 202, "both bounds are lifted"
    assert (await cell.client.put("/v1/jobs/j-none/limits", json={})).status_code == 404
    await cell.say(JobSucceeded(job_id=job_id, attempt=1))
    await cell.get("/v1/jobs")
    ended = await cell.client.put(path, json={"compute_share_ratio": 0.3})
    (wrong,) = ended.json()["errors"]
    assert (ended.status_code, wrong["in"], wrong["value"]) == (422, "path", job_id)
    assert wrong["message"].startswith("it has ended (SUCCEEDED)")
