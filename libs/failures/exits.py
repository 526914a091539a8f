"""What an exit status says by itself."""

from __future__ import annotations

import msgspec

from libs.failures.verdict import BY_STATUS, NO_SIGNATURE, WITHOUT_SIGNATURE, Ended, Verdict

SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}


class Status(msgspec.Struct, frozen=True):
    """The meaning of a status; lines of a better rank go before it."""

    reason: str
    category: str
    cause: str
    rank: int


SIGNALS = {
    4: Status("core_dump", "ai_engine", "illegal_instruction", 62),
    6: Status("core_dump", "ai_engine", "aborted", 86),
    7: Status("invalid_mem_access", "user", "bus_error", 63),
    8: Status("core_dump", "user", "arithmetic_fault", 62),
    9: Status("cpu_out_of_memory", "user", "killed", 67),
    11: Status("invalid_mem_access", "user", "segmentation_fault", 63),
}
"""An abort is the last thing that many errors do, so nearly any line goes before it; most processes that are killed
without a word are killed for their memory."""
FROM_OUTSIDE = Status(NO_SIGNATURE, "infrastructure", "killed_from_outside", SIGNALS[9].rank)
"""Where somebody has looked for signs of that, and there are none."""
CODES = {
    126: Status("permission_error", "user", "not_executable", 88),
    127: Status("semantic_error", "user", "command_not_found", 88),
}


def status_of(ended: Ended) -> Status | None:
    """The meaning of an exit status; None where it has none."""
    if ended.killed_from_outside:
        return FROM_OUTSIDE
    signal = ended.by_signal
    if signal is not None:
        return SIGNALS.get(signal)
    return CODES.get(ended.exit_code) if ended.exit_code is not None else None


def said(ended: Ended) -> str:
    """An exit status in words."""
    signal = ended.by_signal
    if ended.killed_from_outside:
        return f"killed by signal {signal} (SIGKILL), by nobody that Sanjaya knows of"
    if signal is not None:
        return f"killed by signal {signal} ({SIGNAL_NAMES.get(signal, str(signal))})"
    return "no exit code" if ended.exit_code is None else f"exit code {ended.exit_code}"


def verdict_of(status: Status, retry_can_help: bool, evidence: tuple[str, ...] = ()) -> Verdict:
    """The verdict that an exit status gives."""
    return Verdict(
        reason=status.reason,
        category=status.category,
        cause=status.cause,
        retry_can_help=retry_can_help,
        confidence=BY_STATUS,
        deciding_line="",
        rule="",
        evidence=evidence,
        level=status.rank,
    )


def no_signature() -> Verdict:
    """The verdict where nothing tells the reason."""
    return Verdict(
        reason=NO_SIGNATURE,
        category="",
        cause=NO_SIGNATURE,
        retry_can_help=True,
        confidence=WITHOUT_SIGNATURE,
        deciding_line="",
        rule="",
    )
