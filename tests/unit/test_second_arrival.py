"""A job's id that arrives a second time, under another event id: the first arrival counts, whatever the state."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from libs.contracts.admission import JobAdmitted
from libs.contracts.base import Event
from libs.contracts.gateway import JobArrived
from libs.contracts.jobs import ElasticRange, GpuRequest, JobSpec
from libs.contracts.placement import JobPlaced, JobQueued
from libs.contracts.read_models import JobRow
from libs.inspect.conservation import Ledger
from libs.inspect.jobs import Jobs
from libs.inspect.replay import refold
from libs.kernel.service import Service
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, envelope
from libs.testing.core_case import CoreCase, node, only
from services.admission.service import SERVICE as ADMISSION
from services.projection.core import Rows, apply
from services.roster import SERVICES


def again(job_id: str) -> JobArrived:
    """The second arrival: of another job in every respect."""
    spec = JobSpec(
        name="another",
        tenant="other",
        command=["true"],
        gpus=GpuRequest(count=1),
        elastic=ElasticRange(min_gpus=1, max_gpus=4),
        priority=90,
        max_retries=7,
    )
    return JobArrived(job_id=job_id, spec=spec, submitted_by="eve")


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """Two jobs that wait while a third has all GPUs."""
    scenario = Scenario().servers(1, v100=4).job("first", 4, runs_s=50.0).job("fixed", 2, at=1.0)
    return scenario.job("elastic", 2, at=1.0, elastic=ElasticRange(min_gpus=2, max_gpus=4)).run(SERVICES)


def offset_behind(simulation: Simulation, cls: type[Event], job_id: str) -> int:
    events = ((record.offset, record.envelope.event) for record in simulation.records())
    return next(offset for offset, event in events if isinstance(event, cls) and event.subject == job_id) + 1


@pytest.mark.parametrize(
    ("job_id", "after"),
    [
        ("elastic", JobArrived),
        ("elastic", JobQueued),
        ("elastic", JobPlaced),
        ("fixed", JobQueued),
        ("fixed", JobPlaced),
    ],
)
@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_no_service_changes_its_books(simulation: Simulation, service: Service[Any], job_id: str, after: type[Event]):
    offset = offset_behind(simulation, after, job_id)
    replica = refold(simulation.records(), [service], until_offset=offset)[service.name]
    before = replica.state_bytes
    outputs = replica.take(envelope(again(job_id), 1000))
    replica.check()
    assert replica.state_bytes == before
    assert [type(output.event) for output in outputs] == ([JobAdmitted] if service is ADMISSION else [])


def test_a_job_that_waits_for_the_first_node_is_judged_once_by_its_first_arrival():
    case = CoreCase(ADMISSION)
    case.give(
        JobArrived(job_id="a", spec=JobSpec(name="a", command=["true"], gpus=GpuRequest(count=2)), submitted_by="")
    )
    case.give(again("a"))
    assert "2 GPUs" in only(case.give(node("n1", 4)), JobAdmitted).reason.message


def test_the_read_models_keep_the_first_and_the_conservation_check_names_the_second(simulation: Simulation):
    rows, jobs, ledger = Rows(), Jobs(), Ledger()
    records = list(simulation.records())
    second = structs.replace(records[-1], offset=len(records), envelope=envelope(again("fixed"), 1000))
    for record in records:
        apply(rows, record)
        jobs.take(record)
        ledger.take(record)
    row, view = rows.get(JobRow, "fixed"), jobs.jobs["fixed"]
    for fold in (lambda record: apply(rows, record), jobs.take, ledger.take):
        fold(second)
    assert rows.get(JobRow, "fixed") == row and jobs.jobs["fixed"] == view
    [violation] = ledger.close().violations
    assert (violation.offset, violation.message) == (len(records), "job fixed arrives a second time")
