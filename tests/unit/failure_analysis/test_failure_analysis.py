"""Failures are classified; retries back off and come to an end."""

import msgspec
import pytest

from libs.contracts.admission import TrialPassed
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import SettingChanged
from libs.contracts.placement import AttemptFailed, Overlap
from libs.contracts.reasons import Reason
from libs.testing.builders import altered
from libs.testing.core_case import CoreCase, arrival, only
from services.failure_analysis.core.classify import classify
from services.failure_analysis.service import SERVICE

SAID = Reason(code="Test", message="said by the test")


def failed(attempt: int, *, code: int | None = 1, signal: int | None = None, stderr: str = "") -> AttemptFailed:
    return AttemptFailed(
        job_id="a",
        attempt=attempt,
        node_id="n1",
        exit_code=code,
        signal=signal,
        outcome="exited" if signal is None else "signalled",
        stderr_tail=stderr,
        reason=SAID,
    )


def case_with(retries: int) -> CoreCase:
    case = CoreCase(SERVICE)
    case.give(arrival("a", max_retries=retries))
    return case


def types(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_without_retries_the_first_failure_is_final():
    assert types(case_with(0).give(failed(1))) == [FailureClassified, JobAbandoned]


def test_two_retries_mean_three_attempts_with_doubled_delays():
    case = case_with(2)
    first = only(case.give(failed(1), at=100.0), RetryScheduled)
    second = only(case.give(failed(2), at=200.0), RetryScheduled)
    assert (first.attempt, first.not_before_s, second.attempt, second.not_before_s) == (2, 102.0, 3, 204.0)
    assert only(case.give(failed(3)), JobAbandoned).reason.code == "RetriesUsedUp"


def test_an_interruption_uses_up_no_retry_however_often_it_comes_and_is_named():
    case = case_with(0)
    why = "the machine of node n1 was restarted"
    for attempt in range(1, 9):
        interrupted = altered(failed(attempt, code=None, stderr=why), outcome="interrupted")
        classified, retry = case.give(interrupted, at=100.0)
        assert isinstance(classified, FailureClassified) and isinstance(retry, RetryScheduled)
        assert (classified.category, classified.deciding_line) == ("infrastructure", why)
        assert (retry.not_before_s, retry.reason.code, retry.retries_used) == (102.0, "Interrupted", 0)
        assert retry.reason.message == f"{why}: that uses up no retry; next try in 2 s"
    assert types(case.give(failed(9))) == [FailureClassified, JobAbandoned]


SYNTAX = "SyntaxError: invalid syntax\n"
SEEN = Overlap(attempt=1, node_id="n1", seen=True)


def test_no_verdict_follows_from_an_attempt_that_an_older_one_was_seen_to_overlap():
    case = case_with(0)
    for attempt in range(2, 12):
        classified, retry = case.give(altered(failed(attempt, stderr=SYNTAX), overlap=SEEN), at=100.0)
        assert isinstance(classified, FailureClassified) and isinstance(retry, RetryScheduled)
        assert (classified.failure, classified.category, classified.cause) == ("job_preempted", "infrastructure", "")
        assert retry.attempt == attempt + 1 and retry.reason.code == "Overlapped"
    assert retry.reason.message.startswith(
        "attempt 1 has run beside it on node n1, which was thought lost; it ended with: "
        "SyntaxError: invalid syntax: that uses up no retry; next try in "
    )
    assert only(case.give(failed(12, stderr=SYNTAX)), JobAbandoned).reason.code == "RetryCannotHelp"


def test_an_overlap_that_is_in_doubt_excuses_a_job_for_a_while():
    case, doubted = case_with(0), altered(SEEN, seen=False)
    delays = []
    for attempt in range(2, 7):
        retry = only(case.give(altered(failed(attempt), overlap=doubted), at=0.0), RetryScheduled)
        delays.append(retry.not_before_s)
        assert "attempt 1 may have run beside it on node n1" in retry.reason.message
    assert delays == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert only(case.give(altered(failed(7), overlap=doubted)), JobAbandoned).reason.code == "RetriesUsedUp"


def test_an_overlap_uses_up_no_retry_and_blames_nothing():
    case = case_with(1)
    case.give(altered(failed(2), overlap=SEEN))
    assert only(case.give(failed(3)), RetryScheduled).retries_used == 1
    assert only(case.give(failed(4)), JobAbandoned).reason.code == "RetriesUsedUp"


def test_a_trial_that_was_overlapped_is_tried_again():
    trial = altered(failed(2, stderr=SYNTAX), overlap=SEEN, trial=True)
    assert only(case_with(0).give(trial), RetryScheduled).attempt == 3


def test_the_delay_is_a_setting_and_capped():
    case = case_with(50)
    for name, value in (("retry_base_s", 1.0), ("retry_cap_s", 3.0)):
        case.give(SettingChanged(service="failure_analysis", name=name, value=value, requested_by="op"))
    delays = [only(case.give(failed(n), at=0.0), RetryScheduled).not_before_s for n in range(1, 45)]
    assert delays[:3] == [1.0, 2.0, 3.0] and set(delays[3:]) == {3.0}


def test_what_must_fail_again_is_not_tried_again():
    abandoned = only(case_with(3).give(failed(1, stderr="SyntaxError: invalid syntax\n")), JobAbandoned)
    assert abandoned.reason.code == "RetryCannotHelp"


@pytest.mark.parametrize(
    ("stderr", "signal", "failure"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", None, "gpu_out_of_memory"),
        ("ModuleNotFoundError: No module named 'apex'", None, "import_error"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", None, "incorrect_inputs"),
        ("Traceback (most recent call last):\n  File 'x'\nTypeError: bad operand", None, "semantic_error"),
        ("Traceback (most recent call last):\n  File 'x'\nMyError", None, "traceback_from_crash"),
        ("", 9, "cpu_out_of_memory"),
        ("", 11, "invalid_mem_access"),
        ("epoch 3 done", None, "no_signature"),
    ],
)
def test_reasons(stderr: str, signal: int | None, failure: str):
    verdict = classify(exit_code=None if signal else 1, signal=signal, outcome="exited", stderr_tail=stderr)
    assert verdict.failure == failure
    assert verdict.deciding_line


def test_a_process_that_was_killed_by_hand_is_not_called_out_of_memory():
    case = case_with(1)
    classified, retry = case.give(altered(failed(1, code=None, signal=9), memory_signs=False))
    assert isinstance(classified, FailureClassified) and isinstance(retry, RetryScheduled)
    assert (classified.failure, classified.cause) == ("no_signature", "killed_from_outside")
    assert (classified.category, classified.deciding_line) == (
        "infrastructure",
        "killed by signal 9 (SIGKILL), by nobody that Sanjaya knows of",
    )


TRACEBACK = """Traceback (most recent call last):
  File "/jobs/j-1/train.py", line 30, in <module>
    main()
  File "/jobs/j-1/model.py", line 17, in main
    loss = criterion(out, target)
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _call_impl
    return forward_call(*args, **kwargs)
{error}
"""


@pytest.mark.parametrize("error", ["ValueError: bad shape", "model.Mine: bad shape"])
def test_an_error_names_the_line_of_the_script_that_it_comes_from(error: str):
    verdict = classify(exit_code=1, signal=None, outcome="exited", stderr_tail=TRACEBACK.format(error=error))
    assert (verdict.deciding_line, verdict.where) == (error, "model.py:17")


def test_only_frames_of_the_traceback_that_decided_are_looked_at():
    elsewhere = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nValueError: twice\n'
    tail = elsewhere + TRACEBACK.format(error="ValueError: once")
    verdict = classify(exit_code=1, signal=None, outcome="exited", stderr_tail=tail)
    assert (verdict.deciding_line, verdict.where) == ("ValueError: twice", "")


def test_the_reason_of_a_job_that_is_given_up_begins_with_its_error():
    case, tail = case_with(1), TRACEBACK.format(error="ValueError: bad shape")
    retry = only(case.give(failed(1, stderr=tail)), RetryScheduled)
    error = "ValueError: bad shape (model.py:17)"
    assert retry.reason.message == f"{error}; failure 1, 1 retry allowed; lost 0 times; next try in 2 s"
    classified, abandoned = case.give(failed(2, stderr=tail))
    assert isinstance(classified, FailureClassified) and classified.where == "model.py:17"
    assert isinstance(abandoned, JobAbandoned)
    assert abandoned.reason.message == f"{error}; failed 2 times, 1 retry allowed"
    syntax = case_with(3).give(failed(1, stderr='  File "/j/train.py", line 3\nSyntaxError: invalid syntax\n'))
    assert only(syntax, JobAbandoned).reason.message == (
        "SyntaxError: invalid syntax (train.py:3); not retried: syntax_error would happen again"
    )


def test_a_time_limit_is_called_one():
    verdict = classify(exit_code=None, signal=9, outcome="time_limit", stderr_tail="")
    assert (verdict.failure, verdict.retry_can_help) == ("time_limit_exceeded", False)


@pytest.mark.parametrize(
    ("outcome", "tail", "category", "line"),
    [
        ("launch_failed", "code c-1 cannot be unpacked: no archive", "user", "code c-1 cannot be unpacked: no archive"),
        ("node_failed", "OSError: No space left", "infrastructure", "OSError: No space left"),
        ("node_failed", "", "infrastructure", "the node could not start it"),
        ("start_timed_out", "", "infrastructure", "the task did not start in time"),
        (
            "start_timed_out",
            "fetching code",
            "infrastructure",
            "the task did not start in time; last seen: fetching code",
        ),
    ],
)
def test_a_launch_that_fails_is_the_users_or_the_nodes(outcome: str, tail: str, category: str, line: str):
    verdict = classify(exit_code=None, signal=None, outcome=outcome, stderr_tail=tail)
    assert (verdict.category, verdict.retry_can_help) == (category, category == "infrastructure")
    assert verdict.deciding_line == line


@pytest.mark.parametrize("outcome", ["node_failed", "start_timed_out"])
def test_what_a_node_could_not_start_uses_up_no_retry_at_first(outcome: str):
    case = case_with(0)
    never = AttemptFailed(
        job_id="a", attempt=1, node_id="n1", exit_code=None, signal=None, outcome=outcome, reason=SAID
    )
    assert types(case.give(never)) == [FailureClassified, RetryScheduled]


def test_a_task_that_vanished_uses_up_no_retry_until_it_vanishes_again_and_again():
    case = case_with(0)
    lost = AttemptFailed(job_id="a", attempt=1, node_id="n1", exit_code=None, signal=9, outcome="lost", reason=SAID)
    for _ in range(3):
        assert types(case.give(lost)) == [FailureClassified, RetryScheduled]
    assert types(case.give(lost)) == [FailureClassified, JobAbandoned]


@pytest.mark.parametrize(
    ("outcome", "failure"), [("stalled", "stalled"), ("diverged", "model_diverged"), ("idle", "gpu_idle")]
)
def test_a_job_that_its_tenant_has_stopped_is_not_tried_again(outcome: str, failure: str):
    event = msgspec.structs.replace(
        failed(1, stderr="no mini-batch for 70 s"),
        outcome=outcome,
        reason=Reason(code="JobStalled", message="no mini-batch for 70 s"),
    )
    said = case_with(3).give(event)
    classified, abandoned = only(said, FailureClassified), only(said, JobAbandoned)
    assert (classified.failure, classified.retry_can_help) == (failure, False)
    assert classified.deciding_line == "no mini-batch for 70 s"
    assert abandoned.reason.code == "JobStalled"
    assert abandoned.reason.message == "no mini-batch for 70 s; tenant's policy: such a job is stopped"


def test_a_job_that_had_too_much_memory_would_have_it_again():
    why = "its processes had 3.0 GiB of the host's memory; it asked for 2.0 GiB"
    found = classify(exit_code=None, signal=9, outcome="host_memory_exceeded", stderr_tail=why)
    assert (found.failure, found.category, found.retry_can_help) == ("host_memory_exceeded", "user", False)
    assert found.deciding_line == why


def in_trial(attempt: int = 1, **changes: object) -> AttemptFailed:
    return altered(failed(attempt), trial=True, **changes)


def trial_passed() -> TrialPassed:
    return TrialPassed(job_id="a", attempt=1, steps=1, gpu_s=2.0, checkpoint=False, reason=SAID)


def test_what_the_program_does_wrong_in_its_trial_is_not_tried_again_whatever_it_is():
    case, plain = case_with(2), case_with(2)
    text = "Traceback (most recent call last):\nRuntimeError: something"
    assert types(plain.give(failed(1, stderr=text))) == [FailureClassified, RetryScheduled], "without a trial it is"
    assert types(case.give(in_trial(stderr_tail=text))) == [FailureClassified, JobAbandoned]


def test_what_the_cluster_does_wrong_in_a_trial_is():
    case = case_with(0)
    assert types(case.give(in_trial(outcome="lost", exit_code=None))) == [FailureClassified, RetryScheduled]


def test_exhausted_gpu_memory_in_a_trial_is_for_admission_and_uses_up_no_retry():
    case = case_with(0)
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    said = case.give(in_trial(stderr_tail=text), at=50.0)
    assert types(said) == [FailureClassified] and only(said, FailureClassified).failure == "gpu_out_of_memory"
    retry = only(case.give(trial_passed(), at=51.0), RetryScheduled)
    assert (retry.attempt, retry.not_before_s, retry.reason.code) == (2, 51.0, "TrialExcused")
    assert types(case.give(failed(2, stderr=text))) == [FailureClassified, JobAbandoned], "of the gang it is a failure"


def test_a_trial_without_an_end_is_excused():
    case = case_with(0)
    assert types(case.give(in_trial(outcome="time_limit", signal=9, exit_code=None))) == [FailureClassified]


def test_a_trial_that_has_ended_well_needs_no_retry():
    assert case_with(1).give(trial_passed()) == []
