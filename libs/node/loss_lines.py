"""Reads an epoch and its loss from lines of output, by a rule such as `epoch {epoch} loss {loss}`.

A rule is text with the two numbers in it: each text of the rule has to come in the line in this order, directly before
its number, and anything may stand between. It is no regular expression, so a line takes time in proportion to its
length whatever the rule is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from libs.contracts.agent import LogLine
from libs.contracts.placement import LaunchTask
from libs.node.seen import Report

EPOCH, LOSS = "{epoch}", "{loss}"
_PLACE = re.compile(r"\{(\w*)\}")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
EXAMPLE = f"epoch {EPOCH} loss {LOSS}"


class LossLine(msgspec.Struct, frozen=True):
    """How a line of output tells an epoch and its loss."""

    parts: tuple[tuple[str, str], ...]
    """(text, number behind it), in order; the numbers are `epoch` and `loss`."""

    def read(self, line: str) -> tuple[float, float] | None:
        """Epoch and loss of a line; None: it tells none."""
        found: dict[str, float] = {}
        place = 0
        for text, name in self.parts:
            number = _number_behind(text, line, place)
            if number is None:
                return None
            found[name], place = float(number.group()), number.end()
        return found["epoch"], found["loss"]


@lru_cache
def loss_line(rule: str) -> LossLine:
    """The rule of a text.

    Raises:
        ValueError: it does not name both numbers, each once and with text before it; the message says what it has.
    """
    pieces = _PLACE.split(rule)
    texts, names = pieces[:-1:2], pieces[1::2]
    if sorted(names) != ["epoch", "loss"]:
        named = ", ".join(f"{{{name}}}" for name in names) or "none"
        raise ValueError(f"{rule!r} names {named}; expected {EPOCH} and {LOSS} once each, as in {EXAMPLE!r}")
    parts = tuple(zip((" ".join(text.split()) for text in texts), names, strict=True))
    for text, name in parts:
        if not text:
            raise ValueError(f"{rule!r} has no text before {{{name}}}; expected some, as in {EXAMPLE!r}")
    return LossLine(parts)


def told_by_lines(order: LaunchTask, lines: Sequence[LogLine]) -> Report | None:
    """The last epoch and loss that lines of the job's first rank tell; None: they tell none, or are not to be read."""
    if not order.when_converged or not order.loss_line:
        return None
    rule = loss_line(order.loss_line)
    for line in reversed(lines):
        found = rule.read(line.text) if line.rank == 0 else None
        if found is not None:
            epoch, loss = found
            return Report(step=epoch, values={order.loss_metric: loss})
    return None


def _number_behind(text: str, line: str, place: int) -> re.Match[str] | None:
    """The first number directly behind the text, spaces apart, from this place of the line on."""
    while (at := line.find(text, place)) >= 0:
        place = at + len(text)
        behind = place
        while behind < len(line) and line[behind] == " ":
            behind += 1
        number = _NUMBER.match(line, behind)
        if number is not None:
            return number
    return None
