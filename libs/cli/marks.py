"""Lines of a followed job that decide why it fails, as the package's rules see it."""

from __future__ import annotations

from typing import Any

from libs.failures.classifier import Classifier
from libs.failures.package import package_rules


class Marks:
    """What is known of the lines of one job, attempt by attempt."""

    def __init__(self) -> None:
        self._attempts: dict[int, Classifier] = {}
        self._told: dict[tuple[int, str, int | None], None] = {}

    def of(self, line: dict[str, Any]) -> str:
        """A sentence about the line, if it is one that decides and was not told of before; else empty."""
        attempt = line["attempt"]
        classifier = self._attempts.setdefault(attempt, Classifier(package_rules()))
        text, rank = line["text"].encode("utf-8", "replace"), line["rank"]
        classifier.feed_line(text, rank=rank, stream=line["stream"])
        found = classifier.verdict()
        if found is None or (key := (attempt, found.rule, found.rank)) in self._told:
            return ""
        self._told[key] = None
        return f"^ rank {rank}: {found.reason} ({found.cause})"
