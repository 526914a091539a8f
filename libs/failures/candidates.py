"""Lines that look like errors and that no rule knows, grouped by template: candidates for rules.

Templates are drain3's (He et al., "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS'17).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from drain3 import TemplateMiner
from drain3.masking import MaskingInstruction
from drain3.template_miner_config import TemplateMinerConfig

from libs.failures.lines import cleaned, lines, printable
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import LINE_LIMIT

LONGEST = 512
"""Characters of a line that are compared."""
MOST_TEMPLATES = 2000
"""More of them are not told apart: those that have not been seen for longest go."""
_ERRORS = re.compile(
    rb"(?i)\b(?:error|exception|fail(?:ed|s|ure)?|fatal|abort(?:ed|ing)?|panic|cannot|can't|could not|couldn't|unable"
    rb"|denied|refused|timed? ?out|killed|corrupt(?:ed)?|invalid|unexpected|missing|lost|unreachable|crash(?:ed)?)\b"
    rb"|\w(?:Error|Exception)\b"
)
_MASKS = (
    (r"https?://\S+", "URL"),
    (r"(?<![\w])/(?:[\w.+-]+/)*[\w.+-]+", "PATH"),
    (r"0x[0-9a-fA-F]+", "HEX"),
    (r"'[^']{1,120}'|\"[^\"]{1,120}\"", "TEXT"),
    (r"(?<![A-Za-z])[-+]?\d+(?:[.:,]\d+)*(?:[eE][-+]?\d+)?", "NUM"),
)


@dataclass
class Candidate:
    """A group of lines."""

    template: str
    lines: int = 0
    jobs: set[str] = field(default_factory=set)
    example: str = ""


class Candidates:
    """Unknown lines of jobs, in groups."""

    def __init__(self, rules: RuleSet) -> None:
        """No lines yet.

        Args:
            rules: what they know is no candidate.
        """
        self._rules = rules
        self._miner = TemplateMiner(config=_config())
        self._groups: dict[int, Candidate] = {}

    def feed(self, job: str, log: bytes) -> None:
        """Take the log of a job."""
        for printed in lines(log):
            text = cleaned(printed).text[:LINE_LIMIT]
            if self._is_candidate(text):
                self._add(job, printable(text, LONGEST).strip())

    def found(self) -> Iterable[Candidate]:
        """The groups, those of most jobs first, then those of most lines."""
        return sorted(self._groups.values(), key=lambda each: (-len(each.jobs), -each.lines, each.template))

    def _is_candidate(self, text: bytes) -> bool:
        if _ERRORS.search(text) is None:
            return False
        hits = self._rules.hits(text)
        return not hits.rules and not hits.markers & {"handled", "traceback", "frame", "chained"}

    def _add(self, job: str, line: str) -> None:
        found = self._miner.add_log_message(line)
        group = self._groups.setdefault(found["cluster_id"], Candidate("", example=line))
        group.template = found["template_mined"]
        group.lines += 1
        group.jobs.add(job)


def _config() -> TemplateMinerConfig:
    config = TemplateMinerConfig()
    config.drain_max_clusters = MOST_TEMPLATES
    config.profiling_enabled = False
    config.masking_instructions = [MaskingInstruction(pattern, mask) for pattern, mask in _MASKS]
    return config
