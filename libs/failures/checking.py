"""Rules against their own examples, and against each other's."""

from __future__ import annotations

from libs.contracts.bad_input import BadInput
from libs.failures.classifier import Classifier
from libs.failures.reading import Rules
from libs.failures.rule import Rule
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import Ended


def check_examples(read: Rules, rules: RuleSet) -> None:
    """Every example is decided by its own rule among all others, and no rule matches its counter-example.

    Raises:
        BadInput: the first rule or marker for which that is not so, with its place.
    """
    for place, rule in enumerate(read.rules):
        decided = _decided(rules, rule)
        if decided != rule.id:
            taken = f"it is taken by rule {decided}" if decided else "no rule matches it"
            raise BadInput(read.place(rule), f"example {rule.example!r}: {taken}", "an example that this rule decides")
        if any(place in rules.hits(line.encode()).rules for line in rule.counter_example.splitlines()):
            raise BadInput(read.place(rule), f"it matches its counter-example {rule.counter_example!r}", "no match")
    for marker in read.markers:
        if marker.kind not in rules.hits(marker.example.encode()).markers:
            raise BadInput(f"marker {marker.kind}", f"it does not match its example {marker.example!r}", "a match")
        if _matches_alone(rules, read, marker.pattern, marker.counter_example):
            raise BadInput(f"marker {marker.kind}", f"it matches {marker.counter_example!r}", "no match")


def _decided(rules: RuleSet, rule: Rule) -> str:
    classifier = Classifier(rules)
    classifier.feed(rule.example, stream=rule.streams[0])
    found = classifier.verdict(Ended(exit_code=1))
    return found.rule if found else ""


def _matches_alone(rules: RuleSet, read: Rules, pattern: str, text: str) -> bool:
    alone = RuleSet(Rules(markers=[each for each in read.markers if each.pattern == pattern]))
    return bool(alone.hits(text.encode()).markers)
