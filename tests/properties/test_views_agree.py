"""Two independent folds over the same log, the read models' and the inspection's, tell the same of every job."""

from __future__ import annotations

from hypothesis import given

from libs.contracts.read_models import GpuRow, JobRow
from libs.inspect.jobs import Jobs
from libs.testing.builders import Scenario
from libs.testing.strategies import scenarios
from services.projection.core import Rows, apply
from services.roster import SERVICES
from tests.properties.effort import whole_system


@whole_system
@given(scenarios())
def test_states_and_holders_agree_after_every_record(scenario: Scenario):
    simulation = scenario.run(SERVICES)
    rows, fold = Rows(), Jobs()
    for record in simulation.records():
        apply(rows, record)
        fold.take(record)
        subject = record.envelope.event.subject
        row, job = rows.get(JobRow, subject), fold.jobs.get(subject)
        if row is not None and job is not None:
            where = f"#{record.offset} {type(record.envelope.event).__name__} of {subject}"
            assert row.state == job.state, where
            assert job.cancelling or row.reason == job.said.reason.code, where
    assert {row.id: row.state for row in rows.all(JobRow)} == {j.job_id: j.state for j in fold.jobs.values()}
    assert [gpu.id for gpu in rows.all(GpuRow) if gpu.job_id] == []
