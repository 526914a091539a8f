"""What is remembered of each stream of each rank while lines come in, within a bound."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_SOURCES = 64
"""More ranks than that may print by turns; those that have been silent longest are forgotten."""


_ERROR = re.compile(rb"[ |+-]*[A-Za-z_][\w.]*(?:: |:?\s*$)")
"""The name of a class, and perhaps what it says."""
_INDENTS = (b" ", b"\t")
_OF_GROUPS = (b"|", b"+")
"""What the lines of an exception group begin with; they are indented, and say what went wrong."""


@dataclass
class Source:
    """One stream of one rank."""

    in_traceback: bool = False
    """Frames come, and the line with the error has not come yet."""
    framed: bool = False
    """At least one frame has come."""
    is_chained: bool = False
    """The next traceback follows from the one before."""
    follows: bool = False
    """The error of the traceback that was read last was raised while another one was handled."""
    handled_at: int = -2
    """Position of the last line that says that an error was dealt with."""
    is_handled: bool = False
    """Such a line came just before the traceback."""

    def is_code(self, markers: frozenset[str], text: bytes, position: int) -> bool:
        """Whether the next line belongs to the frames of a traceback, or joins two of them: such lines say nothing.

        Args:
            markers: kinds of markers that the line is.
            text: the line without its prefix.
            position: how many lines of the job have come.
        """
        if "chained" in markers:
            self.is_chained = True
            return True
        if "traceback" in markers or "frame" in markers:  # frames alone, where the beginning was cut off
            if not self.in_traceback and not self.is_chained:
                self.is_handled = position - self.handled_at <= 1
            self.in_traceback, self.framed = True, "frame" in markers
            return True
        if self.in_traceback and text[:1] in _INDENTS and not text.lstrip().startswith(_OF_GROUPS):
            self.framed = True
            return True
        return False

    def ends_with(self, markers: frozenset[str], text: bytes) -> bool:
        """Whether a line that is no frame is the error that a traceback ends with.

        Args:
            markers: kinds of markers that the line is; another thread may print its progress in between.
            text: the line without its prefix.
        """
        if not self.in_traceback or "progress" in markers or not text.strip():
            return False
        self.in_traceback = False
        self.follows, self.is_chained = self.is_chained, False
        return self.framed and _ERROR.match(text) is not None


class Sources:
    """The sources of a job, and how far each rank has come."""

    def __init__(self) -> None:
        self._sources: dict[tuple[int | None, str], Source] = {}
        self._progress: dict[int | None, int] = {}

    def of(self, rank: int | None, stream: str) -> Source:
        """The source of a line; the one that has been silent longest makes room for a new one."""
        key = rank, stream
        found = self._sources.pop(key, None) or Source()
        if len(self._sources) >= MOST_SOURCES:
            del self._sources[next(iter(self._sources))]
        self._sources[key] = found
        return found

    def progressed(self, rank: int | None) -> None:
        """A rank has printed a line that a program prints while it trains."""
        count = self._progress.pop(rank, 0) + 1
        if len(self._progress) >= MOST_SOURCES:
            del self._progress[next(iter(self._progress))]
        self._progress[rank] = count

    def progress(self, rank: int | None) -> int:
        """How many such lines a rank has printed; 0 when it is forgotten."""
        return self._progress.get(rank, 0)
