"""A GPU or a node that several jobs have failed of is suspected; one that users' errors are told of never is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import FailureObserved, GpuSuspected, NodeSuspected, RulesLoaded
from libs.contracts.gateway import SettingChanged
from libs.contracts.placement import AttemptFailed, JobPlaced
from libs.contracts.reasons import Reason
from libs.failures.consequences import blames_hardware
from libs.failures.package import package_files
from libs.testing.core_case import CoreCase, arrival, only
from services.failure_analysis.service import SERVICE

WHY = Reason(code="Test", message="said by the test")
RULES = {rule.cause: rule for rule in package_files().rules}
OF_USERS = sorted(cause for cause, rule in RULES.items() if rule.category == "user")


class Cell:
    """Jobs that fail on nodes of four GPUs."""

    def __init__(self) -> None:
        self.case = CoreCase(SERVICE)
        self.case.give(RulesLoaded(digest="d" * 32, rules=1), at=0.0)

    def fails(
        self,
        job_id: str,
        cause: str,
        *,
        index: int = 0,
        node_id: str = "n1",
        user: str = "ada",
        attempt: int = 1,
        at: float | None = None,
    ) -> list[Event]:
        """Returns what was said of GPUs and nodes."""
        rule = RULES[cause]
        give = self.case.give
        gang = [TaskPlacement(node_id=node_id, gpu_indices=[index], first_rank=0)]
        give(arrival(job_id, user=user, max_retries=9), at=at)
        give(JobPlaced(job_id=job_id, attempt=attempt, gang=gang, reason=WHY))
        give(
            AttemptFailed(
                job_id=job_id,
                attempt=attempt,
                node_id=node_id,
                exit_code=1,
                signal=None,
                outcome="exited",
                reason=WHY,
            )
        )
        said = give(
            FailureObserved(
                job_id=job_id,
                attempt=attempt,
                rule=rule.id,
                digest="d" * 32,
                failure=rule.reason,
                category=rule.category,
                cause=cause,
                retry_can_help=True,
                confidence=0.9,
                level=rule.rank,
                line=rule.example,
                rank=0,
                node_id=node_id,
                complete=True,
            )
        )
        return [event for event in said if isinstance(event, GpuSuspected | NodeSuspected)]


def test_a_gpu_is_suspected_of_the_third_job_that_failed_of_it():
    cell = Cell()
    assert cell.fails("a", "xid_79", index=2, at=10.0) == []
    assert cell.fails("b", "ecc_uncorrectable", index=2, user="bob", at=20.0) == []
    assert cell.fails("c", "xid_79", index=2, node_id="n2", at=25.0) == []
    suspected = only(cell.fails("d", "xid_79", index=2, at=30.0), GpuSuspected)
    assert (suspected.node_id, suspected.index, suspected.jobs) == ("n1", 2, ["a", "b", "d"])
    assert suspected.causes == ["ecc_uncorrectable", "xid_79"]
    assert suspected.reason.message == ("3 jobs of 2 users failed there within 20 s, of ecc_uncorrectable, xid_79")
    assert cell.fails("e", "xid_79", index=2) == []  # it counts from the beginning again


def test_failures_all_over_a_node_are_the_nodes():
    cell = Cell()
    for number, job in enumerate("ab"):
        assert cell.fails(job, "ib_port_down", index=number) == []
    assert only(cell.fails("c", "nvswitch_error", index=2), NodeSuspected).jobs == ["a", "b", "c"]


def test_one_job_alone_speaks_against_nothing_however_often_it_fails():
    cell = Cell()
    for attempt in range(1, 9):
        assert cell.fails("a", "xid_79", attempt=attempt) == []


def test_what_was_long_ago_does_not_count():
    cell = Cell()
    cell.fails("a", "xid_79", at=0.0)
    cell.fails("b", "xid_79", at=80_000.0)
    assert cell.fails("c", "xid_79", at=90_000.0) == []


def test_other_nodes_failures_do_not_count():
    cell = Cell()
    for number, job in enumerate("abcdef"):
        assert cell.fails(job, "xid_79", node_id=f"n{number % 3}") == []


def test_it_can_be_turned_off():
    cell = Cell()
    cell.case.give(SettingChanged(service="failure_analysis", name="blame_failures", value=0, requested_by="op"))
    assert not [said for job in "abcdef" for said in cell.fails(job, "xid_79")]


def test_no_cause_of_users_speaks_against_hardware():
    assert [cause for cause in OF_USERS if blames_hardware(cause)] == []
    assert blames_hardware("xid_79") and not blames_hardware("xid_31")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OF_USERS), st.integers(0, 3), st.sampled_from("ab"), st.floats(0.0, 1e5)),
        max_size=8,
    )
)
def test_errors_of_users_never_bring_hardware_under_suspicion(failures: list[tuple[str, int, str, float]]):
    cell, now_s = Cell(), 0.0
    for number, (cause, index, user, after_s) in enumerate(failures):
        now_s += after_s
        assert cell.fails(f"j{number}", cause, index=index, user=user, at=now_s) == []
