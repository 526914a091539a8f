"""What would start a waiting job, asked of a gateway that follows the log of a cell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from libs.bus import codec
from libs.bus.memory import MemoryBus
from libs.bus.naming import log_id
from libs.bus.port import BusUnavailable
from libs.contracts.gateway import PolicyChanged
from libs.forecast.answer import forecast
from libs.forecast.arrivals import Arrivals
from libs.forecast.branch import CORES, Branch, branches, started_by
from libs.inspect.rules import rules_of
from libs.runtime.snapshots import Snapshots
from libs.sim.simulation import Simulation
from libs.testing.builders import OPERATOR, Scenario
from services.gateway.adapters.cores import MOST_QUESTIONS, Cores, NotFollowed
from services.gateway.adapters.feed import Feed
from services.gateway.adapters.past_store import PastStore
from tests.integration.gateway_cell import CONTROL, LONGEST_WAIT_S, Cell, eventually, memory_bus, running_cell
from tests.unit.forecast.crowded_cell import stopped_at

pytestmark = pytest.mark.usefixtures("dated_by_sources")


async def foreseen(cell: Cell, job_id: str) -> dict[str, Any]:
    """The answer, as soon as the states are read."""
    found: dict[str, Any] = {}

    async def is_known() -> bool:
        assert not cell.gateway.stop.is_set(), "a fault in forecasts ends forecasts alone"
        answer = await cell.client.get(f"/v1/jobs/{job_id}/forecast")
        assert answer.status_code == 200 or "are being read" in answer.json()["detail"], answer.text
        found.update(answer.json() if answer.status_code == 200 else {})
        return bool(found)

    await cell.get("/v1/jobs")
    await eventually(is_known)
    return found


def expected(simulation: Simulation, job_id: str) -> dict[str, Any]:
    """What the services' own cores say."""
    arrivals = Arrivals()
    for envelope in simulation.log.control:
        arrivals.take(envelope)
    return forecast(branches(simulation.replicas, simulation.now_s, arrived=arrivals.latest), job_id).document()


async def bus_of(simulation: Simulation, bus: MemoryBus | None = None) -> MemoryBus:
    """A log with all that the simulation has recorded so far, and that it has not yet."""
    bus = bus or await memory_bus()
    await bus.append([codec.outgoing(each) for each in simulation.log.control[await bus.end_offset(CONTROL) :]])
    return bus


def go_on_to(simulation: Simulation, time_s: float) -> None:
    while simulation.now_s < time_s and simulation.advance():
        pass
    simulation.dispatcher.settle()


