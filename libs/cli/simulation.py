"""`sanjaya simulate`: from files to a run, and to its result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from libs.cli.context import FAILED, USAGE, fail
from libs.cli.progress import Watch
from libs.cli.writing import check_writable, write_text
from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import NO_GUESTS, PolicyChanged, SettingChanged
from libs.inspect.jsonl import write_jsonl
from libs.inspect.logs import simulated
from libs.policies.table import POLICIES, guests_with
from libs.runtime.roster import roster
from libs.sim.choice import Choice
from libs.sim.clusters import Cluster, parse_cluster
from libs.sim.failing import planned_ends
from libs.sim.inputs import Warn, warn_on_stderr
from libs.sim.learning import Surface, no_surface
from libs.sim.options import Options
from libs.sim.sharing.demands import JobModels
from libs.sim.sharing.reading import read_job_models
from libs.sim.simulation import Simulation, Stalled
from libs.sim.tenants import read_tenants
from libs.sim.throughputs import NO_THROUGHPUTS, Throughputs, read_throughputs
from libs.sim.traces import TraceJob, read_trace
from libs.sim.workloads import Planned, Workload, known_rates, workload_of

COST_PER_HOUR = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
"""Dollars for one GPU for one hour, as public clouds asked in 2020. The Gavel paper prints no prices; the notebook
behind its figure 1 has 2.85, 1.68 and 0.52."""
SETTINGS = ("round_s", "slice_s", "max_height", "max_guests", "guest_utilisation")
"""Of placement, as a choice may have them."""
OPERATOR = "simulate"
EVERY = 1000
"""Steps between two updates of the progress."""


def simulation_of(
    jobs: Iterable[TraceJob],
    rates: Throughputs,
    choice: Choice,
    *,
    requests: Iterable[Planned] = (),
    surface: Surface = no_surface,
    models: JobModels | None = None,
    keep_log: bool = False,
    warn: Warn | None = None,
) -> Simulation:
    """A run that has not begun.

    Args:
        jobs: of the trace.
        rates: of those that are given in steps.
        choice: the rest of the run.
        requests: come before a job of the same time.
        surface: what jobs report.
        models: what they ask of GPUs, where the choice names no file.
        keep_log: whether its records are kept.
        warn: told of jobs that have no rate.

    Raises:
        BadInput: a job has no rate (and no `warn` is given), or the cluster cannot be read.
    """
    guests = guests_with(choice.policy, choice.guests, space_sharing=choice.space_sharing)
    first = [*(Planned(0.0, event) for event in (_policy(choice, guests), *_settings(choice))), *requests]
    jobs, endings = planned_ends(jobs, choice.failures, choice.seed)
    if not choice.restartable:
        jobs = [replace(job, restartable=False) for job in jobs]
    played = workload_of(jobs, rates, on_unknown=warn)
    if choice.space_sharing:
        first.append(Planned(0.0, known_rates(played, rates, choice.references, _profiled(choice))))
    options = Options(
        checkpoint_overhead_s=choice.checkpoint_overhead_s,
        start_delay_s=choice.start_delay_s,
        suspend_delay_s=choice.suspend_delay_s,
        resume_delay_s=choice.resume_delay_s,
        move_delay_s=choice.move_delay_s,
        scales=guests != NO_GUESTS and choice.beside.scales,
        models=models if choice.models is None else read_job_models(choice.models),
        beside=choice.beside,
        parks=choice.parks,
        profile_every_s=_profile_every_s(choice),
        utilisations=choice.utilisations,
        surface=surface,
        endings=endings,
        measure=choice.measure,
        keep_log=keep_log,
    )
    servers = _cluster(choice)
    workload = Workload(tuple(first)) + played
    return Simulation(roster().SERVICES, servers, workload, seed=choice.seed, options=options, throughputs=rates)


def _policy(choice: Choice, guests: str) -> PolicyChanged:
    return PolicyChanged(
        policy=choice.policy,
        requested_by=OPERATOR,
        space_sharing=choice.space_sharing,
        heterogeneity_aware=not choice.heterogeneity_agnostic,
        water_filling=choice.water_filling,
        cost_per_hour=COST_PER_HOUR,
        guests=guests,
    )


def _settings(choice: Choice) -> Iterator[SettingChanged]:
    """Of placement, then of admission; those that are not chosen keep their defaults."""
    for name in SETTINGS:
        if (value := getattr(choice, name)) is not None:
            yield SettingChanged(service="placement", name=name, value=value, requested_by=OPERATOR)
    if above := choice.trial_above_gpus:
        yield SettingChanged(service="admission", name="trial_above_gpus", value=float(above), requested_by=OPERATOR)


def _profiled(choice: Choice) -> Callable[[], bool]:
    """Draws whether a pair was measured in advance."""
    luck = Random(f"{choice.seed}/profiled")
    return lambda: luck.random() < choice.profiled


def _cluster(choice: Choice) -> Cluster:
    return parse_cluster(choice.cluster, choice.gpus_per_server).with_trial_pool(choice.trial_pool)


def _profile_every_s(choice: Choice) -> float | None:
    """How often running jobs are measured: as asked for, else where something follows from it."""
    if choice.profile_every_s is not None:
        return choice.profile_every_s
    takes_guests = guests_with(choice.policy, choice.guests) != NO_GUESTS
    if POLICIES[choice.policy].packs_on_trial or takes_guests:
        return choice.slice_s / 3 if choice.utilisations else None
    return None if choice.references is None else choice.round_s / 2


def document_of(simulation: Simulation, choice: Choice, wall_s: float) -> dict[str, Any]:
    """The result of a run that has ended, as `simulation-result/1`; with how GPUs were used, where that was played."""
    document = simulation.result(
        policy=choice.policy, options=choice.named(), wall_s=round(wall_s, 3), cost_per_hour=COST_PER_HOUR
    )
    shared = simulation.world.shared
    return document if shared is None else document | {"sharing": shared.close().document()}


def run(
    choice: Choice,
    *,
    trace: str,
    throughputs: str | None,
    tenants: str | None = None,
    out: str,
    log: Path | None,
    watch: Watch,
) -> None:
    """Simulate and write the result; ends the process with 2 on bad input and 1 when the run would never end."""
    if choice.policy not in POLICIES:
        fail(f"unknown policy {choice.policy!r}; there are {', '.join(POLICIES)}", USAGE)
    try:
        guests_with(choice.policy, choice.guests, space_sharing=choice.space_sharing)
    except ValueError as error:
        fail(f"--guests: {error}", USAGE)
    for path in (out, log) if log is not None else (out,):
        check_writable(path)
    rates = read_throughputs(throughputs) if throughputs else NO_THROUGHPUTS
    warn = warn_on_stderr if throughputs else None
    shares = _shares(tenants, choice) if tenants else []
    simulation = simulation_of(read_trace(trace), rates, choice, requests=shares, keep_log=log is not None, warn=warn)
    if choice.measure is not None and choice.measure[0] >= len(simulation.workload.jobs):
        first, end = choice.measure
        raise BadInput("--measure", f"{first}:{end}", f"jobs of the trace, which has {len(simulation.workload.jobs)}")
    began = time.perf_counter()
    try:
        simulation.run(_every(watch, choice.measure, len(simulation.workload.jobs)))
    except Stalled as error:
        fail(str(error), FAILED)
    write_text(json.dumps(document_of(simulation, choice, time.perf_counter() - began), indent=1) + "\n", out)
    if log is not None:
        positions = {name: replica.next_offset for name, replica in simulation.replicas.items()}
        with log.open("wb") as file:
            write_jsonl(simulated("simulation", simulation.log.control, simulation.log.orders, positions), file)


def _shares(tenants: str, choice: Choice) -> list[Planned]:
    """The tenants of the run, as they are from its beginning."""
    total_gpus = _cluster(choice).shared_gpus
    found = read_tenants(tenants, gpus_per_server=choice.gpus_per_server, total_gpus=total_gpus, requested_by=OPERATOR)
    return [Planned(0.0, tenant) for tenant in found]


def _every(watch: Watch, measure: tuple[int, int] | None, jobs: int) -> Callable[[Simulation], None]:
    """Tell now and then how many of the jobs have ended that the run waits for."""
    first, end = measure or (0, jobs)
    awaited = min(end, jobs) - min(first, jobs)
    steps = 0

    def counted(simulation: Simulation) -> None:
        nonlocal steps
        steps += 1
        if steps % EVERY == 0:
            arrived = list(simulation.lives.jobs.values())[first:end]
            watch(sum(job.has_ended for job in arrived), awaited)

    return counted
