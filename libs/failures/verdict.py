"""What the classifier says, and how sure it is."""

from __future__ import annotations

import msgspec

NO_SIGNATURE = "no_signature"
LINE_LIMIT = 4096
"""Characters of a line that are kept."""


KILL = 9


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the first process that ended badly has ended."""

    exit_code: int | None = None
    signal: int | None = None
    memory_signs: bool | None = None
    """Whether there is a sign that the host's memory was used up; None: nobody has looked."""

    @property
    def killed_from_outside(self) -> bool:
        """Whether it was killed, and not for its memory as far as can be seen."""
        return self.by_signal == KILL and self.memory_signs is False

    @property
    def by_signal(self) -> int | None:
        """The signal, also where a shell reports it as 128 + n."""
        if self.signal is None and self.exit_code is not None and 128 < self.exit_code <= 128 + 64:
            return self.exit_code - 128
        return self.signal

    @property
    def well(self) -> bool:
        """Whether it ended without an error."""
        return self.exit_code == 0 and self.signal is None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job failed, as far as its lines and its exit status say."""

    reason: str
    """Of the study's Table 6."""
    category: str
    """`infrastructure`, `ai_engine`, `user`; empty for `no_signature`."""
    cause: str
    retry_can_help: bool
    confidence: float
    """0 to 1: how often a verdict of this kind is right (the README of this room says how it was measured)."""
    deciding_line: str
    """As it was printed; empty where the exit status decided."""
    rule: str
    """Its id; empty where the exit status decided."""
    rank: int | None = None
    """Of the process that printed the line, where that is known."""
    stream: str = ""
    action: str = ""
    """What the maker of the hardware says to do at once."""
    evidence: tuple[str, ...] = ()
    """Other lines that rules know, at most 20, in the order in which they came."""
    level: int = 99
    """From root cause (0) to consequence (99): the rank of the rule or of the exit status, worse for a line that
    follows from another one."""
    others: tuple[int, ...] = ()
    """Ranks with lines that rules know, too, but behind the one that decided, ascending."""


class Band(msgspec.Struct, frozen=True):
    """Ranks of rules that are right equally often."""

    up_to: int
    confidence: float


BANDS = (
    Band(19, 0.93),
    Band(29, 0.96),
    Band(39, 0.98),
    Band(49, 0.94),
    Band(69, 0.89),
    Band(79, 0.90),
    Band(99, 0.83),
)
"""The part of right verdicts in the labelled logs that ACCURACY.md lists, with a right and a wrong verdict more
than were seen: a band with few logs is not trusted further than they reach."""
DOUBT_HANDLED = 0.7
"""Factor for a line after which the process went on."""
BY_STATUS, WITHOUT_SIGNATURE = 0.5, 0.67


def confidence_of(rank: int) -> float:
    """How often rules of this rank are right."""
    return next(band.confidence for band in BANDS if rank <= band.up_to)
