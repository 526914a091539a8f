"""Rules made ready to be looked for: one automaton finds which rules can match a line at all, RE2 whether they do.

Linear time by construction. RE2 never backtracks. The automaton (RE2's set of the literals that each pattern must
contain) reads a line once; of a healthy line nothing more is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import re2

from libs.contracts.bad_input import BadInput
from libs.failures.reading import Rules
from libs.failures.rule import Marker, Rule

MAX_MEM = 8 << 20
"""Bytes that RE2 may use for the states of one pattern."""


class Hits(msgspec.Struct, frozen=True):
    """What a line is: the rules that match it, and the kinds of markers."""

    rules: tuple[int, ...]
    """Places in `RuleSet.rules`."""
    markers: frozenset[str]


NOTHING = Hits((), frozenset())


class RuleSet:
    """Rules, causes and markers in force."""

    def __init__(self, read: Rules) -> None:
        """Compile them.

        Raises:
            BadInput: RE2 does not take a pattern.
        """
        self.rules: Sequence[Rule] = tuple(read.rules)
        self.causes = dict(read.causes)
        self.digest = _digest(read)
        self._kinds = [marker.kind for marker in read.markers]
        self._filter = re2.Filter()
        options = _options()
        for rule in read.rules:
            self._add(rule.pattern, options, read.place(rule))
        for marker in read.markers:
            self._add(marker.pattern, options, f"marker {marker.kind}")
        self._negatives = {
            place: _compiled(rule.negative, options, read.place(rule))
            for place, rule in enumerate(read.rules)
            if rule.negative
        }
        self._filter.Compile()

    def _add(self, pattern: str, options: re2.Options, where: str) -> None:
        _compiled(pattern, options, where)
        self._filter.Add(pattern.encode(), options)

    def hits(self, line: bytes) -> Hits:
        """The rules of which a line matches the pattern and not the negative one, and the markers."""
        places = self._filter.Match(line)
        if not places:
            return NOTHING
        count = len(self.rules)
        return Hits(
            tuple(sorted(place for place in places if place < count and not self._is_negated(place, line))),
            frozenset(self._kinds[place - count] for place in places if place >= count),
        )

    def may_hit(self, text: bytes) -> bool:
        """Whether this text has the literals of any rule; reads it once."""
        return any(place < len(self.rules) for place in self._filter.Match(text, True) or [])

    def looks_at_every_line(self) -> list[Rule]:
        """Rules with a pattern without a literal: they cost time on every line."""
        return [self.rules[place] for place in self._filter.Match(b"", True) or [] if place < len(self.rules)]

    def _is_negated(self, place: int, line: bytes) -> bool:
        negative = self._negatives.get(place)
        return negative is not None and negative.search(line) is not None


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes that are no UTF-8 count as characters
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEM
    return options


def _compiled(pattern: str, options: re2.Options, where: str) -> re2._Regexp:
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadInput(where, f"pattern {pattern!r}: {text}", "a pattern in RE2's syntax") from None


def _digest(read: Rules) -> str:
    """32 hex digits that change with every rule, cause and marker; comments and layout of the files do not count."""
    h = hashlib.blake2b(digest_size=16)
    parts: tuple[list[Rule] | dict[str, object] | list[Marker], ...] = (read.rules, {**read.causes}, read.markers)
    for part in parts:
        h.update(msgspec.json.encode(part, order="sorted") + b"\0")
    return h.hexdigest()
