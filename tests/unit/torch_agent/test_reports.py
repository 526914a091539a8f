"""Which of a script's reports are passed on, and when."""

import logging
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_agent.reports import CHUNK_BYTES, last_report

from libs.contracts.agent import JobExited, JobStarted, JobSuspended, MetricsReported
from libs.contracts.base import Event
from libs.node.advance import advance
from libs.node.reports import report_due
from libs.node.seen import Report, Seen
from libs.node.task import Status, Task, Want
from tests.unit.node.test_task import LAUNCH, UP, down


class Script:
    """A script's newest report waits until the agent looks when it is due."""

    def __init__(self, status: Status = Status.RUNNING) -> None:
        self.task = Task(order=LAUNCH, status=status, gpu_indices=[0], wanted_gpus=[0])
        self.waiting: Report | None = None

    def reports(self, step: float, **values: float) -> None:
        self.waiting = Report(step=step, values=values or {"loss": 1.0})

    def look(self, now_s: float, seen: Seen = UP) -> list[Event]:
        if report_due(self.task, ended=seen.ended is not None, now_s=now_s):
            seen, self.waiting = msgspec.structs.replace(seen, report=self.waiting), None
        return advance(self.task, seen, now_s).facts

    def steps(self, now_s: float, seen: Seen = UP) -> list[float]:
        return [fact.step for fact in self.look(now_s, seen) if isinstance(fact, MetricsReported)]


def test_a_report_is_passed_on_whole_and_once():
    script = Script()
    script.reports(3, accuracy=0.5, loss=2.0)
    expected = MetricsReported(job_id="a", attempt=1, node_id="n1", step=3.0, values={"accuracy": 0.5, "loss": 2.0})
    assert script.look(10.0) == [expected]
    assert script.look(20.0) == []


def test_of_several_within_a_second_the_last_one_is_passed_on():
    script = Script()
    script.reports(1)
    assert script.steps(10.0) == [1]
    for step, now_s in ((2, 10.2), (3, 10.99)):
        script.reports(step)
        assert script.steps(now_s) == []
    assert script.steps(11.0) == [3]


def test_the_last_one_of_all_does_not_wait_and_comes_before_the_end():
    script = Script()
    script.reports(1)
    script.look(10.0)
    script.reports(2)
    facts = script.look(10.1, down())
    assert [type(fact) for fact in facts] == [MetricsReported, JobExited]


def test_what_ends_before_it_was_seen_running_has_its_say():
    script = Script(Status.ACCEPTED)
    script.reports(1)
    assert [type(fact) for fact in script.look(10.0, down())] == [JobStarted, MetricsReported, JobExited]


def test_nothing_is_reported_of_a_task_before_its_start_is():
    script = Script(Status.ACCEPTED)
    script.reports(1)
    assert [type(fact) for fact in script.look(10.0)] == [JobStarted]
    assert script.steps(10.0) == [1]


@pytest.mark.parametrize("status", [Status.WARMING, Status.READY])
def test_a_task_that_is_to_take_over_has_nothing_to_say(status: Status):
    script = Script(status)
    script.reports(1)
    assert script.steps(10.0) == []
    assert [type(fact) for fact in script.look(11.0, down())] == [JobExited]


def test_what_was_said_before_a_suspension_is_passed_on_before_it():
    script = Script()
    script.task.want, script.task.asked_since_s = Want.SUSPEND, 9.9
    script.reports(1)
    assert [type(fact) for fact in script.look(10.0)] == [MetricsReported, JobSuspended]


def test_what_had_to_wait_is_passed_on_during_a_suspension():
    script = Script()
    script.reports(1)
    script.look(10.0)
    script.task.want, script.task.asked_since_s = Want.SUSPEND, 10.1
    script.reports(2)
    assert [type(fact) for fact in script.look(10.2)] == [JobSuspended]
    assert script.steps(11.0) == [2]


def test_a_lower_step_is_dropped_and_the_same_step_may_have_other_metrics():
    script = Script()
    script.reports(5)
    script.look(10.0)
    script.reports(4)
    assert script.steps(20.0) == []
    script.reports(5, accuracy=0.5)
    assert script.steps(30.0) == [5]


def test_a_clock_that_is_set_back_silences_no_task():
    script = Script()
    script.reports(1)
    script.look(1000.0)
    script.reports(2)
    assert script.steps(10.0) == [2]


