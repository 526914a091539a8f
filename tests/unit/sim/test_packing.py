"""Pairs of the Gandiva paper in the simulator: packed on trial, and kept or undone by what is measured."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from libs.contracts.introspection import PackFailed, PackSucceeded
from libs.contracts.placement import JobPacked, JobUnpacked
from libs.inspect.conservation import conservation
from libs.inspect.verify import verify
from libs.sim.clusters import cluster_of
from libs.sim.options import Options
from libs.sim.simulation import Simulation
from libs.sim.throughputs import Pair, Throughputs
from libs.sim.workloads import Planned, Workload, arrival
from libs.testing.builders import Spec, events, log_of
from services.roster import SERVICES

GAINS = {"vae": (0.12, 4.12), "super-resolution": (0.14, 1.45), "rhn": (0.62, 0.11), "lstm": (0.48, -0.16)}
"""{model: GPU utilisation, gain of packing over turns}, after table 1 of OSDI'18; two cannot gain more than 1."""
RATE = 10.0


def simulated(model: str, steps: float = 10_000.0) -> Simulation:
    """Two jobs of the model on one GPU."""
    utilisation, gain = GAINS[model]
    config = (model, None, 1)
    packed = RATE * min(1.0, (1.0 + gain) / 2)
    pair = Pair(a=config, b=config, gpu_type="p40", consolidated=True, a_steps_per_s=packed, b_steps_per_s=packed)
    throughputs = Throughputs(["p40"], {(config, True): {"p40": RATE}}, [pair])
    jobs = [arrival(0.0, name, Spec(name).trains(model, None, steps).build(), "ada") for name in ("one", "two")]
    workload = Workload((Planned(0.0, PolicyChanged(policy="gandiva", requested_by="op")), *jobs))
    options = Options(profile_every_s=20.0, utilisations={model: utilisation})
    simulation = Simulation(SERVICES, cluster_of({"p40": 1}, 1), workload, throughputs=throughputs, options=options)
    simulation.run()
    return simulation


@pytest.mark.parametrize("model", GAINS)
def test_a_pair_is_kept_if_it_gained_in_the_paper_and_undone_if_it_lost(model: str):
    simulation = simulated(model)
    gains = GAINS[model][1] > 0
    [packed] = events(simulation, JobPacked)
    [verdict] = events(simulation, PackSucceeded if gains else PackFailed)
    assert events(simulation, PackFailed if gains else PackSucceeded) == []
    assert verdict.packed_ratio == pytest.approx(min(2.0, 1.0 + GAINS[model][1]))
    assert len(events(simulation, JobUnpacked)) == (0 if gains else 1)
    assert {packed.job_id, packed.with_job} == {"one", "two"}
    assert conservation(simulation.records()).violations == []
    assert verify(log_of(simulation), SERVICES).ok


def test_a_pack_that_gains_ends_sooner_than_turns_and_one_that_loses_costs_a_trial_at_most():
    by_turns_s = 2 * 10_000 / RATE
    ends = {m: max(j.finish_s or 0.0 for j in simulated(m).outcomes.values()) for m in GAINS}
    assert ends["vae"] < 0.6 * by_turns_s and ends["rhn"] < by_turns_s
    assert by_turns_s < ends["lstm"] < by_turns_s + 60.0
