"""From the bytes of a log to lines that rules can be looked for in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

WINDOW = 16 << 10
OVERLAP = 1 << 10
"""A longer line is looked at in windows of so many bytes that overlap by so many."""

_COLOURS = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")
_ENDS = re.compile(rb"\r\n|\n|\r")
_TIME = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_STREAM_OF = rb"(?: std(?:out|err) [FP])?"
_RANKED = re.compile(
    rb"\[rank ?:? ?(?P<rank>\d+)\]:? ?"  # torch, Lightning
    rb"|\[default(?P<local>\d+)\]:"  # torchrun --tee
    rb"|\[\d+,(?P<mpi>\d+)\]<std(?:out|err)>: ?"  # mpirun --tag-output
    rb"|\((?:[A-Za-z_][\w.]*) pid=\d+(?:, ip=[\d.]+)?\) "  # Ray
    rb"|(?P<task>\d{1,6}): "  # srun --label
    rb"|" + _TIME + _STREAM_OF + rb" "  # kubectl, containers, continuous integration
)
_STARTS = frozenset(b"[(0123456789")
_MOST_PREFIXES = 3


class Line(NamedTuple):
    """A line as it was printed, without its end, and what is left of it without colours and prefix."""

    printed: bytes
    text: bytes
    rank: int | None


def lines(data: bytes) -> Iterator[bytes]:
    """The lines of a log; a progress bar that draws itself again after a carriage return makes one line each time."""
    begin = 0
    for end in _ENDS.finditer(data):
        yield data[begin : end.start()]
        begin = end.end()
    if begin < len(data):
        yield data[begin:]


def cleaned(printed: bytes, rank: int | None = None) -> Line:
    """A line without colours and prefixes; a rank that a prefix names comes before the one that is given."""
    text = _COLOURS.sub(b"", printed) if b"\x1b" in printed else printed
    for _ in range(_MOST_PREFIXES):
        if not text or text[0] not in _STARTS:
            break
        prefix = _RANKED.match(text)
        if prefix is None:
            break
        named = prefix["rank"] or prefix["local"] or prefix["mpi"] or prefix["task"]
        rank = int(named) if named is not None and len(named) < 10 else rank
        text = text[prefix.end() :]
    return Line(printed, text, rank)


def windows(text: bytes) -> Iterator[bytes]:
    """A line in pieces of bounded length, each of which begins with the end of the one before."""
    if len(text) <= WINDOW:
        yield text
        return
    for begin in range(0, len(text), WINDOW - OVERLAP):
        yield text[begin : begin + WINDOW]


def printable(line: bytes, limit: int) -> str:
    """A line for a message: at most `limit` characters, what is no UTF-8 replaced, control characters left out."""
    text = line[: 4 * limit].decode("utf-8", errors="replace")
    return "".join(letter for letter in text if letter.isprintable() or letter == "\t")[:limit]
