"""The operator's light is green after every single record of any history that the services make."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.catalogue import TERMINAL
from libs.contracts.gateway import JobArrived
from libs.contracts.read_models import FINAL_STATES, EventRow, GpuRow, JobRow, NodeRow, TenantRow
from libs.testing.builders import Scenario
from libs.testing.strategies import scenarios
from services.gateway.core.conservation import Counts, check
from services.projection.core import Rows, apply
from services.roster import SERVICES
from tests.properties.effort import whole_system


@whole_system
@given(st.booleans().flatmap(lambda hosts: scenarios(hosts=hosts)))
def test_every_job_and_every_gpu_is_accounted_for_after_every_record(scenario: Scenario) -> None:
    rows = Rows()
    types: Counter[str] = Counter()
    for record in scenario.run(SERVICES).records():
        if record.topic != "control":
            continue
        apply(rows, record)
        types[record.envelope.event.wire_type] += 1
        jobs = rows.all(JobRow)
        counts = Counts(
            arrived=types[JobArrived.wire_type],
            ended=sum(types[cls.wire_type] for cls in TERMINAL),
            by_state=Counter(job.state.value for job in jobs),
        )
        live = [job for job in jobs if job.state not in FINAL_STATES]
        asking = [job for job in live if job.is_host_bound]
        laws = check(live, rows.all(GpuRow), rows.all(TenantRow), counts, rows.all(NodeRow), asking)
        assert [law.violations for law in laws if not law.holds] == [], f"#{record.offset}"
    assert len(rows.all(EventRow)) == types.total()
