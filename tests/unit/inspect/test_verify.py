"""The audit: an untouched log has no differences, and whatever is done to it is found and named."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from libs.bus.port import Message
from libs.contracts.base import Topic
from libs.inspect.differences import Kind
from libs.inspect.logs import Log, place
from libs.inspect.verify import Verification, verify
from libs.kernel.ids import derived_id
from services.roster import SERVICES
from tests.unit.inspect.small_cell import (
    audit,
    header,
    headers_of,
    messages,
    mutations,
    renumbered,
    sealed,
    small_cell,
    with_data,
    with_header,
)

DECIDED = {cls.wire_type for service in SERVICES for cls in service.emits}


def decided(message: Message) -> bool:
    return headers_of(message)["ce_type"] in DECIDED


def index_of(wire_type: str, number: int = 0) -> int:
    found = [i for i, message in enumerate(messages()) if headers_of(message)["ce_type"] == wire_type]
    return found[number]


def kinds(result: Verification) -> list[Kind]:
    return [difference.kind for difference in result.details]


def test_an_untouched_log_has_no_differences():
    result = audit(messages())
    assert result.ok and result.first is None
    assert (result.pending, result.differences) == (0, 0)
    assert result.decisions == sum(decided(message) for message in messages())
    assert result.state_hashes == {name: replica.state_hash for name, replica in small_cell().replicas.items()}


def test_every_field_of_every_record_is_protected():
    original = messages()
    for index, message in enumerate(original):
        data = msgspec.json.decode(message.value)
        for field, value in data.items():
            for changed in mutations(value):
                tampered = [*original]
                tampered[index] = with_data(message, {**data, field: changed})
                result = audit(tampered)
                assert result.first is not None, f"{field} of {message}"
                assert result.first.place == place(message)
                assert result.first.kind in (Kind.ALTERED, Kind.UNREADABLE)


def test_every_attribute_of_every_type_of_record_is_protected():
    original = messages()
    first_of_type = {headers_of(message)["ce_type"]: index for index, message in reversed(list(enumerate(original)))}
    for index in first_of_type.values():
        message = original[index]
        for name, value in headers_of(message).items():
            if name == "ce_sequence":
                continue  # see below: only its order means something
            tampered = [*original]
            tampered[index] = with_header(message, name, value + "0")
            result = audit(tampered)
            assert place(message) in [difference.place for difference in result.details], f"{name} of {message}"


def test_a_record_whose_key_is_not_its_own_is_named_with_both_keys():
    original = messages()
    chosen = [*range(0, len(original), max(1, len(original) // 6))][:6]
    chosen.append(next(i for i, message in enumerate(original) if message.partition.topic is Topic.ORDERS))
    for index in chosen:
        message = original[index]
        tampered = [*original]
        tampered[index] = replace(message, key=f"{message.key}x")
        result = audit(tampered)
        assert kinds(result) == [Kind.ALTERED], f"the key of {message}"
        [found] = result.details
        assert (found.place, found.offset) == (place(message), message.offset)
        assert found.lines()[1] == f"    key: expected {message.key}, found {message.key}x"


def test_several_altered_keys_are_all_named():
    altered = {index: replace(message, key="elsewhere") for index, message in enumerate(messages()[:7])}
    result = audit([altered.get(index, message) for index, message in enumerate(messages())])
    assert [difference.place for difference in result.details] == [place(message) for message in altered.values()]


def test_the_numbers_of_an_agent_grow():
    tampered = messages()
    index = index_of("job.exited.v1")
    assert headers_of(tampered[index])["ce_sequence"] == "3"
    tampered[index] = sealed(with_header(tampered[index], "ce_sequence", "2"))
    result = audit(tampered)
    assert kinds(result) == [Kind.MISPLACED]
    assert result.details[0].place == place(tampered[index])


def test_an_altered_decision_is_one_difference_field_by_field():
    tampered = messages()
    index = index_of("job.placed.v1")
    data = msgspec.json.decode(tampered[index].value)
    data["gang"][0]["gpu_indices"][0] = 1
    tampered[index] = with_data(tampered[index], data)
    result = audit(tampered)
    assert result.differences == 1
    assert result.first is not None
    (field,) = result.first.fields
    assert (field.field, field.expected, field.found) == ("gang[0].gpu_indices[0]", "0", "1")


def test_a_forged_decision_is_shown_with_its_cause():
    tampered = messages()
    index = index_of("job.placed.v1")
    data = msgspec.json.decode(tampered[index].value)
    data["reason"]["message"] = "because I say so"
    tampered[index] = with_data(tampered[index], data, forged=True)
    result = audit(tampered)
    assert kinds(result) == [Kind.CHANGED]
    assert result.first is not None and result.first.cause is not None
    assert (result.first.service, result.first.place) == ("placement", place(tampered[index]))
    assert result.first.cause.event == "QuotaGranted"
    shown = "\n".join(result.first.lines())
    assert 'reason.message: expected "4 free v100 on' in shown
    assert 'found "because I say so"' in shown
    assert "cause: QuotaGranted of gang at control/0@" in shown


def test_every_removed_decision_is_found_even_where_offsets_have_gaps():
    original = messages()
    for index, message in enumerate(original):
        if decided(message):
            result = audit(original[:index] + original[index + 1 :], contiguous=False)
            assert Kind.MISSING in kinds(result), message
            missing = next(d for d in result.details if d.kind is Kind.MISSING)
            assert missing.event == type_name(message)


def type_name(message: Message) -> str:
    names = {cls.wire_type: cls.__name__ for service in SERVICES for cls in service.emits}
    return names[headers_of(message)["ce_type"]]


def test_every_removed_record_is_found_where_offsets_have_no_gaps():
    original = [m for m in messages() if m.partition.topic is Topic.CONTROL]
    for index in range(len(original) - 1):
        result = audit(original[:index] + original[index + 1 :], topics=("control",))
        assert not result.ok, original[index]
        assert any(d.offset in (index, index + 1) for d in result.details)


def test_a_removed_decision_is_one_difference_after_the_offsets_were_mended():
    original = messages()
    index = index_of("quota.granted.v1", 2)
    result = audit(renumbered(original[:index] + original[index + 1 :]))
    assert result.first is not None and result.differences == 1
    assert (result.first.kind, result.first.event) == (Kind.MISSING, "QuotaGranted")
    assert result.first.cause is not None and result.first.cause.event in ("JobAdmitted", "JobSucceeded")


def test_an_inserted_decision_is_found():
    original = messages()
    index = index_of("job.queued.v1") + 1
    invented = sealed(with_header(original[index - 1], "ce_id", derived_id("placement", "unknown", 0)))
    result = audit(renumbered([*original[:index], invented, *original[index:]]))
    assert result.first is not None
    assert result.first.offset == index
    assert result.first.kind in (Kind.UNEXPECTED, Kind.CHANGED)


def test_a_repeated_record_is_found():
    original = messages()
    for index in (0, index_of("job.placed.v1"), index_of("job.exited.v1"), index_of("task.launch.v1")):
        result = audit(renumbered([*original[: index + 1], original[index], *original[index + 1 :]]))
        assert result.first is not None
        assert result.first.kind is Kind.REPEATED
        assert result.first.offset == original[index].offset + 1


def test_swapped_lines_are_found():
    original = messages()
    for index in range(len(original) - 1):
        if original[index].partition == original[index + 1].partition:
            swapped = [*original]
            swapped[index : index + 2] = [original[index + 1], original[index]]
            result = audit(swapped)
            assert place(original[index]) in [d.place for d in result.details if d.kind is Kind.MISPLACED]


def test_swapped_records_with_mended_offsets_are_found_where_the_order_means_something():
    """Two neighbours of different writers, neither the cause of the other, may stand in either order."""
    original = messages()
    found = 0
    for index in range(len(original) - 1):
        left, right = original[index], original[index + 1]
        if left.partition != right.partition or left.partition.topic is not Topic.CONTROL:
            continue
        swapped = [*original]
        swapped[index : index + 2] = [right, left]
        one, other = headers_of(left), headers_of(right)
        related = one["ce_source"] == other["ce_source"] or one["ce_id"] == other.get("ce_causationid")
        if related and one["ce_source"] != "/sanjaya/gateway":
            result = audit(renumbered(swapped))
            assert not result.ok, f"{one['ce_type']} before {other['ce_type']} at {index}"
            found += 1
    assert found > 10


def test_a_misplaced_decision_is_named_once():
    tampered = messages()
    first = index_of("job.admitted.v1")
    second = index_of("job.admitted.v1", 1)
    tampered[first], tampered[second] = tampered[second], tampered[first]
    result = audit(renumbered(tampered))
    assert Kind.MISPLACED in kinds(result)
    assert result.details[kinds(result).index(Kind.MISPLACED)].event == "JobAdmitted"


@pytest.mark.parametrize(
    ("wire_type", "field", "value"),
    [("timer.fired.v1", "due_s", 12.5), ("timer.fired.v1", "service", "quota")],
)
def test_a_forged_timer_is_found(wire_type: str, field: str, value: object):
    tampered = messages()
    index = index_of(wire_type)
    data = msgspec.json.decode(tampered[index].value)
    tampered[index] = with_data(tampered[index], {**data, field: value}, forged=True)
    result = audit(tampered)
    assert result.first is not None
    assert (result.first.kind, result.first.offset) == (Kind.UNEXPECTED, index)


def test_a_fact_must_be_signed_by_a_service_that_can_know_it():
    tampered = messages()
    index = index_of("job.started.v1")
    tampered[index] = sealed(with_header(tampered[index], "ce_source", "/sanjaya/agent/n99"))
    result = audit(tampered)
    assert kinds(result) == [Kind.FORGED]
    assert "cannot know it" in result.details[0].message


def test_a_fact_must_not_name_a_cause_that_is_not_there():
    tampered = messages()
    index = index_of("job.exited.v1")
    changed = tampered[index]
    tampered[index] = sealed(replace(changed, headers=[*changed.headers, ("ce_causationid", b"nothing")]))
    assert kinds(audit(tampered)) == [Kind.FORGED]


def test_a_record_that_cannot_be_read_is_named():
    tampered = messages()
    index = index_of("job.arrived.v1")
    tampered[index] = replace(tampered[index], headers=[("ce_id", b"x")])
    result = audit(tampered)
    assert result.first is not None
    assert (result.first.kind, result.first.offset) == (Kind.UNREADABLE, index)
    assert "header 'ce_type' is missing" in result.first.message


def test_a_changed_order_is_found():
    tampered = messages()
    index = index_of("task.launch.v1")
    data = msgspec.json.decode(tampered[index].value)
    tampered[index] = with_data(tampered[index], {**data, "command": ["rm", "-rf", "/"]}, forged=True)
    result = audit(tampered)
    assert kinds(result) == [Kind.CHANGED]
    assert [f.field for f in result.details[0].fields] == ["command[0]", "command[1]", "command[2]"]


def test_orders_that_were_not_exported_are_not_missed():
    control = [m for m in messages() if m.partition.topic is Topic.CONTROL]
    assert audit(control, topics=("control",)).ok
    assert not audit(control).ok


def turns(part: list[Message]) -> set[tuple[str, str]]:
    """Which service's handling of which event the decisions come from."""
    headers = [headers_of(message) for message in part if decided(message)]
    return {(h["ce_source"], h["ce_causationid"]) for h in headers}


