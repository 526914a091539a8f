"""Jobs that share simulated GPUs by what they ask of these: the coordinator itself on modelled tasks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from libs.cli.simulation import simulation_of
from libs.contracts.bad_input import BadInput
from libs.contracts.introspection import GpuLoadChanged
from libs.contracts.jobs import JobClass
from libs.contracts.placement import JobPlaced
from libs.sim.choice import Choice
from libs.sim.sharing import episodes
from libs.sim.sharing.beside import Beside
from libs.sim.sharing.costs import GATE_S
from libs.sim.sharing.demands import GIB, UNKNOWN, Demand, JobModel, JobModels, Phase, steady
from libs.sim.sharing.episodes import News, coordinated, traded
from libs.sim.sharing.reading import parse_job_models
from libs.sim.sharing.speeds import contended, packed
from libs.sim.simulation import Simulation
from libs.sim.throughputs import Throughputs
from libs.sim.traces import TraceJob
from libs.testing.builders import events

CAPACITY = 32 * GIB
LIGHT = Demand(0.4, 0.35, 4 * GIB, weight=0.5)
HEAVY = Demand(0.3, 0.95, 18 * GIB, weight=4.0, sensitivity=((0.0, 0.1), (0.9, 0.4), (1.0, 1.0)))
HARDY = Demand(0.3, 0.95, 18 * GIB, sensitivity=((0.0, 0.7), (1.0, 1.0)))
NO_RATES = Throughputs([], {}, [])
LIVE = Path(__file__).parents[2] / "bench" / "results" / "guests.json"


def played(
    models: dict[str, JobModel], beside: Beside = Beside.ANTMAN, *, guest_s: float = 300.0, **more: Any
) -> Simulation:
    jobs = [
        TraceJob(
            job_id="guest",
            submit_time_s=0.0,
            gpus=1,
            duration_s=guest_s,
            model="guest",
            job_class=JobClass.OPPORTUNISTIC,
            tenant="b",
            restartable=False,
        ),
        TraceJob(job_id="owner", submit_time_s=50.0, gpus=1, duration_s=200.0, model="owner"),
    ]
    choice = Choice(policy="antman", cluster="v100-32g=1", beside=beside, **more)
    simulation = simulation_of(jobs, NO_RATES, choice, models=JobModels(models), keep_log=True)
    simulation.run()
    return simulation


def jct_s(simulation: Simulation, job_id: str) -> float:
    outcome = simulation.outcomes[job_id]
    assert outcome.finish_s is not None and outcome.status == "SUCCEEDED", outcome
    return outcome.finish_s - outcome.submit_s


def test_jobs_that_nothing_holds_back_share_by_their_weights():
    assert packed([LIGHT]) == pytest.approx([1.0])
    equal = packed([HARDY, HARDY])
    assert equal[0] == equal[1] and 0.5 < equal[0] < 0.56
    light, heavy = packed([LIGHT, HEAVY])
    assert light < 0.4 and heavy > 0.8


def test_an_owner_without_gaps_waits_for_no_guest_at_the_end_of_one():
    gaps, none = (contended(Demand(0.005, busy, GIB), 1.0, share=0.0) for busy in (0.5, 1.0))
    assert gaps.owner_speed == pytest.approx(0.005 / (0.005 + GATE_S.value))
    assert none.owner_speed == 1.0


def test_an_owner_keeps_its_speed_beside_a_strong_guest():
    *_, settled = coordinated(CAPACITY, LIGHT, (HEAVY,), News.OWNER)
    assert settled.owner >= 0.985, "the ledger's target is 1 %, and the gates cost something"
    assert 0.5 < settled.guests[0] <= 0.75, "the gaps of 65 %, for a job that is busy for 95 % of its time"
    assert settled.for_s == math.inf


def test_an_owner_begins_when_its_guest_has_shrunk_to_its_floor():
    admission, beginning, settled = coordinated(CAPACITY, LIGHT, (HEAVY,), News.OWNER)
    assert admission.for_s >= HEAVY.minibatch_s and admission.limits == (int(0.02 * CAPACITY),)
    assert settled.limits[0] is not None and settled.limits[0] > 20 * GIB
    assert beginning.guests[0] < settled.guests[0], "what it has on the host makes it slow meanwhile"


def test_a_burst_of_the_owner_takes_memory_from_its_guest():
    burst = Demand(LIGHT.minibatch_s, LIGHT.busy_ratio, 19 * GIB)
    *first, settled = coordinated(CAPACITY, burst, (HEAVY,), News.PHASE, LIGHT)
    assert first[0].owner < settled.owner, "its first mini-batch has memory on the host"
    assert settled.limits[0] is not None and settled.limits[0] < 12 * GIB
    later, back = coordinated(CAPACITY, LIGHT, (HEAVY,), News.PHASE, burst)
    assert later.for_s == 60.0 and later.limits == settled.limits and back.limits > settled.limits


def test_guests_without_an_owner_trade_memory():
    capacity = 24 * GIB
    split = traded(capacity, (HEAVY, HARDY))
    assert split[0] is not None and split[1] is not None
    assert split[0] > split[1], "it goes to the one that suffers more without"
    speeds = [demand.speed_with(limit) for demand, limit in zip((HEAVY, HARDY), split, strict=True)]
    equal = [demand.speed_with(12 * GIB) for demand in (HEAVY, HARDY)]
    assert sum(speeds) > sum(equal)


@pytest.mark.parametrize("for_s", range(40, 100, 7))
def test_memory_that_is_on_its_way_in_a_trial_is_not_lost(for_s: float):
    capacity = 24 * GIB
    split = traded(capacity, (HEAVY, HARDY), float(for_s))
    assert sum(part for part in split if part is not None) == pytest.approx(capacity, abs=8)


def test_the_coordinator_decides_in_a_simulated_cell():
    simulation = played({"owner": steady(LIGHT), "guest": steady(HEAVY)})
    assert [event.role for event in events(simulation, JobPlaced)] == ["guest", "owner"]
    assert jct_s(simulation, "owner") == pytest.approx(200.0, rel=0.02)
    assert jct_s(simulation, "guest") > 300.0 + 50.0
    assert simulation.world.shared is not None
    usage = simulation.world.shared.close()
    assert usage.owned_s == pytest.approx(jct_s(simulation, "owner"), rel=0.01)
    assert usage.beside["owner"].work_s == pytest.approx(200.0, rel=0.01)
    assert usage.guests_work_s == pytest.approx(300.0, rel=0.001)


def test_a_gpu_that_is_busy_takes_no_guest():
    """M = 80 % (algorithm 1): the owner alone is above it, and is seen to be before the guest comes."""
    models = JobModels({"owner": steady(HARDY), "guest": steady(LIGHT)})
    guest = TraceJob(
        job_id="g", submit_time_s=60.0, gpus=1, duration_s=50.0, model="guest", job_class=JobClass.OPPORTUNISTIC
    )
    owner = TraceJob(job_id="o", submit_time_s=0.0, gpus=1, duration_s=200.0, model="owner")
    choice = Choice(policy="antman", cluster="v100-32g=1")
    simulation = simulation_of([owner, guest], NO_RATES, choice, models=models, keep_log=True)
    simulation.run()
    loads = [(event.index, event.utilisation_ratio) for event in events(simulation, GpuLoadChanged)]
    assert loads[0] == (0, 0.95)
    assert simulation.outcomes["g"].first_start_s == pytest.approx(200.0)


def test_phases_change_what_a_job_asks_for():
    model = JobModel(first=(Phase(275.0, Demand(1.0, 0.0, 0)),), cycle=(Phase(100.0, LIGHT), Phase(50.0, HEAVY)))
    assert [model.at(work_s)[1] for work_s in (0.0, 275.0, 374.9, 375.0, 425.0, 530.0)] == [
        275.0,
        375.0,
        375.0,
        425.0,
        525.0,
        575.0,
    ]
    assert model.at(100.0)[0].computes is False and model.at(380.0)[0] is HEAVY and model.peak_bytes == 18 * GIB
    simulation = played({"owner": model, "guest": steady(HARDY)}, guest_s=150.0)
    assert jct_s(simulation, "guest") < 180.0, "the owner computes on the CPU, and is taken to be stable after 60 s"


def test_packing_without_guards_fails_the_job_that_finds_too_little_memory():
    models = {"owner": steady(HEAVY), "guest": steady(HARDY)}
    simulation = played(models, Beside.PACK)
    assert simulation.outcomes["owner"].status == "FAILED"
    assert jct_s(simulation, "guest") == pytest.approx(300.0)


def test_memory_on_the_host_without_coordination_saves_the_job_and_not_its_speed():
    models = {"owner": steady(HEAVY), "guest": steady(HARDY)}
    simulation = played(models, Beside.UMEM)
    assert jct_s(simulation, "owner") > 1.5 * 200.0
    slow = played(models, Beside.UMEM, guest_s=60.0)
    assert jct_s(slow, "owner") > 1.3 * 200.0, "the guest ends early, and its memory is not given to the owner"


def test_a_guest_that_cannot_be_parked_starts_anew_behind_the_owner():
    models = {"owner": steady(HEAVY), "guest": steady(HARDY)}
    simulation = played(models, Beside.LEAVE, parks=False)
    assert jct_s(simulation, "owner") == pytest.approx(200.0)
    assert simulation.outcomes["guest"].preemptions == 1
    assert jct_s(simulation, "guest") == pytest.approx(50.0 + 200.0 + 300.0)


def test_an_unknown_model_is_taken_to_be_half_busy():
    assert JobModels().of("nothing") is UNKNOWN and UNKNOWN.busy_ratio == 0.5


GOOD: dict[str, Any] = {"work_s": 5, "minibatch_s": 0.4, "busy_ratio": 0.5, "memory_gib": 2}


def table(**changes: Any) -> dict[str, Any]:
    return {"format": "job-models/1", "models": [{"model": "m", "cycle": [GOOD | changes]}]}


def test_a_table_of_models_is_read():
    found = parse_job_models(table(sensitivity=[[0, 0.5], [1, 1]], weight=2), "t")
    demand, ends_s = found.of("m").at(3.0)
    assert demand == Demand(0.4, 0.5, 2 * GIB, 2.0, ((0.0, 0.5), (1.0, 1.0))) and ends_s == math.inf


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"busy_ratio": 1.5}, "busy_ratio"),
        ({"minibatch_s": 0}, "minibatch_s"),
        ({"memory_gib": -1}, "memory_gib"),
        ({"weight": 0}, "weight"),
        ({"work_s": "long"}, "work_s"),
        ({"sensitivity": [[0.5, 0.5], [1, 1]]}, "sensitivity"),
        ({"sensitivity": [[0, 0.5], [1, 0.9]]}, "sensitivity"),
        ({"sensitivity": [[0, 0.5, 1]]}, "sensitivity"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(changes: dict[str, Any], where: str):
    with pytest.raises(BadInput, match=where):
        parse_job_models(table(**changes), "t")


def test_a_model_without_phases_and_a_second_row_are_refused():
    row = {"model": "m", "cycle": [GOOD]}
    for models in ([row, row], [{"model": "m", "cycle": []}]):
        with pytest.raises(BadInput):
            parse_job_models({"format": "job-models/1", "models": models}, "t")


ON_THE_CPU = Demand(0.4, 0.0, 19 * GIB)


@pytest.mark.parametrize(
    "situation",
    [
        (LIGHT, (HEAVY,), News.OWNER),
        (ON_THE_CPU, (HEAVY,), News.OWNER),
        (ON_THE_CPU, (HEAVY, LIGHT), News.GUEST),
        (LIGHT, (HARDY, LIGHT), News.GUEST),
        (ON_THE_CPU, (HARDY,), News.PHASE, LIGHT),
        (HEAVY, (LIGHT,), News.PHASE, LIGHT),
        (LIGHT, (HEAVY,), News.NONE),
    ],
)
def test_steps_that_would_do_nothing_are_left_out(situation: Any, monkeypatch: pytest.MonkeyPatch):
    taken: list[int] = []
    step = episodes.step
    monkeypatch.setattr(episodes, "step", lambda *arguments: (taken.append(1), step(*arguments))[1])

    def gone_through() -> tuple[Any, int]:
        for known in (coordinated, episodes.granted, episodes._limits):
            known.cache_clear()
        taken.clear()
        return coordinated(CAPACITY, *situation), len(taken)

    found, few = gone_through()
    monkeypatch.setattr(episodes, "_waits", lambda occupant: False)
    all_of_them, many = gone_through()
    assert found == all_of_them
    assert few < many


def test_a_gate_costs_what_was_measured_live():
    rows = json.loads(LIVE.read_text())["rows"]
    (row,) = [each for each in rows if each["what"] == "from an owner's flag to a guest's gate"]
    assert 1000 * GATE_S.value == pytest.approx(row["p99_ms"], abs=0.005), "a new measurement changes both"
