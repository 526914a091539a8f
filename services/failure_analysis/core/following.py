"""The lines of running attempts, one classifier for all ranks and both streams of each, and what they tell.

What is told goes to control once for each line that decides. What a classifier has seen is kept in memory alone: a
shell that was killed reads the last lines of each attempt again (`position`), and knows from control what was told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from libs.contracts.agent import JobLogged
from libs.contracts.envelope import Envelope
from libs.contracts.failure_analysis import OWNER, FailureObserved
from libs.failures.classifier import Classifier
from libs.failures.exits import no_signature
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import Ended, Verdict
from libs.kernel.held import Held
from libs.kernel.ids import derived_id
from services.failure_analysis.core.watching import Attempt, key_of

KEPT_LINES = 2_000
"""So many lines of each attempt are read again after a kill: more than any context of a rule lasts."""
MOST_BEHIND = 10_000
"""Records of a partition that are read again at most: an attempt that prints seldom holds no others up."""
MOST_TOLD = 6
"""Lines of an attempt that are told before its end: what decides at last is told with its last line."""
REMEMBERED = 256
"""Records of an attempt by which one that was appended twice is known."""
LINE_LIMIT = 500
FORGOTTEN_AFTER_S = 60.0
"""Lines of an attempt that control does not know for so long came after its end."""

Key = tuple[str, int]
"""Job and attempt."""


@dataclass
class _Lines:
    """What is known of the lines of one attempt."""

    classifier: Classifier
    digest: str
    nodes: dict[int, str] = field(default_factory=dict)
    """{rank: its node}."""
    told: dict[str, None] = field(default_factory=dict)
    kept: deque[tuple[int, int]] = field(default_factory=deque)
    """(offset, lines) of the last records."""
    kept_lines: int = 0
    seen: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    read_s: float = 0.0


class Following:
    """The attempts of one shell."""

    def __init__(self, rules: RuleSet) -> None:
        """`rules`: for attempts with their first line from now on; those that run keep theirs."""
        self.rules = rules
        self._lines: dict[Key, _Lines] = {}
        self._changed: dict[Key, None] = {}
        self._held = Held()

    def take(self, record: Envelope, logged: JobLogged, partition: int, offset: int, now_s: float) -> None:
        """Take the lines of one record, which may come again.

        Args:
            record: the envelope.
            logged: its event.
            partition: of the logs topic.
            offset: in it.
            now_s: when it is read.
        """
        key = logged.job_id, logged.attempt
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = self._begun()
        lines.read_s = now_s
        self._keep(lines, key, partition, offset, len(logged.lines))
        if record.id in lines.seen:
            return
        lines.seen.append(record.id)
        for line in logged.lines:
            lines.nodes[line.rank] = logged.node_id
            lines.classifier.feed_line(line.text.encode("utf-8", "replace"), rank=line.rank, stream=line.stream)
        self._changed[key] = None

    def told(self, attempts: Mapping[str, Attempt]) -> list[FailureObserved]:
        """What the lines that came last tell of attempts that run; those that control does not know yet have to wait.

        Args:
            attempts: {job id: latest attempt} as control has them.
        """
        found = []
        for key in list(self._changed):
            attempt = attempts.get(key[0])
            if attempt is None or attempt.number < key[1]:
                continue
            del self._changed[key]
            if attempt.number == key[1] and attempt.ended is None:
                found += self._tell(key, attempt)
        return found

    def last_word(self, job_id: str, attempt: int, ended: Ended) -> FailureObserved:
        """What all lines of an attempt that has failed tell; it is forgotten."""
        key = job_id, attempt
        lines = self._lines.get(key) or self._begun()
        self._forget(key)
        verdict = lines.classifier.verdict(ended) or no_signature()
        return _observed(key, verdict, lines.digest, lines.nodes, complete=True)

    def forget_all_but(self, attempts: Mapping[str, Attempt], now_s: float) -> None:
        """Forget attempts that are over."""
        for key, lines in list(self._lines.items()):
            attempt = attempts.get(key[0])
            is_known = attempt is not None and attempt.number == key[1]
            if not is_known and now_s - lines.read_s > FORGOTTEN_AFTER_S:
                self._forget(key)

    def position(self, partition: int, next_offset: int) -> int:
        """Where a new shell has to begin, so that it knows enough of the attempts that run."""
        return max(self._held.position(partition, next_offset), next_offset - MOST_BEHIND, 0)

    def _begun(self) -> _Lines:
        return _Lines(Classifier(self.rules), self.rules.digest)

    def _tell(self, key: Key, attempt: Attempt) -> list[FailureObserved]:
        lines = self._lines[key]
        lines.told.update(dict.fromkeys(attempt.told))
        verdict = lines.classifier.verdict()
        if verdict is None or len(lines.told) >= MOST_TOLD:
            return []
        name = key_of(verdict.rule, verdict.rank)
        if name in lines.told:
            return []
        lines.told[name] = None
        return [_observed(key, verdict, lines.digest, lines.nodes)]

    def _keep(self, lines: _Lines, key: Key, partition: int, offset: int, count: int) -> None:
        lines.kept.append((offset, count))
        lines.kept_lines += count
        while lines.kept_lines - lines.kept[0][1] >= KEPT_LINES:
            lines.kept_lines -= lines.kept.popleft()[1]
        name = _name(key)
        self._held.release(name)
        self._held.hold(name, partition, lines.kept[0][0])

    def _forget(self, key: Key) -> None:
        self._lines.pop(key, None)
        self._changed.pop(key, None)
        self._held.release(_name(key))


def envelope(observed: FailureObserved, time_s: float) -> Envelope:
    """What was observed on its way to control: its id follows from what it is about."""
    about = "complete" if observed.complete else key_of(observed.rule, observed.rank)
    event_id = derived_id(OWNER, f"{observed.job_id}/{observed.attempt}/{about}", 0)
    return Envelope(id=event_id, source=OWNER, time_s=time_s, event=observed)


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def _observed(
    key: Key, verdict: Verdict, digest: str, nodes: Mapping[int, str], *, complete: bool = False
) -> FailureObserved:
    job_id, attempt = key
    return FailureObserved(
        job_id=job_id,
        attempt=attempt,
        rule=verdict.rule,
        digest=digest,
        failure=verdict.reason,
        category=verdict.category,
        cause=verdict.cause,
        retry_can_help=verdict.retry_can_help,
        confidence=verdict.confidence,
        level=verdict.level,
        line=verdict.deciding_line[:LINE_LIMIT],
        rank=verdict.rank,
        node_id=nodes.get(verdict.rank, "") if verdict.rank is not None else "",
        stream=verdict.stream,
        others=list(verdict.others),
        evidence=[line[:LINE_LIMIT] for line in verdict.evidence],
        complete=complete,
    )