def test_what_a_service_has_not_handled_yet_is_pending():
    original = [m for m in messages() if m.partition.topic is Topic.CONTROL]
    for end in range(len(original)):
        live = original[:end]
        if turns(live) & turns(original[end:]):
            continue  # a log never ends in the middle of a commit
        waiting = {service.name: end for service in SERVICES}
        cut = audit(live, topics=("control",), positions=None)
        assert cut.ok, cut.first and cut.first.lines()
        if cut.pending:
            strict = audit(live, topics=("control",), positions=waiting)
            assert kinds(strict) == [Kind.MISSING] * cut.pending


def test_a_position_says_what_may_be_pending():
    control = [m for m in messages() if m.partition.topic is Topic.CONTROL]
    arrived = index_of("job.arrived.v1")
    handled = {service.name: arrived for service in SERVICES}
    result = audit(control[: arrived + 1], topics=("control",), positions=handled)
    assert (result.differences, result.pending) == (0, 1)


@pytest.mark.parametrize("positions", [{}, {service.name: 0 for service in SERVICES}], ids=["left out", "as 0"])
@pytest.mark.parametrize("rules", ["at hand", "older"])
def test_a_forgotten_position_is_not_taken_for_a_service_that_has_handled_nothing(
    positions: dict[str, int], rules: str
):
    known = header() if rules == "at hand" else header(rules={service.name: rules for service in SERVICES})
    told = verify(Log(known, messages()), SERVICES)
    forgotten = verify(Log(msgspec.structs.replace(known, positions=positions), messages()), SERVICES)
    assert forgotten == told
    assert forgotten.ok and forgotten.pending == 0


def test_half_of_what_follows_from_one_input_is_never_pending():
    """A service appends all decisions of an input at once."""
    control = [m for m in messages() if m.partition.topic is Topic.CONTROL]
    for index in range(1, len(control)):
        one, other = headers_of(control[index - 1]), headers_of(control[index])
        if (
            decided(control[index])
            and one.get("ce_causationid") == other["ce_causationid"]
            and (one["ce_source"] == other["ce_source"])
        ):
            result = audit(control[:index], topics=("control",), positions=None)
            assert Kind.MISSING in kinds(result)
            return
    raise AssertionError("no input has two decisions")
