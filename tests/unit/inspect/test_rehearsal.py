"""A rehearsal finds what the code at hand decides otherwise, all of it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from libs.contracts.bad_input import BadInput
from libs.contracts.base import Event
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.placement import JobPlaced, LaunchTask
from libs.inspect.logs import Log
from libs.inspect.rehearsal import Rehearsal, Span, rehearse
from libs.inspect.rehearsal_page import page
from libs.inspect.replay import refold
from libs.inspect.verify import verify
from libs.kernel.ids import derived_id
from libs.kernel.replica import Replica
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, log_of
from services.placement.core.cluster import gangs
from services.roster import SERVICES
from tests.golden import accept


@pytest.fixture(scope="module")
def golden() -> Simulation:
    """The day of the golden log: failures, pauses, drains, crashes."""
    return accept.record()


@pytest.fixture
def other_tie_break(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A release that gives the last of a server's free GPUs instead of the first."""
    on_one, over_several = gangs.on_one, gangs._over_several

    def reversed_on_one(request: Any, gpu_type: str, free: Any) -> Any:
        return on_one(request, gpu_type, (free[0], free[1][::-1]))

    def reversed_over_several(request: Any, gpu_type: str, free: list[Any]) -> Any:
        return over_several(request, gpu_type, [(node, indices[::-1]) for node, indices in free])

    monkeypatch.setattr(gangs, "on_one", reversed_on_one)
    monkeypatch.setattr(gangs, "_over_several", reversed_over_several)
    yield


def by_brute_force(simulation: Simulation) -> dict[int, list[Event]]:
    """{offset of an input: what the code at hand decides on the state folded anew from the whole log before it}."""
    records = list(simulation.records())
    found: dict[int, list[Event]] = {}
    [placement] = [service for service in SERVICES if service.name == "placement"]
    for record in records:
        if placement.machine.reads(record.envelope.event):
            replica: Replica = refold(records, [placement], until_offset=record.offset)["placement"]
            found[record.offset] = [output.event for output in replica.take(record.envelope)]
    return found


def recorded_answers(simulation: Simulation) -> dict[int, list[Event]]:
    outputs = {e.id: e for e in [*simulation.log.control, *simulation.log.orders] if e.source == "placement"}
    found: dict[int, list[Event]] = {}
    for record in simulation.records():
        answers: list[Event] = []
        while (output := outputs.get(derived_id("placement", record.envelope.id, len(answers)))) is not None:
            answers.append(output.event)
        found[record.offset] = answers
    return found


def test_the_same_rules_find_nothing(golden: Simulation):
    found = rehearse(log_of(golden), SERVICES)
    assert found.ok and found.differences == 0
    assert found.decisions == len([e for e in golden.log.control + golden.log.orders if e.causation_id]) - len(
        [e for e in golden.log.control if e.source.startswith("agent/") and e.causation_id]
    )
    assert all(each.recorded == each.rehearsed == each.same for each in found.agreement.values())


def test_another_tie_break_is_found_everywhere_it_matters_and_nowhere_else(golden: Simulation, other_tie_break: None):
    found = rehearse(log_of(golden), SERVICES)
    expected, recorded = by_brute_force(golden), recorded_answers(golden)
    differing = {offset for offset, answers in expected.items() if answers != recorded[offset]}
    assert differing, "the tie-break must matter in this log"
    assert {each.offset for each in found.details} == differing
    assert found.differences == sum(
        1
        for offset in differing
        for before, after in zip(recorded[offset], expected[offset], strict=True)
        if before != after
    )
    first = found.details[0]
    assert first.recorded is not None and first.rehearsed is not None
    assert first.recorded.reason and first.rehearsed.reason
    assert first.fields
    assert set(found.asked) == {"starts"}