@pytest.fixture(autouse=True)
def _no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps here: what is foreseen unasked would depend on how fast the machine is."""
    monkeypatch.setattr("services.gateway.adapters.cores.SAMPLE_S", float("inf"))


async def test_it_is_what_the_cores_of_the_services_say(tmp_path: Path) -> None:
    simulation = stopped_at(60.0)
    bus = await bus_of(simulation)
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        found = await foreseen(cell, "job-6")
        assert found == expected(simulation, "job-6")
        assert found["options"][0]["changes"][-1]["numbers"] == {"tenant": "research", "gpus": 5}

        # What happens afterwards is in the next answer.
        go_on_to(simulation, 226.0)
        await bus_of(simulation, bus)
        again = await foreseen(cell, "job-7")
        assert {**again, "errors": {}} == {**expected(simulation, "job-7"), "errors": {}}
        assert again["errors"]["expectations"] == 1, "job-6 has started"
        assert len(simulation.log.control) == await bus.end_offset(CONTROL), "nothing is appended"


async def test_a_dry_run_says_when_the_job_would_start(tmp_path: Path) -> None:
    simulation = stopped_at(60.0)
    bus = await bus_of(simulation)
    body = {"command": ["true"], "gpus": 2, "tenant": "product"}
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        await foreseen(cell, "job-6")

        async def planned(**params: object) -> dict[str, Any]:
            answer = await cell.client.post("/v1/jobs", params={"dry_run": True, **params}, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert (await planned())["expected"] is None, "a submission does not wait for that"
        plan = await planned(expected=True)
        assert plan["verdict"] == "waits"
        assert plan["expected"]["in_s"] > 0 and plan["expected"]["basis"]
        assert plan["errors"]["expectations"] == 0
        body["gpus"] = 99
        assert (await planned(expected=True))["expected"] is None, "it would be rejected"
        assert len(simulation.log.control) == await bus.end_offset(CONTROL), "nothing is appended"


async def test_a_job_that_does_not_wait_has_no_forecast(tmp_path: Path) -> None:
    simulation = stopped_at(60.0)
    async with running_cell(
        tmp_path, bus=await bus_of(simulation), now=lambda: simulation.now_s, foresee_s=600.0
    ) as cell:
        await cell.get("/v1/jobs")
        answer = await cell.client.get("/v1/jobs/job-3/forecast")
        assert (answer.status_code, answer.json()["detail"]) == (409, "job-3 does not wait: it is RUNNING")


async def test_an_answer_is_given_within_its_time(tmp_path: Path) -> None:
    simulation = stopped_at(60.0)
    async with running_cell(
        tmp_path, bus=await bus_of(simulation), now=lambda: simulation.now_s, foresee_s=1e-9
    ) as cell:
        found = await foreseen(cell, "job-6")
    assert (found["is_complete"], found["options"]) == (False, [])
    assert (found["expected"]["how"], found["expected"]["steps"]) == ("pool", 0)


def unfed() -> Cores:
    """Of a gateway that reads nothing."""
    bus, stop = MemoryBus("lab"), asyncio.Event()
    return Cores(bus, Feed(bus, stop), "sqlite://", lambda: 0.0, 1.0, stop)


async def test_as_long_as_the_states_are_not_read_there_is_no_answer() -> None:
    with pytest.raises(NotFollowed, match="up to offset 0 of 5"):
        await unfed().forecast("job-6", 5, patience_s=0.01)


async def test_so_many_questions_wait_and_no_more() -> None:
    cores = unfed()
    asked = [asyncio.create_task(cores.forecast("job-6", 5, patience_s=LONGEST_WAIT_S)) for _ in range(MOST_QUESTIONS)]
    await asyncio.sleep(0)
    with pytest.raises(NotFollowed, match=f"^{MOST_QUESTIONS} such questions are being answered already$"):
        await cores.forecast("job-6", 5, patience_s=0.01)
    asked[0].cancel()
    await asyncio.wait(asked[:1])
    with pytest.raises(NotFollowed, match="up to offset 0 of 5"):
        await cores.forecast("job-6", 5, patience_s=0.01)
    for question in asked[1:]:
        question.cancel()


def failing_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The first look at the log goes wrong."""
    follow, errors = Cores._follow, [error]

    async def failing(cores: Cores) -> None:
        if errors:
            raise errors.pop()
        await follow(cores)

    monkeypatch.setattr(Cores, "_follow", failing)


async def test_a_log_that_is_away_for_a_moment_delays_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch, BusUnavailable("away"))
    simulation = stopped_at(60.0)
    async with running_cell(tmp_path, bus=await bus_of(simulation), now=lambda: simulation.now_s) as cell:
        assert (await foreseen(cell, "job-6"))["job_id"] == "job-6"


async def test_a_fault_ends_forecasts_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_once(monkeypatch, RuntimeError("fault"))
    simulation = stopped_at(60.0)
    async with running_cell(tmp_path, bus=await bus_of(simulation), now=lambda: simulation.now_s) as cell:
        await cell.get("/v1/jobs")
        for _ in range(2):
            answer = await cell.client.get("/v1/jobs/job-6/forecast")
            assert answer.status_code == 503
            assert "not known until the gateway is started anew" in answer.json()["detail"]
        assert not cell.gateway.stop.is_set()
        assert await cell.get("/v1/jobs")


