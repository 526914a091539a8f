"""How the jobs of a trace end: all of them well, as the trace says, or as the Philly study counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from libs.failures.classifier import Classifier
from libs.failures.package import package_rules
from libs.failures.verdict import Ended
from libs.sim.choice import Failures
from libs.sim.options import WAYS_TO_FAIL, Doom, Ending
from libs.sim.table6 import drawn_ends
from libs.sim.traces import TraceJob
from libs.sim.work import Attempt

PASSED, KILLED, UNSUCCESSFUL = "passed", "killed", "unsuccessful"
STATUS_WORDS = {
    PASSED: ("passed", "pass", "succeeded", "success", "completed"),
    KILLED: ("killed", "cancelled", "canceled"),
    UNSUCCESSFUL: ("unsuccessful", "failed", "fail", "failure"),
}
"""{status: words for it in traces, in small letters}. Any other word, and none, says that the end is not known."""
_STATUS = {word: status for status, words in STATUS_WORDS.items() for word in words}


def planned_ends(jobs: Iterable[TraceJob], failures: Failures, seed: int) -> tuple[list[TraceJob], dict[str, Ending]]:
    """What is to be submitted, and how it ends.

    Args:
        jobs: of the trace.
        failures: `NONE` leaves them as they are.
        seed: of what is drawn.

    Returns:
        The jobs as they are to be played, and {job id: how it ends}.
    """
    if failures is Failures.TRACE:
        return _recorded_ends(jobs)
    return drawn_ends(list(jobs), seed) if failures is Failures.TABLE6 else (list(jobs), {})


def _recorded_ends(jobs: Iterable[TraceJob]) -> tuple[list[TraceJob], dict[str, Ending]]:
    """As `planned_ends`, from columns of the trace.

    A job that was tried n times fails n times if it was unsuccessful, else n - 1 times. Its work is spread evenly over
    its attempts, each of which begins anew: together they take as long as the trace says.
    """
    played, endings = [], {}
    for job in jobs:
        status, attempts = status_of(job), job.attempts or 1
        failed = attempts if status == UNSUCCESSFUL else attempts - 1
        endings[job.job_id] = Ending(dooms=(_AT_THE_END,) * failed, is_killed=status == KILLED)
        played.append(
            replace(
                job,
                max_retries=max(job.max_retries, attempts - 1) if status != UNSUCCESSFUL else attempts - 1,
                duration_s=None if job.duration_s is None else job.duration_s / attempts,
                total_steps=None if job.total_steps is None else job.total_steps / attempts,
            )
        )
    return played, endings


def status_of(job: TraceJob) -> str:
    """`passed`, `killed` or `unsuccessful`, as the trace says; empty where it does not say."""
    return _STATUS.get(job.status.lower(), "")


_EXIT_CODE, _SIGNAL, _STDERR = WAYS_TO_FAIL[0]
_AT_THE_END = Doom(at_ratio=1.0, exit_code=_EXIT_CODE, signal=_SIGNAL, stderr_tail=_STDERR)
"""A failure that another attempt may help against: a trace says nothing of its reason."""

FOUND_BEFORE = ("syntax_error", "import_error")
"""Reasons that are found before the script of a trial is run."""
OF_ANY_WIDTH = ("incorrect_inputs", "model_ckpt_error", "cuda_ver_mismatch", "cannot_load_libs")
"""Reasons that meet a program on one GPU as they meet it on many, also where the program is not the cause: stores that
are away, versions of drivers and libraries."""
EARLY_S = 300.0
"""A program that fails within this time has failed at its start, as far as a trial goes."""


def shows_in_trial(doom: Doom, trial: Attempt) -> bool:
    """Whether a failure that is drawn for a whole attempt happens in the job's trial.

    It does if it comes early and no number of GPUs changes it: the program is the cause, or a store, or versions. Early
    is what would come early for the gang: none fails later than its work ends. What does not compile or cannot be
    imported is found in any case.
    """
    reason, category = cause_of(doom)
    if reason in FOUND_BEFORE:
        return True
    whole_s = trial.job.total / trial.rate_alone if trial.rate_alone > 0 else 0.0
    after_s = doom.at_ratio * whole_s if doom.after_s is None else min(doom.after_s, whole_s)
    return after_s < EARLY_S and (category == "user" or reason in OF_ANY_WIDTH)


def cause_of(doom: Doom) -> tuple[str, str]:
    """The reason of a failure and its category, as failure analysis finds them; both are empty where none is known."""
    return _cause_of(doom.exit_code, doom.signal, doom.stderr_tail)


@cache
def _cause_of(exit_code: int | None, signal: int | None, stderr_tail: str) -> tuple[str, str]:
    """The category of a program that ends without a word is `user`, as failure analysis has it."""
    classifier = Classifier(package_rules())
    classifier.feed(stderr_tail)
    verdict = classifier.verdict(Ended(exit_code=exit_code, signal=signal))
    return (verdict.reason, verdict.category or "user") if verdict is not None else ("", "")