def test_long_attempts_are_heard_less_often():
    script = Script()
    script.look(0.0)
    passed = 0
    for now_s in range(1, 20_000):
        script.reports(now_s)
        passed += len(script.steps(float(now_s)))
    assert 400 < passed < 650, "100 (1 + ln 200) = 630 in theory, less for the whole seconds here"


@given(st.lists(st.tuples(st.floats(0.0, 1.5), st.booleans()), min_size=1, max_size=40))
def test_at_most_one_a_second_and_never_without_the_last(moments: list[tuple[float, bool]]):
    script, now_s, step = Script(), 0.0, 0
    passed: list[tuple[float, float]] = []
    for wait_s, reports in moments:
        now_s += wait_s
        if reports:
            step += 1
            script.reports(step)
        passed += [(now_s, each) for each in script.steps(now_s)]
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(passed)]
    assert all(gap >= 1.0 - 1e-9 for gap in gaps)
    passed += [(now_s, each) for each in script.steps(now_s, down())]
    assert [each for _, each in passed] == sorted({each for _, each in passed})
    assert not step or passed[-1][1] == step


# The file


def line(step: float, loss: float = 1.0) -> bytes:
    return msgspec.json.encode({"step": step, "values": {"loss": loss}}) + b"\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reports.jsonl"


def test_a_script_that_has_reported_nothing_has_no_file(file: Path):
    assert last_report(file, 0) == (None, 0)


def test_the_last_line_counts_and_is_read_once(file: Path):
    file.write_bytes(line(1) + line(2))
    report, offset = last_report(file, 0)
    assert (report, offset) == (Report(step=2.0, values={"loss": 1.0}), len(file.read_bytes()))
    assert last_report(file, offset) == (None, offset)
    with file.open("ab") as more:
        more.write(line(3))
    report, _ = last_report(file, offset)
    assert report is not None and report.step == 3.0


def test_half_a_line_waits_for_its_other_half(file: Path):
    file.write_bytes(line(1) + line(2)[:9])
    report, offset = last_report(file, 0)
    assert report is not None and (report.step, offset) == (1.0, len(line(1)))
    with file.open("ab") as more:
        more.write(line(2)[9:])
    report, _ = last_report(file, offset)
    assert report is not None and report.step == 2.0


def test_of_many_only_the_end_is_read(file: Path):
    many = CHUNK_BYTES // len(line(1000)) * 3
    file.write_bytes(b"".join(line(1000 + number) for number in range(many)))
    report, offset = last_report(file, 0)
    assert report is not None and (report.step, offset) == (1000 + many - 1, file.stat().st_size)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"loss: 3",
        b"[1, 2]",
        b'{"step": 2}',
        b'{"step": "2", "values": {"loss": 1}}',
        b'{"step": 2, "values": {}}',
        b'{"step": 2, "values": {"loss": null}}',
        b'{"step": 2, "values": {"loss": NaN}}',
        b'{"step": 2, "values": {"loss": 1e999}}',
        b'{"step": 1e999, "values": {"loss": 1}}',
        b'{"step": 2, "values": {"": 1}}',
        b'{"step": 2, "values": {"' + b"x" * 65 + b'": 1}}',
        b'{"step": 2, "values": {' + b", ".join(b'"%d": 1' % number for number in range(17)) + b"}}",
        b"\xff\xfe",
        b'{"nested deeper than a decoder goes": ' + b"[" * 5_000,
    ],
)
def test_what_is_no_report_is_skipped_with_a_word(wrong: bytes, file: Path, caplog: pytest.LogCaptureFixture):
    file.write_bytes(line(1) + wrong + b"\n" + wrong + b"\n")
    with caplog.at_level(logging.WARNING):
        report, offset = last_report(file, 0)
    assert report is not None and (report.step, offset) == (1.0, file.stat().st_size)
    [record] = caplog.records
    assert str(file) in record.getMessage() and "2 lines are no reports" in record.getMessage()


def test_a_line_without_an_end_does_not_hold_up_what_comes_after_it(file: Path):
    file.write_bytes(b"x" * (CHUNK_BYTES + 10))
    report, offset = last_report(file, 0)
    assert (report, offset) == (None, 10)
    with file.open("ab") as more:
        more.write(b"\n" + line(1))
    report, offset = last_report(file, offset)
    assert report is not None and (report.step, offset) == (1.0, file.stat().st_size)
