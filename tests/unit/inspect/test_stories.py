"""Story, why, diff, replay, conservation and the timeline, on a small log."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from libs.contracts.agent import JobExited
from libs.contracts.base import Topic, event_classes
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Record
from libs.contracts.gateway import JobArrived, PolicyChanged
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.contracts.read_models import JobState
from libs.contracts.reasons import Reason
from libs.inspect.chrome_trace import write_chrome_trace
from libs.inspect.conservation import conservation
from libs.inspect.diff import diff
from libs.inspect.jobs import jobs_of
from libs.inspect.replay import ReplayViolation, refold, state_at
from libs.inspect.sentences import says, sentence
from libs.inspect.story import story
from libs.inspect.why import Explanation, why
from libs.kernel.replica import Replica
from libs.kernel.service import InvariantViolated
from libs.testing.builders import Scenario, Spec, altered, envelope, log_of, records
from libs.testing.core_case import arrival, node
from services.placement.core.jobs import Phase
from services.roster import SERVICES
from tests.unit.inspect.small_cell import small_cell


def all_records() -> list[Record]:
    return list(log_of(small_cell()).records())


def control() -> list[Record]:
    return list(small_cell().records())


def test_every_event_of_control_and_orders_has_a_sentence():
    mute = [c.__name__ for c in event_classes() if c.topic in (Topic.CONTROL, Topic.ORDERS) and not says(c)]
    assert mute == []
    for record in all_records():
        assert sentence(record.envelope.event)


def test_the_story_of_a_job_tells_causes_before_effects():
    told = story(all_records(), "long").told
    assert [line.event for line in told[:3]] == ["JobArrived", "JobAdmitted", "QuotaGranted"]
    assert [line.depth for line in told[:3]] == [0, 1, 2]
    offsets = {line.id: i for i, line in enumerate(told)}
    by_id = {record.envelope.id: record.envelope for record in all_records()}
    for line in told:
        cause = by_id[line.id].causation_id
        assert cause not in offsets or offsets[cause] < offsets[line.id]
    assert told[-1].event == "JobSucceeded"


def test_the_story_names_what_came_from_elsewhere():
    told = story(all_records(), "long").told
    lost = next(line for line in told if line.event == "NodeLost")
    assert lost.aside
    assert lost.text.startswith("(v100-001) node v100-001 is lost")
    following = told[told.index(lost) + 1]
    assert (following.event, following.cause_offset) == ("JobPreempted", lost.offset)


def test_orders_stand_behind_the_decision_that_they_carry_out():
    told = story(all_records(), "gang").told
    names = [line.event for line in told]
    place = names.index("JobPlaced")
    assert names[place + 1 : place + 3] == ["LaunchTask", "LaunchTask"]
    assert "LaunchTask" not in [line.event for line in story(control(), "gang").told]


def test_a_suspension_stands_behind_the_turn_that_asks_for_it():
    scenario = Scenario().servers(1, v100=1)
    scenario.plan(0.0, PolicyChanged(policy="gandiva", note="", requested_by="operator"))
    simulation = scenario.job("a", runs_s=200.0).job("b", runs_s=200.0).run(SERVICES)
    told = story(log_of(simulation).records(), "a").told
    names = [line.event for line in told]
    first = names.index("SuspendTask")
    assert names[first - 1] == "TimeSliceStarted"
    assert told[first - 1].text.startswith("turn 1 on v100-000: a suspended; b started (")
    lone = [line.text for line in told if line.event == "TimeSliceStarted" and "a suspended" not in line.text]
    assert all("a resumed" in text for text in lone) and lone, "a slice in which a goes on is no part of its story"


def test_the_story_reads_well():
    lines = story(all_records(), "small").lines()
    assert lines[0].endswith("gateway: ada submits 'small' for tenant default: 1 GPU")
    assert any("placement: attempt 1 gets v100-00" in line for line in lines)
    assert lines[-1].endswith("placement: succeeded with attempt 1")


def test_a_node_has_a_story_and_a_stranger_has_none():
    told = [line.event for line in story(all_records(), "v100-000").told]
    assert "NodeDrainRequested" in told and "NodeDrained" in told and "LaunchTask" in told
    assert story(all_records(), "unknown").told == []


def test_why_gives_the_reason_that_stands_on_the_log():
    arrived = next(r.offset for r in control() if r.envelope.event.subject == "late")
    waiting = why(control()[: arrived + 4], "late")
    assert waiting is not None
    assert (waiting.state, waiting.reason.code) == (JobState.QUEUED, "InsufficientGpus")
    assert waiting.reason.numbers["gpus"] == 3
    assert waiting.decided_by == "placement"
    assert control()[waiting.offset].envelope.event.reason == waiting.reason
    assert "QUEUED for" in waiting.lines()[0]
    assert any("not v100-" in line for line in waiting.lines())


def test_why_says_for_how_long_a_job_has_waited_by_cause_and_behind_which_other_it_is():
    scenario = Scenario().servers(v100=1).job("a", runs_s=100).job("b", runs_s=50, at=10).job("c", runs_s=50, at=20)
    records = list(scenario.pause("c", at=30, until=45).run(SERVICES).records())

    def at(time_s: float) -> Explanation:
        explained = why((each for each in records if each.envelope.time_s <= time_s), "c", time_s)
        assert explained is not None
        return explained

    assert at(25).waits_s == pytest.approx({"InsufficientGpus": 5}) and at(40).waits_for == "OnHold"
    assert at(60).waits_s == pytest.approx({"InsufficientGpus": 25, "OnHold": 15})
    assert (at(60).behind, at(60).waits_for, at(120).behind) == ("b", "InsufficientGpus", "")
    assert "  behind b, which waits for InsufficientGpus" in at(60).lines()
    assert "  has waited 40 s: InsufficientGpus 25 s, OnHold 15 s" in at(60).lines()
    assert sum(at(300).waits_s.values()) == pytest.approx(130)


def test_why_of_jobs_that_have_ended():
    rejected, cancelled, done = (why(control(), job_id) for job_id in ("huge", "gone", "long"))
    assert rejected is not None and cancelled is not None and done is not None
    assert (rejected.state, rejected.reason.code) == (JobState.REJECTED, "ExceedsQuota")
    assert (cancelled.state, cancelled.reason.code) == (JobState.CANCELLED, "CancelRequested")
    assert (done.state, done.placed_on) == (JobState.SUCCEEDED, "")
    assert [w.code for w in done.before][:2] == ["NotYetEvaluated", "NotYetEvaluated"]
    assert why(control(), "unknown") is None


def test_why_of_a_paused_job_says_whether_it_has_its_gpus_still():
    def reason_at(time_s: float, **options: float) -> Reason:
        scenario = Scenario().servers(v100=1).job("a", runs_s=100).job("b", runs_s=50, at=1.0).options(**options)
        records = scenario.pause("a", at=30.0, until=70.0).run(SERVICES).records()
        explained = why((record for record in records if record.envelope.time_s <= time_s), "a")
        assert explained is not None and explained.state is JobState.SUSPENDED
        return explained.reason

    assert "paused: its memory is parked on v100-000, and its GPUs are given away" in reason_at(40.0).message
    assert (reason_at(40.0).code, reason_at(75.0).code) == ("OnHold", "InsufficientGpus")
    kept = reason_at(65.0, suspend_delay_s=40.0)
    assert kept.code == "OnHold" and "came to no mini-batch boundary within 30 s" in kept.message


def test_the_fold_of_jobs_knows_every_state_on_the_way():
    seen: dict[str, list[str]] = {}
    for end in range(1, len(control()) + 1):
        for job in jobs_of(control()[:end]).values():
            states = seen.setdefault(job.job_id, [])
            if not states or states[-1] != job.state.value:
                states.append(job.state.value)
    assert seen["small"] == ["QUEUED", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED"]
    assert seen["huge"] == ["QUEUED", "REJECTED"]
    assert seen["gone"][-2:] == ["STOPPING", "CANCELLED"]
    assert "SUSPENDED" in seen["long"]
    assert "MIGRATING" in seen["gone"]


def test_a_log_does_not_differ_from_itself_nor_from_its_twin():
    def run(shift_s: float) -> list[Record]:
        scenario = Scenario().servers(v100=2).job("a", at=shift_s, runs_s=10.0).job("b", 2, at=shift_s + 1)
        return list(scenario.run(SERVICES).records())

    assert diff(control(), control()) == []
    assert diff(run(0.0), run(500.0)) == []


def test_jobs_under_other_ids_are_compared_by_name():
    def run(job_id: str, runs_s: float) -> list[Record]:
        scenario = Scenario().servers(1, v100=2).job("blocker", runs_s=runs_s)
        return list(scenario.job(job_id, 2, at=1.0, spec=Spec("resnet").gpus(2)).run(SERVICES).records())

    assert diff(run("j-1", 50.0), run("j-2", 50.0)) == []


def test_a_difference_is_told_in_words():
    whole, cut = Scenario().servers(v100=1), Scenario().servers(v100=1).cancel("b", at=5.0)
    left, right = (list(each.job("a").job("b").run(SERVICES).records()) for each in (whole, cut))
    differences = diff(left, right)
    assert {difference.subject for difference in differences} == {"b"}, "job a has the same history in both"
    words = "\n".join(line for difference in differences for line in difference.lines())
    assert words.startswith("b: instead\n  a #")
    assert "attempt 1 gets v100-000:0" in words
    assert "ada wants it cancelled" in words


def test_one_event_against_another_is_compared_field_by_field():
    place = next(i for i, r in enumerate(control()) if isinstance(r.envelope.event, JobPlaced))
    changed = control()
    placed = changed[place].envelope
    changed[place] = altered_record(changed[place], attempt=7)
    (difference,) = diff(control(), changed)
    assert difference.subject == placed.event.subject
    assert difference.fields == ["attempt: 1 in a, 7 in b"]


def altered_record(record: Record, **fields: object) -> Record:
    event = altered(record.envelope.event, **fields)
    changed = envelope(event, at=record.envelope.time_s, source=record.envelope.source)
    return Record(topic=record.topic, partition=0, offset=record.offset, appended_at_s=0.0, envelope=changed)


def test_the_log_is_folded_to_the_states_of_the_run():
    folded = refold(all_records(), SERVICES)
    assert hashes(folded) == hashes(small_cell().replicas)
    assert sum(replica.decided for replica in folded.values()) > 0


def hashes(replicas: dict[str, Replica[Any]]) -> dict[str, str]:
    return {name: replica.state_hash for name, replica in replicas.items()}


def test_the_state_at_an_offset():
    placed = next(r for r in control() if isinstance(r.envelope.event, JobPlaced))
    before = state_at(control(), SERVICES, 0)["placement"]
    cause = next(r.offset for r in control() if r.envelope.id == placed.envelope.causation_id)
    after = state_at(control(), SERVICES, cause + 1)["placement"]
    assert before.jobs == {}
    assert after.jobs[placed.envelope.event.subject].phase is Phase.ACTIVE


def test_a_state_that_contradicts_itself_is_not_given_out():
    def never_right(state: object) -> None:
        raise InvariantViolated("two is three")

    broken = [replace(SERVICES[0], check=never_right)]
    with pytest.raises(ReplayViolation, match=r"admission, after control/0@\d+: two is three"):
        refold(control(), broken)


def test_the_books_of_a_sound_log_balance():
    books = conservation(all_records())
    assert books.ok
    assert books.jobs == {"SUCCEEDED": 4, "CANCELLED": 1, "REJECTED": 1}
    assert (books.jobs_total, books.gpus_total, books.gpus_held) == (6, 4, 0)
    half = conservation(control()[: len(control()) // 2])
    assert half.ok
    assert half.gpus_held + half.gpus_free + half.gpus_away == half.gpus_total == 4
    assert sum(half.jobs.values()) == half.jobs_total


SAID = Reason(code="Test", message="")


def placed(job_id: str, *indices: int, attempt: int = 1) -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=list(indices), first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=attempt, gang=gang, reason=SAID)


@pytest.mark.parametrize(
    ("events", "violation"),
    [
        ([placed("a", 0), placed("b", 0)], "GPU n1:0 is given to job b while job a holds it"),
        ([placed("a", 9)], "job a is given GPU n1:9, which does not exist"),
        ([placed("a", 0, 1)], "job a may have 1 GPU and is given 2"),
        ([placed("a", 0), placed("a", 1, attempt=2)], "job a is placed while attempt 1 holds GPUs"),
        ([placed("x", 0)], "job x is placed and has never arrived"),
        ([JobSucceeded(job_id="a", attempt=1)], "job a succeeds without holding GPUs"),
        ([placed("a", 0), JobSucceeded(job_id="a", attempt=1)], "are given back while its task on n1 runs"),
        ([arrival("a")], "job a arrives a second time"),
    ],
)
def test_books_that_do_not_balance_name_the_place(events, violation):
    log = records([node("n1", 2), arrival("a"), arrival("b"), *events])
    books = conservation(log)
    assert not books.ok
    assert violation in books.violations[0].message
    assert books.violations[0].offset == len(log) - 1


def test_a_job_ends_once():
    exited = JobExited(job_id="a", attempt=1, node_id="n1", exit_code=0, signal=None, outcome="exited")
    over = JobSucceeded(job_id="a", attempt=1)
    books = conservation(records([node("n1", 2), arrival("a"), placed("a", 0), exited, over, over]))
    assert [v.message for v in books.violations] == [
        "job a is ended by JobSucceeded after it has ended by JobSucceeded",
        "job a succeeds without holding GPUs",
    ]


def test_the_timeline_has_a_bar_per_gpu_and_attempt():
    out = io.BytesIO()
    bars = write_chrome_trace(all_records(), out)
    trace = json.loads(out.getvalue())["traceEvents"]
    shown = [event for event in trace if event["ph"] == "X"]
    placements = [r.envelope.event for r in control() if isinstance(r.envelope.event, JobPlaced)]
    assert bars == len(shown) == sum(len(t.gpu_indices) for p in placements for t in p.gang)
    assert {e["args"]["name"] for e in trace if e["name"] == "process_name"} == {"v100-000", "v100-001"}
    gang = next(event for event in shown if event["name"] == "gang")
    assert (gang["ts"], gang["dur"]) == (0, 51_000_000)


def test_a_submission_is_said_with_its_size():
    event = next(r.envelope.event for r in control() if isinstance(r.envelope.event, JobArrived))
    assert sentence(event) == "ada submits 'gang' for tenant default: 4 GPUs"
