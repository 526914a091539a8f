"""What scripts report: read from the file that the harness appends a line per report to."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path

import msgspec

from libs.node.seen import Report
from torch_agent.harness.regular import regular
from torch_agent.harness.reporting import LONGEST_NAME, MOST_METRICS

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024
"""Far more than the longest report."""

_decoder = msgspec.json.Decoder(Report)


def last_report(path: Path, offset: int) -> tuple[Report | None, int]:
    """The last report of a file; those before it are passed over, and not even read where they are many.

    Args:
        offset: how far the file was read before.

    Returns:
        The report, None where there is no new one, and the offset behind it. Lines that are no reports are skipped.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            start = max(offset, file.seek(0, os.SEEK_END) - CHUNK_BYTES)
            file.seek(start)
            data = file.read(CHUNK_BYTES)
    except OSError:  # there is none yet, or the script has put something else there
        return None, offset
    end = data.rfind(b"\n") + 1
    return _last_of(data[:end], path), start + end


def _last_of(data: bytes, path: Path) -> Report | None:
    wrong: list[str] = []
    found = None
    for line in reversed(data.removesuffix(b"\n").split(b"\n") if data else []):
        try:
            found = decode_report(line)
            break
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        log.warning("%s: %d lines are no reports and are skipped, such as: %s", path, len(wrong), wrong[0])
    return found


def decode_report(line: bytes) -> Report:
    """A report from its line.

    Raises:
        ValueError: it is none; the message says what was seen and what was expected. The file lies in reach of the
            script, which may have written anything.
    """
    try:
        report = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{line[:80]!r}: {error}") from None
    if not math.isfinite(report.step) or not all(map(math.isfinite, report.values.values())):
        raise ValueError(f"{line[:80]!r}: expected finite numbers")
    if not 1 <= len(report.values) <= MOST_METRICS or not all(1 <= len(name) <= LONGEST_NAME for name in report.values):
        raise ValueError(
            f"{line[:80]!r}: expected 1 to {MOST_METRICS} metrics, names of 1 to {LONGEST_NAME} characters"
        )
    return report
