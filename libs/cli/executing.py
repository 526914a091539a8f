"""How one run of an experiment is played: the only place where specs of runs meet the services."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from libs.cli.ideal import ideal_ends
from libs.cli.simulation import COST_PER_HOUR, document_of, simulation_of
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.gateway import TenantConfigured
from libs.contracts.introspection import PackFailed
from libs.contracts.placement import JobPacked
from libs.inspect.logs import simulated
from libs.sim.clusters import parse_cluster
from libs.sim.learning import no_surface
from libs.sim.outcomes import Outcome
from libs.sim.results import result
from libs.sim.simulation import Simulation
from libs.sim.throughputs import Throughputs
from libs.sim.traces import TraceJob
from libs.sim.workloads import Planned
from libs.studies.experiments.runs import RunSpec
from libs.studies.philly.from_log import observed_log
from libs.studies.philly.study import numbers, study
from libs.studies.report import waiting
from libs.studies.report.holdings import intervals_of
from libs.studies.report.intervals import to_rows

OPERATOR = "experiment"


def execute(spec: RunSpec) -> dict[str, Any]:
    """Play a run. The document says which job held which GPU when only if the spec asks for it.

    Raises:
        BadInput: the trace, the table or the cluster cannot be used.
        Stalled: the run would never end.
    """
    rates = spec.rates()
    jobs = spec.jobs(rates)
    return _ideal(spec, jobs, rates) if spec.ideal else _simulated(spec, jobs, rates)


def _simulated(spec: RunSpec, jobs: list[TraceJob], rates: Throughputs) -> dict[str, Any]:
    tenants = [
        Planned(0.0, TenantConfigured(tenant=tenant, gpu_limit=None, weight=weight, requested_by=OPERATOR))
        for tenant, weight in spec.tenant_weights.items()
    ]
    asked = spec.workload.requests(spec.seed) if spec.workload is not None else []
    surface = spec.workload.surface if spec.workload is not None else no_surface
    models = spec.workload.demands() if spec.workload is not None else None
    keeps_log = spec.keep_intervals or spec.keep_study
    simulation = simulation_of(
        jobs, rates, spec, requests=[*tenants, *asked], surface=surface, models=models, keep_log=keeps_log
    )
    began = time.perf_counter()
    simulation.run()
    document = document_of(simulation, spec, time.perf_counter() - began)
    if spec.keep_intervals:
        held = intervals_of(simulation.log.control, simulation.cluster, simulation.now_s)
        document["intervals"] = to_rows(held)
        document["packs"] = _packs(simulation)
        document["gangs"] = waiting.to_rows(waiting.waiting_of(simulation.log.control, held))
    if spec.keep_study:
        log = simulated(OPERATOR, simulation.log.control, simulation.log.orders, {})
        document["study"] = numbers(study(observed_log(log, OPERATOR)))
        document["reasons"] = _reasons(simulation)
    return document


def _reasons(simulation: Simulation) -> dict[str, dict[str, int]]:
    """{reason: {`drawn`, `found`: failures}}: those that the analysis classified, as drawn and as it found them."""
    endings, seen = simulation.options.endings, Counter[str]()
    found: dict[str, dict[str, int]] = {}
    for envelope in simulation.log.control:
        event = envelope.event
        if isinstance(event, FailureClassified):
            dooms, number = endings[event.job_id].dooms, seen[event.job_id]
            drawn = dooms[number].reason if number < len(dooms) else ""
            seen[event.job_id] += 1
            for kind, reason in (("drawn", drawn), ("found", event.failure)):
                found.setdefault(reason, {"drawn": 0, "found": 0})[kind] += 1
    return dict(sorted(found.items()))


def _packs(simulation: Simulation) -> dict[str, int]:
    """How many jobs were packed on trial, and how many of the trials did not help."""
    events = [type(envelope.event) for envelope in simulation.log.control]
    return {"tried": events.count(JobPacked), "undone": events.count(PackFailed)}


def _ideal(spec: RunSpec, jobs: list[TraceJob], rates: Throughputs) -> dict[str, Any]:
    """A document with the ends of jobs and nothing about GPUs, of which ideal execution knows only parts."""
    began = time.perf_counter()
    ends = ideal_ends(jobs, rates, spec)
    cluster = parse_cluster(spec.cluster, spec.gpus_per_server)
    outcomes = [
        Outcome(
            job_id=job.job_id,
            submit_s=job.submit_time_s,
            status="SUCCEEDED",
            first_start_s=job.submit_time_s,
            finish_s=ends[job.job_id],
        )
        for job in jobs
    ]
    document = result(
        outcomes,
        cluster,
        events=0,
        policy=spec.policy,
        options={**spec.named(), "ideal": True},
        seed=spec.seed,
        simulated_s=max(ends.values(), default=0.0),
        measure=spec.measure,
        cost_per_hour=COST_PER_HOUR,
        wall_s=round(time.perf_counter() - began, 3),
    )
    document["summary"] |= {"gpu_utilisation": None, "cost": None}
    return document
