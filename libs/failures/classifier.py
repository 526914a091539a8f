"""Why a job failed: fed with its lines as they come, asked for a verdict at any time.

Of all lines that rules know, the earliest of the best rank decides. A rank is a place on the way from root cause to
consequence, so a peer's lost connection (70 to 79) yields to whatever another rank says of itself. Memory is bounded:
one match per rule is kept, the best of them, and the state of the 64 sources that printed last.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libs.failures import exits
from libs.failures.lines import WINDOW, Line, cleaned, lines, printable, windows
from libs.failures.rule import CONTEXTS, MERGED, Rule, Versions
from libs.failures.ruleset import NOTHING, Hits, RuleSet
from libs.failures.sources import Source, Sources
from libs.failures.verdict import DOUBT_HANDLED, KILL, LINE_LIMIT, Ended, Verdict, confidence_of

MOST_MATCHES = 24
MOST_EVIDENCE = 20
SURVIVED_AFTER = 3
"""A rank that prints so many lines of progress after a match has survived it."""
SURVIVED_RANKS = 48
"""So much worse is the rank of a match that was survived: behind all but the bare consequences of another one."""
FOLLOWS_RANK = 85
"""The rank of an error without a cause of its own that was raised while another one was handled."""
CONTEXT_LINES = 400
"""How many lines of a job a context lasts, unless progress ends it."""
WINDOWS_WITH_MATCHES = 8
"""In how many windows of one line rules are looked for; all of them are searched for the rules' literals."""

NO_ERROR = frozenset(("handled", "warning"))
"""Markers of lines that decide nothing, unless their rule is `even_if_handled`."""

UNKNOWN_ERROR = Rule(
    id="unknown_exception",
    reason="traceback_from_crash",
    cause="unknown_exception",
    category="user",
    rank=90,
    pattern="",
    example="",
    counter_example="",
)
"""What a traceback ends with that no rule knows."""


class Match(msgspec.Struct):
    """A line that a rule knows."""

    rule: Rule
    position: int
    """How many lines of the job came before."""
    line: bytes
    rank: int | None
    stream: str
    level: int
    """The rank of the rule, or a worse one where another error came first."""
    progress: int
    """Of this rank of the job, at that time."""


