"""A replica is a pure function of its records."""

import msgspec
import pytest

from libs.contracts.base import event_classes
from libs.contracts.envelope import Envelope, Record
from libs.contracts.quota import QuotaGranted
from libs.contracts.runtime import TimerFired
from libs.kernel.ids import derived_id, move_id, short_id
from libs.kernel.machine import Machine
from libs.kernel.replica import Replica, SnapshotDamaged, UndeclaredOutput
from libs.kernel.service import Service
from libs.testing.core_case import arrival, node
from schemas import examples
from services import roster
from services.admission.service import SERVICE as ADMISSION


def record(offset: int, event: object, event_id: str | None = None, time_s: float = 0.0) -> Record:
    envelope = Envelope(id=event_id or f"e{offset}", source="test", time_s=time_s, event=event)  # type: ignore[arg-type]
    return Record(topic="control", partition=0, offset=offset, appended_at_s=0.0, envelope=envelope)


RECORDS = [record(0, node("n1", 4)), record(1, arrival("a", 2)), record(2, arrival("b", 9)), record(3, arrival("c"))]


def test_outputs_derive_their_ids_time_and_cause_from_the_input():
    replica = Replica(ADMISSION)
    replica.step(RECORDS[0])
    [output] = replica.step(record(1, arrival("a"), "cause", time_s=7.5))
    assert (output.id, output.causation_id, output.time_s, output.source) == (
        derived_id("admission", "cause", 0),
        "cause",
        7.5,
        "admission",
    )


def test_time_never_goes_back():
    replica = Replica(ADMISSION)
    replica.step(record(0, node("n1", 4), time_s=10.0))
    [output] = replica.step(record(1, arrival("a"), time_s=5.0))
    assert output.time_s == 10.0


def test_a_record_seen_before_changes_nothing_by_offset_and_by_id():
    replica = Replica(ADMISSION)
    for r in RECORDS:
        replica.step(r)
    before = replica.state_hash
    assert replica.step(RECORDS[1]) == []
    assert replica.step(record(9, arrival("a", 2), "e1")) == []
    assert replica.state_hash == before


@pytest.mark.parametrize("cut", range(len(RECORDS) + 1))
def test_a_snapshot_and_the_tail_are_the_whole(cut: int):
    whole, first = Replica(ADMISSION), Replica(ADMISSION)
    expected = [output for r in RECORDS for output in whole.step(r)]
    before = [output for r in RECORDS[:cut] for output in first.step(r)]
    second = Replica.restore(ADMISSION, first.snapshot())
    after = [output for r in RECORDS[cut:] for output in second.step(r)]
    assert before + after == expected
    assert second.state_hash == whole.state_hash


def test_a_damaged_snapshot_is_refused():
    replica = Replica(ADMISSION)
    for r in RECORDS:
        replica.step(r)
    snapshot = replica.snapshot()
    for damage in (
        {"state": snapshot.state.replace(b"v100", b"k100")},
        {"state": b"{"},
        {"service": "quota"},
    ):
        with pytest.raises(SnapshotDamaged):
            Replica.restore(ADMISSION, msgspec.structs.replace(snapshot, **damage))


def test_an_output_of_a_service_that_only_listens_is_refused():
    broken = Service(
        name="admission", question="", machine=ADMISSION.machine, state_type=ADMISSION.state_type, silent=True
    )
    replica = Replica(broken)
    replica.step(RECORDS[0])
    with pytest.raises(UndeclaredOutput, match="JobAdmitted"):
        replica.step(RECORDS[1])


def test_two_entries_for_one_event_are_refused():
    machine: Machine[None] = Machine("twice")
    machine.evolves(QuotaGranted)(lambda state, event, now_s: None)
    with pytest.raises(ValueError, match="two entries"):
        machine.evolves(QuotaGranted)(lambda state, event, now_s: None)


def test_short_ids_are_stable_and_copyable():
    assert short_id("j", "key") == short_id("j", "key")
    assert short_id("j", "key") != short_id("j", "other")
    assert short_id("j", "key")[2:].isalnum()


def test_ids_of_jobs_and_sweeps_have_80_bits_and_those_of_moves_stay_as_they_are_recorded():
    assert short_id("j", "key") == "j-lq6ozog67umtemyl"
    assert {len(short_id(prefix, str(number))) for prefix in "js" for number in range(100)} == {18}
    assert move_id("key") == "m-lq6ozog67u"


@pytest.mark.parametrize("name", roster.NAMES)
def test_a_machine_reads_the_types_that_it_names_as_inputs(name: str):
    machine = roster.service(name).machine
    read = [cls for cls in event_classes() if cls is not TimerFired and machine.reads(examples.of(cls))]
    assert read == [cls for cls in machine.inputs if cls is not TimerFired]
