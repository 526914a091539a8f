"""What is remembered of each stream of each rank while lines come in, within a bound."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SOURCES = 64
"""More ranks than that may print by turns; those that have been silent longest are forgotten."""


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

    def begin_traceback(self, framed: bool) -> None:
        """A line that begins a traceback, or a frame of one whose beginning is missing, has come."""
        self.in_traceback, self.framed = True, framed

    def is_frame(self, text: bytes) -> bool:
        """Whether this line belongs to the frames of a traceback: it shows code, and says nothing."""
        return self.in_traceback and (text[:1] in _INDENTS and not text.lstrip().startswith(_OF_GROUPS))

    def ends_with(self, text: bytes) -> bool:
        """Whether this line, which is no frame, is the error that a traceback ends with."""
        if not self.in_traceback or not text.strip():
            return False
        self.in_traceback = False
        self.follows, self.is_chained = self.is_chained, False
        return self.framed


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
