"""Users whose jobs fail again and again, and inputs that several users' jobs find wrong."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.failure_analysis import (
    FailureClassified,
    FailureObserved,
    InputQuarantined,
    InputReleased,
    RepeatNoticed,
    RulesLoaded,
)
from libs.contracts.gateway import InputReleaseRequested
from libs.contracts.placement import AttemptFailed
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, arrival, only
from services.failure_analysis.service import SERVICE

WHY = Reason(code="Test", message="said by the test")
X, Y = "/data/x.csv", "/data/y.csv"


class Cell:
    """Jobs that fail by a line."""

    def __init__(self, *, follows: bool = True) -> None:
        self.case = CoreCase(SERVICE)
        self.follows = follows
        if follows:
            self.case.give(RulesLoaded(digest="d" * 32, rules=1), at=0.0)

    def fails(
        self,
        job_id: str,
        user: str,
        cause: str = "json_broken",
        *,
        reason: str = "incorrect_inputs",
        category: str = "user",
        line: str = "a line",
        data: tuple[str, ...] = (),
        at: float | None = None,
    ) -> list[Event]:
        """Returns what follows beside the verdict."""
        self.case.give(arrival(job_id, user=user, data=list(data)), at=at)
        said = self.case.give(
            AttemptFailed(
                job_id=job_id, attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", reason=WHY
            )
        )
        if self.follows:
            said = self.case.give(
                FailureObserved(
                    job_id=job_id,
                    attempt=1,
                    rule="r",
                    digest="d" * 32,
                    failure=reason,
                    category=category,
                    cause=cause,
                    retry_can_help=False,
                    confidence=0.9,
                    level=38,
                    line=line,
                    complete=True,
                )
            )
        assert isinstance(said[0], FailureClassified)
        return [event for event in said if isinstance(event, RepeatNoticed | InputQuarantined)]


def test_three_jobs_of_one_user_with_one_cause_are_said_and_counted_anew():
    cell = Cell()
    assert cell.fails("a", "ada", at=0.0) == cell.fails("b", "ada", at=5.0) == []
    assert cell.fails("c", "bob", at=6.0) == cell.fails("d", "ada", "key_error", at=7.0) == []
    noticed = only(cell.fails("e", "ada", at=10.0), RepeatNoticed)
    assert (noticed.user, noticed.cause, noticed.jobs) == ("ada", "json_broken", ["a", "b", "e"])
    assert noticed.reason.message == "3 jobs failed of json_broken within 10 s"
    assert cell.fails("f", "ada") == []


def test_what_is_not_the_users_to_mend_is_not_held_against_a_user():
    cell = Cell()
    for job in "abcd":
        assert cell.fails(job, "ada", "peer_lost", reason="mpi_runtime_failure", category="infrastructure") == []


def test_two_users_jobs_on_one_input_bring_it_into_quarantine_until_it_is_released():
    cell = Cell()
    assert cell.fails("a", "ada", data=(X,)) == cell.fails("b", "ada", data=(X,)) == []
    quarantined = only(cell.fails("c", "bob", "table_broken", data=(X,), at=9.0), InputQuarantined)
    assert (quarantined.input, quarantined.jobs, quarantined.users) == (X, ["a", "b", "c"], ["ada", "bob"])
    assert quarantined.reason.message == (
        "3 jobs of 2 users (ada, bob) failed of it (json_broken, table_broken), the last at 1970-01-01 00:00:09 UTC; "
        f"sanjaya failures release {X}"
    )
    assert cell.fails("d", "eve", data=(X,)) == []  # it is there already
    ask = InputReleaseRequested(input=X, requested_by="op")
    assert only(cell.case.give(ask), InputReleased).reason.message == "op has released it"
    assert cell.case.give(ask) == []
    assert cell.fails("e", "ada", "k1", data=(X,)) == []


def test_only_the_input_that_the_line_names_is_at_fault_where_it_names_one():
    cell = Cell()
    cell.fails("a", "ada", data=(X, Y), line=f"cannot read {Y}")
    assert only(cell.fails("b", "bob", data=(X, Y), line=f"cannot read {Y}"), InputQuarantined).input == Y


def test_programs_that_are_wrong_do_not_speak_against_their_input():
    cell = Cell()
    for job, user in zip("abc", ("ada", "bob", "eve"), strict=True):
        assert cell.fails(job, user, "key_error", reason="semantic_error", data=(X,)) == []


def test_what_was_long_ago_does_not_count():
    cell = Cell()
    cell.fails("a", "ada", data=(X,), at=0.0)
    assert cell.fails("b", "bob", data=(X,), at=90_000.0) == []


def test_nothing_is_counted_where_lines_are_not_followed():
    cell = Cell(follows=False)
    for job in "abcd":
        assert cell.fails(job, "ada", data=(X,)) == []
    assert cell.case.replica.state.repeats == {}
