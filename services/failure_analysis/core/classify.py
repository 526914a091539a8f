"""The most likely reason of a failed attempt, from its exit status and the end of its stderr.

The reasons and categories are those of the Philly study (Jeon et al., ATC'19, section 4.2 and Table 6),
and two more for what it does not know: `time_limit_exceeded` and `setup_failed`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SIGNAL_NAMES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True)
class Failure:
    """A verdict; `deciding_line` is the evidence."""

    failure: str
    category: str
    retry_can_help: bool
    deciding_line: str
    where: str = ""
    """File and line of the script's own code, of a Python error; else empty."""

    @property
    def evidence(self) -> str:
        """The line that decided, and where in the script it comes from."""
        return f"{self.deciding_line} ({self.where})" if self.where else self.deciding_line


@dataclass(frozen=True)
class Signature:
    """A pattern over one line of output and what it means."""

    pattern: re.Pattern[str]
    failure: str
    category: str
    retry_can_help: bool


FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python\d|^<")
"""Frames of the interpreter and of installed packages: the script's own call of them says more."""


def _signature(pattern: str, failure: str, category: str, *, retry: bool) -> Signature:
    return Signature(re.compile(pattern), failure, category, retry)


SIGNATURES = (
    _signature(r"(torch|cuda).*(OutOfMemoryError|out of memory)", "gpu_out_of_memory", "ai_engine", retry=False),
    _signature(r"uncorrectable ECC|Xid.*(48|63|94|95)", "gpu_ecc_error", "ai_engine", retry=True),
    _signature(
        r"CUDA driver version is insufficient|forward compatibility", "cuda_ver_mismatch", "ai_engine", retry=False
    ),
    _signature(r"no CUDA-capable device|CUDA.*initializ", "cuda_init_failed", "ai_engine", retry=True),
    _signature(r"CUDA error|CUBLAS_STATUS|CUDNN_STATUS", "cuda_failure", "ai_engine", retry=True),
    _signature(r"\bMemoryError\b|[Cc]annot allocate memory|oom-kill", "cpu_out_of_memory", "user", retry=False),
    _signature(r"^\s*(SyntaxError|IndentationError|TabError)\b", "syntax_error", "user", retry=False),
    _signature(
        r"error while loading shared libraries|cannot open shared object", "cannot_load_libs", "ai_engine", retry=False
    ),
    _signature(r"^\s*(ModuleNotFoundError|ImportError)\b", "import_error", "user", retry=False),
    _signature(r"\bPermissionError\b|[Pp]ermission denied", "permission_error", "user", retry=False),
    _signature(
        r"\b(FileNotFoundError|UnicodeDecodeError|EOFError|BadZipFile)\b", "incorrect_inputs", "user", retry=False
    ),
    _signature(r"loss (is|=) *(nan|inf)|FloatingPointError", "model_diverged", "user", retry=False),
    _signature(
        r"Connection (reset|closed) by peer|[Tt]imed? ?out waiting.*(store|rank)|NCCL.*(timeout|remote)",
        "mpi_runtime_failure",
        "infrastructure",
        retry=True,
    ),
    _signature(
        r"^\s*(TypeError|AttributeError|NameError|KeyError|IndexError|AssertionError)\b",
        "semantic_error",
        "user",
        retry=False,
    ),
    _signature(r"^\s*(ValueError|RuntimeError)\b", "semantic_error", "user", retry=True),
    _signature(r"^Traceback \(most recent call last\)", "traceback_from_crash", "user", retry=True),
)
"""In order of precedence. A retry is refused only where the same program on the same input must fail again."""


STOPPED_FOR = {"stalled": "stalled", "diverged": "model_diverged", "idle": "gpu_idle"}
"""{outcome of an attempt that its tenant has stopped: reason}."""


def classify(*, exit_code: int | None, signal: int | None, outcome: str, stderr_tail: str) -> Failure:
    """Judge one failed attempt.

    Args:
        exit_code: of the first process that ended badly; None when a signal ended it or it never ran.
        signal: its number, or None.
        outcome: `JobExited.outcome`.
        stderr_tail: the last lines of that process's stderr.
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
    found = _by_signature(stderr_tail)
    if found is not None:
        return found
    if signal is not None:
        return _by_signal(signal)
    return Failure("no_signature", "user", True, f"exit code {exit_code}")


def _by_signature(stderr_tail: str) -> Failure | None:
    lines = stderr_tail.splitlines()
    for signature in SIGNATURES:
        for number in reversed(range(len(lines))):
            if signature.pattern.search(lines[number]):
                end = _end_of_traceback(lines, number)
                line, where = lines[end].strip(), _where(lines[:end])
                return Failure(signature.failure, signature.category, signature.retry_can_help, line, where)
    return None


def _end_of_traceback(lines: list[str], number: int) -> int:
    """The line with the error where a traceback begins, else the line itself: the beginning says nothing."""
    if lines[number].startswith("Traceback "):
        for end in range(number + 1, len(lines)):
            if lines[end].strip() and not lines[end][0].isspace():
                return end
    return number


def _where(lines: list[str]) -> str:
    """The innermost frame of the last traceback that is of the script's own code, as `train.py:17`."""
    for line in reversed(lines):
        frame = FRAME.match(line)
        if frame is not None and not LIBRARY.search(frame["file"]):
            return f"{frame['file'].rpartition('/')[2]}:{frame['line']}"
        if line.startswith("Traceback "):
            return ""
    return ""


def _by_signal(signal: int) -> Failure:
    name = SIGNAL_NAMES.get(signal, str(signal))
    line = f"killed by signal {signal} ({name})"
    if signal == 9:
        return Failure("cpu_out_of_memory", "infrastructure", True, line)
    if signal in (7, 11):
        return Failure("invalid_mem_access", "user", True, line)
    if signal in (4, 6, 8):
        return Failure("core_dump", "ai_engine", True, line)
    return Failure("job_preempted", "infrastructure", True, line)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
