"""`failures/1`: failure records, a line of JSON each."""

from __future__ import annotations

import json
import signal as signals
from collections.abc import Iterator
from typing import Any

import msgspec

from libs.contracts.bad_input import BadInput
from libs.failures.classifier import Classifier
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import Ended, Verdict

FIELDS = frozenset(
    (
        "id",
        "log",
        "exit_code",
        "signal",
        "reason",
        "category",
        "deciding_line",
        "hard",
        "note",
        "origin",
        "source",
        "seen_in",
    )
)
"""Known fields; others are ignored with a warning."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job."""

    id: str
    log: str
    ended: Ended
    reason: str | None = None
    """The label, if there is one."""
    deciding_line: str | None = None
    """The label's line."""
    unknown: tuple[str, ...] = ()
    """Fields that the format does not have."""


def looks_like_records(name: str, text: str) -> bool:
    """Whether a file has records; else it is a log."""
    if name.endswith((".jsonl", ".ndjson")):
        return True
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first.lstrip().startswith("{"):
        return False
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "id" in found and "log" in found


def records(name: str, text: str) -> Iterator[Record]:
    """The records of a file.

    Args:
        name: for messages.

    Raises:
        BadInput: a line is no record; it is named with its number.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _record(f"{name}:{number}", line, str(number))


def classify(record: Record, rules: RuleSet) -> Verdict:
    """The verdict on a record; one that ended well is taken for one that did not say how it ended."""
    classifier = Classifier(rules)
    classifier.feed(record.log)
    found = classifier.verdict(record.ended) or classifier.verdict(Ended())
    assert found is not None  # there is a verdict on whatever did not end well
    return found


def _record(where: str, line: str, number: str) -> Record:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(where, f"no JSON ({error})", "a record as in failures/1") from None
    if not isinstance(found, dict):
        raise BadInput(where, f"a {type(found).__name__}", "a record as in failures/1")
    if not isinstance(found.get("log"), str):
        seen = "no `log`" if "log" not in found else f"`log` is a {type(found['log']).__name__}"
        raise BadInput(where, seen, "the text of the log")
    return Record(
        id=str(found.get("id", number)),
        log=found["log"],
        ended=Ended(exit_code=_code(where, found.get("exit_code")), signal=signal_of(where, found.get("signal"))),
        reason=_text(found.get("reason")),
        deciding_line=_text(found.get("deciding_line")),
        unknown=tuple(sorted(set(found) - FIELDS)),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _code(where: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise BadInput(where, f"exit_code {value!r}", "a whole number or null")


def signal_of(where: str, value: Any) -> int | None:
    """The number of a signal that is given as a name (`SIGKILL`, `kill`), a number, or null.

    Raises:
        BadInput: there is no such signal.
    """
    expected = "a signal's name or number, or null"
    if value is None or value == "":
        return None
    if isinstance(value, str) and not value.strip().isdigit():
        name = value.strip().upper()
        number = getattr(signals, name if name.startswith("SIG") else f"SIG{name}", None)
        if not isinstance(number, signals.Signals):
            raise BadInput(where, f"signal {value!r}", expected)
        return int(number)
    if isinstance(value, bool) or not isinstance(value, int | str) or not 1 <= int(value) <= 64:
        raise BadInput(where, f"signal {value!r}", expected)
    return int(value)
