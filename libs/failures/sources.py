"""What is remembered of each stream of each rank while lines come in, within a bound."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SOURCES = 64
"""More ranks than that may print by turns; those that have been silent longest are forgotten."""


@dataclass
class Source:
    """One stream of one rank."""

    in_traceback: bool = False
    """Frames have begun, and the line with the error has not come yet."""
    is_chained: bool = False
    """The next traceback, or the one that is being read, follows from another one."""
    follows: bool = False
    """The error at the end of the traceback that has just been read was raised while another one was handled."""
    framed: bool = False
    """A traceback with frames has been read to its end, or is being read."""

    def begin_traceback(self) -> None:
        """A line that begins a traceback has come."""
        self.in_traceback, self.framed = True, False

    def ends_with(self, text: bytes) -> bool:
        """Whether this line, which is no marker, is the error that a traceback ends with."""
        if not self.in_traceback or not text.strip():
            return False
        if text[:1] in (b" ", b"\t"):
            self.framed = True
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
