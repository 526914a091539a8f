"""The most likely reason of a failed attempt, from its lines and its exit status.

Lines of all ranks are followed while the job runs (`following.py`); where they are not, the end of stderr of the first
rank that failed has to do. What lines say is `libs/failures/`'s word: the reasons and categories of the Philly study
(Jeon et al., ATC'19, section 4.2 and Table 6). What an agent or a tenant's policy says of the attempt goes first; for
that there are reasons of their own: `time_limit_exceeded`, `host_memory_exceeded`, `setup_failed`, `stalled`,
`gpu_idle`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from libs.contracts.failure_analysis import FailureObserved
from libs.contracts.placement import Overlap
from libs.failures.classifier import Classifier
from libs.failures.exits import said, status_of
from libs.failures.package import package_rules
from libs.failures.verdict import NO_SIGNATURE, Ended


@dataclass(frozen=True)
class Failure:
    """A verdict; `deciding_line` is the evidence."""

    failure: str
    category: str
    retry_can_help: bool
    deciding_line: str
    where: str = ""
    """File and line of the script's own code, of a Python error; else empty."""
    cause: str = ""
    """A finer reason; empty where the outcome of the attempt decides."""
    confidence: float = 1.0
    observed: FailureObserved | None = None
    """The line that decided, where lines were followed while the job ran, and one of them did."""

    @property
    def evidence(self) -> str:
        """The line that decided, and where in the script it comes from."""
        return f"{self.deciding_line} ({self.where})" if self.where else self.deciding_line


FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python\d|^<")
"""Frames of the interpreter and of installed packages: the script's own call of them says more."""


STOPPED_FOR = {"stalled": "stalled", "diverged": "model_diverged", "idle": "gpu_idle"}
"""{outcome of an attempt that its tenant has stopped: reason}."""


BY_LINES = ("exited", "signalled", "stopped", "restore_failed")
"""Outcomes that say nothing of the reason: lines and exit status have to."""


def classify(
    *,
    exit_code: int | None,
    signal: int | None,
    outcome: str,
    stderr_tail: str,
    memory_signs: bool | None = None,
    observed: FailureObserved | None = None,
) -> Failure:
    """Judge one failed attempt.

    Args:
        exit_code: of the first process that ended badly; None when a signal ended it or it never ran.
        signal: its number, or None.
        outcome: `JobExited.outcome`.
        stderr_tail: the last lines of that process's stderr.
        memory_signs: `JobExited.memory_signs`.
        observed: what the lines of all ranks have told, where they were followed.
    """
    if outcome == "time_limit":
        return Failure("time_limit_exceeded", "user", False, "the attempt reached its time limit")
    if outcome == "host_memory_exceeded":
        return Failure("host_memory_exceeded", "user", False, _last_line(stderr_tail))
    if outcome in STOPPED_FOR:
        return Failure(STOPPED_FOR[outcome], "user", False, _last_line(stderr_tail))
    if outcome == "launch_failed":
        return Failure("incorrect_inputs", "user", False, _last_line(stderr_tail) or "the task could not be started")
    if outcome == "setup_failed":
        return Failure("setup_failed", "user", True, _last_line(stderr_tail) or "the setup command failed")
    if outcome == "node_failed":
        return Failure("no_signature", "infrastructure", True, _last_line(stderr_tail) or "the node could not start it")
    if outcome == "start_timed_out":
        seen = _last_line(stderr_tail)
        line = "the task did not start in time" + (f"; last seen: {seen}" if seen else "")
        return Failure("no_signature", "infrastructure", True, line)
    if outcome == "lost":
        return Failure("no_signature", "infrastructure", True, "the task vanished without an exit status")
    if outcome == "interrupted":
        return Failure("job_preempted", "infrastructure", True, _last_line(stderr_tail))
    ended = Ended(exit_code=exit_code, signal=signal, memory_signs=memory_signs)
    if observed is not None and _decides(observed, ended):
        return _observed(observed, ended, stderr_tail)
    return _by_tail(ended, stderr_tail)


def overlapped(by: Overlap, failure: Failure) -> Failure:
    """What a failure comes to of an attempt that an older one overlapped: nothing is said of the job.

    Args:
        by: the older one.
        failure: as it would be judged without it; its evidence is passed on.
    """
    evidence = f"{by.words}; it ended with: {failure.evidence}" if failure.evidence else by.words
    return Failure("job_preempted", "infrastructure", True, evidence)


def _decides(observed: FailureObserved, ended: Ended) -> bool:
    """Whether a line goes before the exit status, and is more than nothing."""
    if observed.complete:  # the exit status was known when all lines had been read
        return observed.cause != NO_SIGNATURE
    status = status_of(ended)
    return status is None or observed.level <= status.rank


def _observed(observed: FailureObserved, ended: Ended, stderr_tail: str) -> Failure:
    return Failure(
        observed.failure,
        observed.category or "user",
        observed.retry_can_help,
        observed.line.strip() or said(ended),
        _where(_before(observed.line, stderr_tail)),
        observed.cause,
        observed.confidence,
        observed,
    )


def _by_tail(ended: Ended, stderr_tail: str) -> Failure:
    classifier = Classifier(package_rules())
    classifier.feed(stderr_tail)
    found = classifier.verdict(ended)
    if found is None:  # the process ended well, and yet the attempt failed: nothing is known
        return Failure("no_signature", "user", True, said(ended), cause="no_signature")
    return Failure(
        found.reason,
        found.category or "user",
        found.retry_can_help,
        found.deciding_line.strip() or said(ended),
        _where(_before(found.deciding_line, stderr_tail)),
        found.cause,
        found.confidence,
    )


def _before(deciding_line: str, text: str) -> list[str]:
    """The lines before the one that decided."""
    lines, decided = text.splitlines(), deciding_line.strip()
    number = next((number for number, line in enumerate(lines) if decided and line.strip() == decided), 0)
    return lines[:number]


def _where(lines: list[str]) -> str:
    """The innermost frame of the last traceback that is of the script's own code, as `train.py:17`."""
    for line in reversed(lines):
        frame = FRAME.match(line)
        if frame is not None and not LIBRARY.search(frame["file"]):
            return f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
        if line.startswith("Traceback "):
            return ""
    return ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
