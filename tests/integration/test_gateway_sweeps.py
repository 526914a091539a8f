"""Sweeps over HTTP: accepted once, told as the sweeps service decides, ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from libs.bus import codec
from libs.contracts.gateway import SweepArrived, SweepCancelRequested
from libs.contracts.placement import JobSucceeded
from libs.contracts.searching import Scale
from services.gateway.models.sweep_request import EXAMPLE
from tests.integration.gateway_cell import CONTROL, Cell, running_cell
from tests.unit.projection.story import grant
from tests.unit.projection.sweep_story import (
    job_of,
    promoted,
    pruned,
    report,
    sweep_arrived,
    sweep_ended,
    trial,
    trial_ended,
)


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    async with running_cell(tmp_path) as cell:
        yield cell


async def events(cell: Cell) -> list[Any]:
    reader = await cell.bus.reader({CONTROL: 0})
    return [codec.record(message).envelope.event for message in await reader.next_batch(100, 1.0)]


async def searched(cell: Cell) -> None:
    """The first trial of a sweep reaches the target; the second is pruned, the third is stopped."""
    await cell.say(sweep_arrived(), *trial(0), *trial(1), *trial(2))
    await cell.say(report(0, 1, 0.5), report(1, 1, 0.3), report(0, 2, 0.7), report(1, 2, 0.4), promoted(0))
    await cell.say(pruned(1), report(0, 2, 0.1, attempt=2), trial_ended(1, "pruned", 0.4, 2), report(0, 3, 0.96))
    await cell.say(sweep_ended("target_reached", 0, 0.96), trial_ended(2, "stopped"))


async def test_a_sweep_is_on_the_log_when_it_is_answered(cell: Cell) -> None:
    answer = await cell.client.post("/v1/sweeps", json=EXAMPLE)
    assert answer.status_code == 201, answer.text
    accepted = answer.json()
    assert answer.headers["location"] == accepted["url"] == f"/v1/sweeps/{accepted['id']}"
    assert answer.headers["sanjaya-offset"] == str(accepted["offset"]) == "0"
    [event] = await events(cell)
    assert isinstance(event, SweepArrived)
    assert (event.sweep_id, event.spec.name, event.spec.space["lr"].scale) == (accepted["id"], "digits", Scale.FLOAT)
    found = (await cell.client.get(f"/v1/sweeps/{accepted['id']}")).json()
    assert (found["state"], found["planned"], found["counts"], found["trials"]) == ("RUNNING", 32, {}, [])


async def test_a_repeated_key_is_the_same_sweep(cell: Cell) -> None:
    key = {"Idempotency-Key": "k"}
    first = await cell.client.post("/v1/sweeps", json=EXAMPLE, headers=key)
    again = await cell.client.post("/v1/sweeps", json=dict(reversed(EXAMPLE.items())), headers=key)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    other = await cell.client.post("/v1/sweeps", json=EXAMPLE | {"trials": 33}, headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    job = await cell.client.post("/v1/jobs", json={"command": ["true"]}, headers=key)
    assert (job.status_code, job.json()["type"]) == (422, "/problems/key-reused")
    assert await cell.bus.end_offset(CONTROL) == 1


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"space": {"lr": {"type": "float", "low": 2, "high": 1}}}, "/space/lr"),
        ({"space": {"lr": {"type": "float", "low": "1e-4", "high": 1}}}, "/space/lr/low"),
        ({"trial": {"command": ["x"], "gpus": 0}}, "/trial/gpus/count"),
        ({"trial": {"command": ["x"], "code_id": "c-" + "a" * 32}}, "/trial/code_id"),
        ({"last_step": None}, "/favourites"),
    ],
)
async def test_a_malformed_sweep_is_refused_and_named(cell: Cell, changed: dict[str, Any], pointer: str) -> None:
    answer = await cell.client.post("/v1/sweeps", json=EXAMPLE | changed)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), answer.text
    assert await cell.bus.end_offset(CONTROL) == 0


async def test_a_misspelt_member_is_recognised(cell: Cell) -> None:
    answer = await cell.client.post("/v1/sweeps", json=EXAMPLE | {"prunner": "asha"})
    assert (answer.status_code, answer.json()["did_you_mean"]) == (422, "pruner")


async def test_a_sweep_shows_its_trials_and_their_jobs(cell: Cell) -> None:
    await searched(cell)
    await cell.say(grant(job_of(0), gpus=1), JobSucceeded(job_id=job_of(0), attempt=1))
    found = await cell.get("/v1/sweeps/digits")
    assert (found["id"], found["state"], found["message"]) == ("s", "TARGET_REACHED", "it is over")
    assert (found["metric"], found["direction"], found["target"]) == ("accuracy", "maximize", 0.95)
    assert found["counts"] == {"PRUNED": 1, "RUNNING": 1, "STOPPED": 1}
    assert (found["best_trial"], found["best_value"], found["best_parameters"]) == (0, 0.96, {"lr": 0.1})
    first, second, third = found["trials"]
    assert (first["number"], first["job_id"], first["parameters"]) == (0, job_of(0), {"lr": 0.1})
    assert (first["state"], first["job_state"], first["priority"], first["favourite"]) == (
        "RUNNING",
        "SUCCEEDED",
        2,
        True,
    )
    assert (first["reports"], first["last_step"], first["last_value"], first["best_value"]) == (3, 3.0, 0.96, 0.96)
    assert (second["state"], second["reason"], second["message"]) == ("PRUNED", "Hopeless", "comes to 0.5 ± 0.1")
    assert (second["job_state"], third["state"], third["best_value"]) == ("QUEUED", "STOPPED", None)


@pytest.mark.usefixtures("dated_by_sources")
async def test_curves_leave_out_what_an_attempt_repeats(cell: Cell) -> None:
    await searched(cell)
    found = await cell.get("/v1/sweeps/s/curves")
    curves = {curve["number"]: [(p["step"], p["value"]) for p in curve["points"]] for curve in found["trials"]}
    assert curves == {0: [(1, 0.5), (2, 0.7), (3, 0.96)], 1: [(1, 0.3), (2, 0.4)]}
    assert [(point["number"], point["value"]) for point in found["best"]] == [(0, 0.5), (0, 0.7), (0, 0.96)]
    times = [point["time_s"] for point in found["best"]]
    assert times == sorted(times) and times[0] == 7.0, "seconds since the sweep's arrival"


async def test_less_is_better_where_the_objective_says_so(cell: Cell) -> None:
    await cell.say(sweep_arrived(maximize=False), *trial(0), *trial(1))
    await cell.say(report(0, 1, 0.5), report(1, 1, 0.6), report(1, 2, 0.4), report(0, 2, 0.4))
    found = await cell.get("/v1/sweeps/s/curves")
    assert [(point["number"], point["value"]) for point in found["best"]] == [(0, 0.5), (1, 0.4)]


async def test_long_curves_are_thinned_out(cell: Cell) -> None:
    steps = 350
    await cell.say(sweep_arrived(), *trial(0), *trial(1))
    await cell.say(*(report(0, step, step / 1000) for step in range(1, steps + 1)), report(1, 1, 0.9))
    found = await cell.get("/v1/sweeps/s/curves", limit=100)
    long, short = found["trials"]
    shown = [point["step"] for point in long["points"]]
    assert (shown[0], shown[-1], len(short["points"])) == (1, steps, 1)
    assert 50 <= len(shown) <= 51 and {later - step for step, later in pairwise(shown[:-1])} == {7}
    assert len(found["best"]) == steps + 1, "the best of all is exact"


async def test_sweeps_are_listed_newest_first(cell: Cell) -> None:
    for name in ("a", "b", "c"):
        await cell.say(sweep_arrived(name, name=f"sweep-{name}"))
    page = await cell.get("/v1/sweeps", limit=2)
    assert [item["id"] for item in page["items"]] == ["c", "b"]
    rest = await cell.get("/v1/sweeps", limit=2, cursor=page["next_cursor"])
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == (["a"], None)
    await cell.say(SweepCancelRequested(sweep_id="b", requested_by="bob"))
    assert [item["id"] for item in (await cell.get("/v1/sweeps", state="STOPPING"))["items"]] == ["b"]
    assert [item["id"] for item in (await cell.get("/v1/sweeps", state=["RUNNING", "CANCELLED"]))["items"]] == [
        "c",
        "a",
    ]
    answer = await cell.client.get("/v1/sweeps/sweep-d")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        'there is no sweep "sweep-d" (did you mean "sweep-c"?)',
    )


async def test_a_sweep_is_cancelled_once(cell: Cell) -> None:
    sweep_id = (await cell.client.post("/v1/sweeps", json=EXAMPLE)).json()["id"]
    url = f"/v1/sweeps/{sweep_id[:6]}/cancel"
    await cell.get(f"/v1/sweeps/{sweep_id}")
    answer = await cell.client.post(url, json={"note": "wrong data"}, headers={"Idempotency-Key": "c"})
    assert (answer.status_code, answer.json()["event"]) == (202, "sweep.cancel_requested.v1")
    assert (await cell.get(f"/v1/sweeps/{sweep_id}"))["state"] == "STOPPING"
    assert (await cell.client.post(url)).status_code == 200
    again = await cell.client.post(url, json={"note": "wrong data"}, headers={"Idempotency-Key": "c"})
    assert (again.status_code, again.json()) == (202, answer.json())
    assert [type(event) for event in await events(cell)].count(SweepCancelRequested) == 1


async def test_what_has_ended_cannot_be_cancelled(cell: Cell) -> None:
    await searched(cell)
    await cell.get("/v1/sweeps/s")
    answer = await cell.client.post("/v1/sweeps/s/cancel")
    assert (answer.status_code, answer.json()["detail"]) == (409, "sweep s has ended (TARGET_REACHED)")


async def test_what_any_jobs_script_reports_is_among_its_metrics(cell: Cell) -> None:
    await searched(cell)
    await cell.say(report(0, 4, 0.97, loss=0.2))
    reported = (await cell.get(f"/v1/jobs/{job_of(0)}/metrics"))["reported"]
    assert [(point["attempt"], point["step"], point["value"]) for point in reported["accuracy"]] == [
        (1, 1, 0.5),
        (1, 2, 0.7),
        (2, 2, 0.1),
        (1, 3, 0.96),
        (1, 4, 0.97),
    ]
    assert [point["value"] for point in reported["loss"]] == [0.2]
    newest = (await cell.get(f"/v1/jobs/{job_of(0)}/metrics", limit=2))["reported"]
    assert {name: len(points) for name, points in newest.items()} == {"accuracy": 1, "loss": 1}