async def test_where_nothing_happens_behind_the_snapshots_the_first_question_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.adapters.cores.HEARTBEAT_S", 10 * LONGEST_WAIT_S)
    simulation = stopped_at(60.0)
    bus = await bus_of(simulation)
    end = await bus.end_offset(CONTROL)
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        snapshots = Snapshots(cell.gateway.settings.database, "lab")
        for name in CORES:
            snapshot = simulation.replicas[name].snapshot(rules_of(f"services.{name}.service"))
            snapshots.save(replace(snapshot, next_offset=end), await log_id(bus), 0.0)
        snapshots.close()
        found, reached = await cell.gateway.cores.forecast("job-6", end, LONGEST_WAIT_S)
    assert (found.document(), reached) == (expected(simulation, "job-6"), end - 1)


async def test_the_start_of_a_suspended_job_is_counted(tmp_path: Path) -> None:
    scenario = Scenario().servers(4, v100=4).plan(0.0, PolicyChanged(policy="gandiva", requested_by=OPERATOR))
    for number in range(3):
        scenario.job(f"job-{number}", 4, at=float(number), runs_s=400.0)
    simulation = stopped_at(0.0, scenario)

    def suspended() -> list[str]:
        jobs = Branch(simulation.replicas, simulation.now_s).present("").jobs.values()
        return [job.job_id for job in jobs if job.gang and not job.is_placed and not job.held]

    while len(suspended()) < 2:
        assert simulation.advance()
        simulation.dispatcher.settle()
    [job_id, *_] = suspended()
    bus = await bus_of(simulation)
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        assert (await foreseen(cell, job_id))["expected"]["at_s"] is not None
        while job_id in suspended():
            assert simulation.advance()
            simulation.dispatcher.settle()
        await bus_of(simulation, bus)
        assert (await foreseen(cell, suspended()[0]))["errors"]["expectations"] == 1


async def test_a_gateway_that_starts_again_knows_what_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.adapters.cores.KEEP_S", 0.0)
    monkeypatch.setattr("services.gateway.adapters.cores.HEARTBEAT_S", 0.05)
    simulation = stopped_at(60.0)
    bus = await bus_of(simulation)
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        said = (await foreseen(cell, "job-6"))["expected"]["at_s"]
        store = PastStore(cell.gateway.settings.database)
        name = await log_id(bus)

        async def is_kept() -> bool:
            kept = store.load(name)
            return kept is not None and "job-6" in kept.track.said

        await eventually(is_kept)
        store.close()
    # It starts while no gateway is there.
    go_on_to(simulation, 226.0)
    await bus_of(simulation, bus)
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        errors = (await foreseen(cell, "job-7"))["errors"]
    started = next(each.time_s for each in simulation.log.control if started_by(each.event) == ["job-6"])
    assert errors["expectations"] == 1
    assert errors["median_ratio"] == pytest.approx(abs(said - started) / (started - 60.0), abs=0.05)


async def test_what_is_foreseen_unasked_is_one_job_after_the_other(tmp_path: Path) -> None:
    simulation = stopped_at(60.0)
    bus = await bus_of(simulation)
    async with running_cell(tmp_path, bus=bus, now=lambda: simulation.now_s, foresee_s=600.0) as cell:
        await foreseen(cell, "job-6")
        cores = cell.gateway.cores
        assert cores._followed is not None
        for _ in range(2):
            cores._sample(cores._followed)
        go_on_to(simulation, 10_000.0)
        await bus_of(simulation, bus)

        async def is_read() -> bool:
            return cores.reached >= simulation.log.end

        await eventually(is_read)
        assert cores._past.track.errors.expectations == 1 + 2
        # Nothing waits any more.
        cores._sample(cores._followed)