class Classifier:
    """The lines of one job, seen so far.

    Lines come in the order of time, over all ranks and streams.
    """

    def __init__(self, rules: RuleSet, versions: dict[str, str] | None = None) -> None:
        """A job without lines.

        Args:
            rules: in force.
            versions: {package: version} of what the job uses, where known; rules for other versions are left out.
        """
        self._rules = rules
        self._versions = versions or {}
        self._sources = Sources()
        self._matches: dict[str, Match] = {}
        self._position = 0
        self._contexts: dict[str, int] = {}
        self._context_progress = 0
        self._had_traceback = False

    def feed(self, data: bytes | str, *, rank: int | None = None, stream: str = MERGED) -> None:
        """Take whole lines.

        Args:
            data: with any ends of lines; colours, NUL and bytes that are no UTF-8 may be in it.
            rank: of the process that printed them, where it is known; prefixes of lines name it, too.
            stream: one of `rule.STREAMS`, or `merged`.
        """
        for line in lines(data.encode("utf-8", "replace") if isinstance(data, str) else data):
            self.feed_line(line, rank=rank, stream=stream)

    def feed_line(self, printed: bytes, *, rank: int | None = None, stream: str = MERGED) -> None:
        """Take one line, without its end."""
        self._position += 1
        line = cleaned(printed, rank)
        for text in (line.text,) if len(line.text) <= WINDOW else self._to_look_at(line.text):
            hits = self._rules.hits(text)
            if hits is NOTHING and not self._had_traceback:
                continue
            source = self._sources.of(line.rank, stream)
            if source.is_code(hits.markers, text, self._position):
                self._had_traceback = True
            else:
                self._judge(hits, line._replace(text=text), source, stream)
            self._mark(hits, line.rank)

    def verdict(self, ended: Ended | None = None) -> Verdict | None:
        """Why the job fails, as far as it is known.

        Args:
            ended: how the process has ended; None while it runs. Then only lines count that a healthy job does not
                print and that were not survived.

        Returns:
            None where nothing is wrong, or nothing is known yet.
        """
        if ended is None:
            found = min(filter(self._is_sure, self._matches.values()), key=_order, default=None)
            return None if found is None else self._verdict_of(found)
        if ended.well:
            return None
        matches = list(self._matches.values())
        if ended.killed_from_outside:  # a shell's `Killed` says no more than the status
            matches = [each for each in matches if each.rule.cause != exits.SIGNALS[KILL].cause]
        best = min(matches, key=self._order_at_end, default=None)
        status = exits.status_of(ended)
        if best is not None and (status is None or self._order_at_end(best)[0] <= status.rank):
            return self._verdict_of(best)
        if status is not None:
            return exits.verdict_of(status, self._rules.causes[status.cause].retry, self._evidence(None))
        return exits.no_signature()

    def _to_look_at(self, text: bytes) -> Iterable[bytes]:
        pieces = windows(text)
        first = next(pieces)
        yield first
        left = WINDOWS_WITH_MATCHES - 1
        for piece in pieces:
            if left and self._rules.may_hit(piece):
                left -= 1
                yield piece

    def _judge(self, hits: Hits, line: Line, source: Source, stream: str) -> None:
        in_traceback = source.in_traceback
        is_error = source.ends_with(hits.markers, line.text)
        is_handled = not NO_ERROR.isdisjoint(hits.markers)
        if "handled" in hits.markers:
            source.handled_at = self._position
        elif in_traceback and not source.in_traceback:
            is_handled = source.is_handled
        rule = self._deciding(hits, stream, is_handled)
        if rule is None and is_error and not is_handled:
            rule = UNKNOWN_ERROR
        if rule is not None:
            self._keep(rule, line, stream, source)

    def _deciding(self, hits: Hits, stream: str, is_handled: bool) -> Rule | None:
        """The rule of a line: the best of those that hold here; one that is no fallback goes first."""
        found = None
        for place in hits.rules:
            rule = self._rules.rules[place]
            if (is_handled and not rule.even_if_handled) or not self._holds(rule, stream):
                continue
            if found is None or (rule.fallback, rule.rank) < (found.fallback, found.rank):
                found = rule
        return found

    def _holds(self, rule: Rule, stream: str) -> bool:
        if stream != MERGED and stream not in rule.streams:
            return False
        if rule.context and not self._is_in(rule.context):
            return False
        return rule.versions is None or _fits(rule.versions, self._versions.get(rule.versions.package))

    def _is_in(self, context: str) -> bool:
        since = self._contexts.get(context)
        return since is not None and self._position - since <= CONTEXT_LINES

    def _keep(self, rule: Rule, line: Line, stream: str, source: Source) -> None:
        level = rule.rank
        if rule.fallback and source.follows and self._matches:
            level = max(level, FOLLOWS_RANK)
        shown = line.printed if len(line.printed) <= LINE_LIMIT else line.text[:LINE_LIMIT]
        progress = self._sources.progress(line.rank)
        match = Match(rule, self._position, shown, line.rank, stream, level, progress)
        before = self._matches.get(rule.id)
        if before is None or self._was_survived(before) or match.level < before.level:
            self._matches[rule.id] = match
        if len(self._matches) > MOST_MATCHES:
            del self._matches[max(self._matches.values(), key=self._order_at_end).rule.id]

    def _mark(self, hits: Hits, rank: int | None) -> None:
        if "saved" in hits.markers:
            self._contexts.pop("saving", None)
        for context in CONTEXTS:
            if context in hits.markers:
                self._begin(context)
        if "progress" in hits.markers and not hits.rules:
            self._sources.progressed(rank)
            self._context_progress += 1
            if self._context_progress >= SURVIVED_AFTER:
                self._contexts = {name: at for name, at in self._contexts.items() if name == "diverging"}

    def _begin(self, context: str) -> None:
        if context in ("saving", "reading"):
            self._contexts.pop("reading" if context == "saving" else "saving", None)
        self._contexts[context] = self._position
        self._context_progress = 0

    def _was_survived(self, match: Match) -> bool:
        return self._sources.progress(match.rank) - match.progress >= SURVIVED_AFTER

    def _is_sure(self, match: Match) -> bool:
        return not match.rule.needs_exit and not self._was_survived(match)

    def _order_at_end(self, match: Match) -> tuple[int, int]:
        level, position = _order(match)
        return level + SURVIVED_RANKS * self._was_survived(match), position

    def _verdict_of(self, match: Match) -> Verdict:
        rule = match.rule
        doubt = DOUBT_HANDLED if self._was_survived(match) else 1.0
        return Verdict(
            reason=rule.reason,
            category=rule.category,
            cause=rule.cause,
            retry_can_help=self._rules.causes[rule.cause].retry,
            confidence=round(confidence_of(match.level) * doubt, 2),
            deciding_line=printable(match.line, LINE_LIMIT),
            rule=rule.id,
            rank=match.rank,
            stream=match.stream,
            action=rule.action,
            evidence=self._evidence(match),
            level=match.level,
            others=self._others(match),
        )

    def _evidence(self, decided: Match | None) -> tuple[str, ...]:
        others = [match for match in self._matches.values() if match is not decided]
        kept = sorted(others, key=self._order_at_end)[:MOST_EVIDENCE]
        return tuple(printable(match.line, LINE_LIMIT) for match in sorted(kept, key=lambda each: each.position))

    def _others(self, decided: Match) -> tuple[int, ...]:
        ranks = {match.rank for match in self._matches.values() if match.rank != decided.rank}
        return tuple(sorted(rank for rank in ranks if rank is not None))


def _order(match: Match) -> tuple[int, int]:
    return match.level, match.position


def _fits(versions: Versions, given: str | None) -> bool:
    """Whether a version may print the line; one that is not known may."""
    if given is None:
        return True
    number = _number(given)
    if versions.since and number < _number(versions.since):
        return False
    return not versions.until or number < _number(versions.until)


def _number(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (2, 15, 0) for `2.15.0+cu130`."""
    numbers: list[int] = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
