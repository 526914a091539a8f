"""Rules against their own examples, and against each other's."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.bad_input import BadInput
from libs.failures.classifier import Classifier
from libs.failures.reading import Rules
from libs.failures.rule import Rule
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import Ended


def problems(read: Rules, rules: RuleSet) -> Iterator[BadInput]:
    """What is wrong with examples: each has to be decided by its own rule among all, and no counter-example matched.

    Args:
        read: rules with the places where they are written.
        rules: the same, ready for use.
    """
    for place, rule in enumerate(read.rules):
        decided = decided_by(rules, rule)
        if decided != rule.id:
            taken = f"rule {decided} takes it" if decided else "no rule matches it"
            yield BadInput(read.place(rule), f"example {rule.example!r}: {taken}", "an example that this rule decides")
        if any(place in rules.hits(line.encode()).rules for line in rule.counter_example.splitlines()):
            yield BadInput(read.place(rule), f"it matches its counter-example {rule.counter_example!r}", "no match")
    for number, marker in enumerate(read.markers):
        alone = RuleSet(Rules(markers=[marker]))
        if not alone.hits(marker.example.encode()).markers:
            yield BadInput(f"marker {number} ({marker.kind})", f"no match of {marker.example!r}", "a match")
        if alone.hits(marker.counter_example.encode()).markers:
            yield BadInput(f"marker {number} ({marker.kind})", f"it matches {marker.counter_example!r}", "no match")


def decided_by(rules: RuleSet, rule: Rule) -> str:
    """The id of the rule that decides a rule's example; empty where none does."""
    classifier = Classifier(rules)
    classifier.feed(rule.example, stream=rule.streams[0])
    found = classifier.verdict(Ended(exit_code=1))
    return found.rule if found else ""
