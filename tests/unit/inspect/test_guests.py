"""The conservation check knows owners and guests from the log alone."""

from __future__ import annotations

from msgspec.structs import replace

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced, UpgradeOffered, UpgradeWithdrawn
from libs.contracts.quota import JobUpgraded
from libs.contracts.reasons import Reason
from libs.inspect.conservation import conservation
from libs.testing.builders import envelope, records
from libs.testing.core_case import arrival, node

SAID = Reason(code="Test", message="said by the test")
OFFERED = UpgradeOffered(job_id="g", attempt=1, tenant="default", gpus=1, since_s=0.0, reason=SAID)
UPGRADED = JobUpgraded(job_id="g", attempt=1, tenant="default", gpus=1, reason=SAID)


def placed(job_id: str, role: str = "owner") -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=[0], first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=SAID, role=role)


GUEST, OWNER = placed("g", "guest"), placed("a")
BEFORE: list[Event] = [node("n1", 1, cpus=8), arrival("g", cpus=8), arrival("a", cpus=8), arrival("b", cpus=8)]


def violations(*said: Event) -> list[str]:
    return [found.message for found in conservation(records([*BEFORE, *said])).violations]


def test_a_gpu_has_one_owner_and_guests_that_are_promised_nothing():
    assert violations(GUEST, OWNER) == []
    assert violations(OWNER, GUEST) == []
    assert violations(OWNER, placed("b")) == ["GPU n1:0 is given to job b while job a holds it"]


def test_an_upgraded_guest_is_an_owner():
    assert violations(GUEST, OFFERED, UPGRADED, OWNER) == ["GPU n1:0 is given to job a while job g holds it"]
    assert violations(OWNER, GUEST, OFFERED) == ["GPU n1:0 of job g is said to have no owner while job a holds it"]


def test_what_was_decided_before_an_upgrade_was_heard_contradicts_nothing():
    said = [*BEFORE, GUEST, OFFERED, UPGRADED]
    cause = records(said)[-2].envelope.id
    crossed = replace(envelope(OWNER, 90), causation_id=cause)
    withdrawn = envelope(UpgradeWithdrawn(job_id="g", attempt=1, reason=SAID), 91)
    assert conservation(records([*said, crossed, withdrawn])).violations == []
