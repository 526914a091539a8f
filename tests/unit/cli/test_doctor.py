"""What the doctor says of services that do not come on."""

from __future__ import annotations

from typing import Any

import pytest

from libs.cli import doctor
from libs.client import Client
from services.gateway.core import conservation

END = 100


class StandingCell(Client):
    """A cell in which no service moves."""

    def __init__(self, positions: dict[str, int]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._positions = positions

    def positions(self) -> dict[str, int] | None:
        return self._positions

    def status(self) -> dict[str, Any]:
        return {"next_offset": END}

    def dead_letters(self, *, limit: int | None = None) -> dict[str, Any]:
        newest = {"service": "placement", "job_id": None, "record": "control/0@7", "error": "cannot be"}
        return {"total": 3, "items": [newest]}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "STANDSTILL_S", 0.0)


def found(**positions: int) -> dict[str, doctor.Finding]:
    with StandingCell(positions) as cell:
        return {finding.what: finding for finding in doctor._services(cell)}


def test_a_service_at_the_end_is_well_and_one_that_stands_is_not():
    findings = found(quota=END, placement=90)
    assert findings["quota"].ok and findings["quota"].detail == "0 events behind"
    assert not findings["placement"].ok and findings["placement"].detail.startswith("10 events behind, at a standstill")


def test_a_position_that_is_missing_is_called_so():
    finding = found(quota=END)["placement"]
    assert not finding.ok
    assert finding.detail.startswith("it has no position on the log: never started, or forgotten by the broker")


def test_a_record_that_is_not_about_a_job_is_looked_for_in_the_log_of_its_service():
    with StandingCell({}) as cell:
        finding = doctor.dead_letters(cell)
    assert (finding.mark, finding.detail) == ("BAD", "3, the newest of placement: cannot be")
    assert finding.fix == "look at the log of placement: it could not take control/0@7"


def test_a_gateway_that_cannot_tell_is_no_cell_without_dead_letters():
    with Client("http://127.0.0.1:1") as cell:
        finding = doctor.dead_letters(cell)
    assert finding.mark == "BAD" and "127.0.0.1:1" in finding.detail


def test_an_agent_that_logs_errors_is_named_with_the_last_of_them():
    nodes: list[dict[str, Any]] = [
        {"id": "n1", "state": "UP", "errors": 2, "last_error": "j-1.1 cannot be launched: OSError: full"},
        {"id": "n2", "state": "UP", "errors": 0, "last_error": ""},
        {"id": "n3", "state": "LEFT", "errors": 5, "last_error": "old"},
    ]
    [found] = doctor.errors_of(nodes)
    assert (found.what, found.ok) == ("agent n1", False)
    assert found.detail == "2 errors in its log, the last one: j-1.1 cannot be launched: OSError: full"


def test_a_job_that_is_left_standing_is_no_fault_of_the_books():
    laws: list[dict[str, Any]] = [
        {"name": "every job ends once", "holds": True, "checked": 4, "violations": []},
        {"name": doctor.NONE_STANDS, "holds": False, "checked": 2, "violations": ["job j is stuck: told to start"]},
    ]
    books, stuck = doctor.light_of({"light": "red", "laws": laws})
    assert (books.mark, books.detail) == ("ok", "green  every job ends once: 4")
    assert (stuck.what, stuck.mark, stuck.detail) == ("stuck jobs", "BAD", "job j is stuck: told to start")
    laws[1] |= {"holds": True, "violations": []}
    assert [finding.mark for finding in doctor.light_of({"light": "green", "laws": laws})] == ["ok", "ok"]


def test_a_light_that_was_not_checked_is_dark():
    [books] = doctor.light_of({"light": "dark", "laws": []})
    assert (books.mark, books.detail) == ("ok", "dark  ")


def test_the_gateway_and_the_doctor_call_the_law_the_same():
    assert doctor.NONE_STANDS == conservation.NONE_STANDS


def test_what_the_kernel_does_not_bound_is_named_and_no_fault():
    nodes = [
        {"id": "n2", "state": "UP", "bounds_by": "affinity"},
        {"id": "n1", "state": "DRAINED", "bounds_by": "affinity"},
        {"id": "n3", "state": "UP", "bounds_by": "affinity+cgroup+memory+pids"},
        {"id": "n4", "state": "LOST", "bounds_by": "affinity+cgroup"},
        {"id": "n5", "state": "UP", "bounds_by": "simulation"},
    ]
    bare, whole = doctor.bounds_of(nodes)
    assert bare.mark == "–" and bare.detail.startswith("n1, n2: not bounded by the kernel: a task's processes")
    assert (whole.mark, whole.detail) == ("ok", "n3: all by the kernel")
