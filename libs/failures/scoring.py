"""How well verdicts fit labels: per reason, what is taken for what, and how sure verdicts are that are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from libs.failures.rule import REASONS
from libs.failures.verdict import Verdict

STEPS = (0.6, 0.8, 0.9, 0.95, 1.0)
"""Upper bounds of the confidences that are counted together."""


@dataclass
class Score:
    """Verdicts against labels."""

    name: str
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """{(label, verdict): records}."""
    lines: int = 0
    """Records of which label and verdict name the same line, or none where nothing decides."""
    sure: Counter[tuple[float, bool]] = field(default_factory=Counter)
    """{(upper bound of the confidence, whether it was right): records}."""

    def add(self, reason: str, deciding_line: str | None, found: Verdict) -> None:
        """Count one record."""
        right = found.reason == reason
        self.pairs[reason, found.reason] += 1
        self.lines += (deciding_line or "").strip() == found.deciding_line.strip()
        self.sure[next(step for step in STEPS if found.confidence <= step), right] += 1

    @property
    def total(self) -> int:
        """How many records were judged."""
        return sum(self.pairs.values())

    @property
    def right(self) -> int:
        """Records with the right reason."""
        return sum(count for (label, found), count in self.pairs.items() if label == found)

    def summary(self) -> str:
        """How many reasons and deciding lines were right, as one line."""
        return f"{self.name}: {self.right} of {self.total} reasons, {self.lines} of {self.total} deciding lines"

    def markdown(self) -> str:
        """Tables: per reason, and per confidence."""
        heads = "| reason | labelled | right | found | taken for |\n|---|---|---|---|---|\n"
        rows = "".join(map(self._row, self._reasons()))
        sure = "| confidence | verdicts | right |\n|---|---|---|\n" + "".join(map(self._sure_row, STEPS))
        return f"## {self.name}\n\n{self.summary()}.\n\n{heads}{rows}\n{sure}"

    def _reasons(self) -> Sequence[str]:
        seen = {each for pair in self.pairs for each in pair}
        return [*(reason for reason in REASONS if reason in seen), *sorted(seen - set(REASONS))]

    def _row(self, reason: str) -> str:
        labelled = sum(count for (label, _), count in self.pairs.items() if label == reason)
        found = sum(count for (_, verdict), count in self.pairs.items() if verdict == reason)
        others = [
            f"{verdict} {count}" for (label, verdict), count in sorted(self.pairs.items()) if label == reason != verdict
        ]
        right = self.pairs[reason, reason]
        return f"| `{reason}` | {labelled} | {right} | {found} | {', '.join(others) or '–'} |\n"

    def _sure_row(self, step: float) -> str:
        right, wrong = self.sure[step, True], self.sure[step, False]
        return f"| up to {step} | {right + wrong} | {right} |\n" if right + wrong else ""