def test_an_unchanged_log_with_another_tie_break_is_refolded_and_verified(golden: Simulation, other_tie_break: None):
    """The log names other rules: nothing is decided again, and nothing is held against it."""
    log = log_of(golden)
    older = replace(log, header=structs.replace(log.header, rules={service.name: "older" for service in SERVICES}))
    result = verify(older, SERVICES)
    assert result.ok and result.decisions == 0 and result.refolded > 200
    assert result.state_hashes == {name: replica.state_hash for name, replica in golden.replicas.items()}
    assert not verify(log, SERVICES).ok, "decided again it differs"


def test_another_setting_is_in_force_throughout(golden: Simulation):
    setting = SettingChanged(service="placement", name="reserve_after_s", value=10.0, requested_by="test")
    found = rehearse(log_of(golden), SERVICES, changes=[setting])
    assert found.agreement["GangReserved"].rehearsed > found.agreement["GangReserved"].recorded
    assert found.agreement["JobAdmitted"].same == found.agreement["JobAdmitted"].recorded


@pytest.mark.parametrize("policy", ["gandiva", "max_min_fairness", "strict_fifo"])
def test_another_policy_says_what_it_would_have_asked_of_jobs(golden: Simulation, policy: str):
    found = rehearse(log_of(golden), SERVICES, changes=[PolicyChanged(policy=policy, requested_by="test")])
    assert not found.ok
    if policy != "strict_fifo":
        assert found.asked["starts"]
    assert found.agreement["QuotaGranted"].same == found.agreement["QuotaGranted"].recorded


def test_only_a_span_is_rehearsed(golden: Simulation, other_tie_break: None):
    whole = rehearse(log_of(golden), SERVICES)
    middle = [each.offset for each in whole.details][3]
    part = rehearse(log_of(golden), SERVICES, span=Span(from_offset=middle, to_offset=middle + 1))
    assert {each.offset for each in part.details} == {middle}
    from_then = rehearse(log_of(golden), SERVICES, span=Span(from_s=whole.details[3].time_s))
    assert {each.offset for each in from_then.details} == {
        each.offset for each in whole.details if each.time_s >= whole.details[3].time_s
    }


def test_a_log_without_orders_is_rehearsed_without_them(golden: Simulation, other_tie_break: None):
    log = log_of(golden)
    alone = Log(
        structs.replace(log.header, topics=("control",)), [m for m in log.messages if m.partition.topic == "control"]
    )
    found = rehearse(alone, SERVICES)
    assert not found.orders_compared
    assert LaunchTask.__name__ not in found.agreement and JobPlaced.__name__ in found.agreement


def test_code_that_cannot_handle_an_input_is_a_finding(golden: Simulation, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("none")

    monkeypatch.setattr(gangs, "best_fit", broken)
    found = rehearse(log_of(golden), SERVICES)
    assert not found.ok
    [said] = found.unhandled
    assert "placement cannot handle" in said and "ZeroDivisionError" in said


def test_the_page_shows_both_reasons_and_escapes_what_jobs_are_called(request: pytest.FixtureRequest):
    simulation = Scenario().servers(2, v100=4).job("<b>", 2, runs_s=10.0).run(SERVICES)
    request.getfixturevalue("other_tie_break")
    found = rehearse(log_of(simulation), SERVICES)
    assert found.details
    text = page(found, "A <rehearsal>")
    assert "A &lt;rehearsal&gt;" in text and "&lt;b&gt;" in text and "<b>: " not in text
    assert "on GPUs 0-1" in text and "on GPUs 1,0" in text
    assert "<svg" in text


def test_an_empty_log_has_nothing_to_rehearse():
    found = rehearse(Log(log_of(Scenario().servers(1, v100=1).run(SERVICES)).header, []), SERVICES)
    assert isinstance(found, Rehearsal) and found.ok and found.inputs == 0
    assert "Nothing was decided" in page(found, "empty")


def test_a_log_with_a_gap_is_refused_with_its_place(golden: Simulation):
    log = log_of(golden)
    kept = [message for message in log.messages if message.offset != 17]
    with pytest.raises(BadInput, match="control/0@18: the record after offset 16; expected offset 17"):
        rehearse(Log(log.header, kept), SERVICES)
