"""The steps of a GPU as lines, and the same steps derived again from them.

A file begins with what was remembered before its first step. So each file stands for itself, and the oldest ones can
be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from libs.contracts import wire
from libs.coordination.actions import Step
from libs.coordination.readings import Readings
from libs.coordination.state import Coordination
from libs.coordination.step import step

FORMAT = 4
"""2: trials of trading compare all windows; before, they had pairs of rates. 3: an operator's bound of 0 earns
guests no credit. 4: what is told to a task that waits is in force; a guest
that is called back before it has left is sent away again."""
Kind = TypeVar("Kind")


class NotARecord(ValueError):
    """Lines that are no record of steps; the message says which line, what was found and what was expected."""


class OtherFormat(NotARecord):
    """Steps that other rules have taken, before the agent was replaced: they cannot be derived again."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    format: int
    state: Coordination


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One step."""

    now_s: float
    readings: Readings
    step: msgspec.Raw


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was derived again."""

    line: int
    """From 1."""
    now_s: float
    recorded: bytes
    derived: bytes

    @property
    def is_same(self) -> bool:
        """Byte for byte."""
        return self.recorded == self.derived


def head_line(state: Coordination) -> bytes:
    """What a file begins with."""
    return msgspec.json.encode(Head(format=FORMAT, state=state)) + b"\n"


def step_line(now_s: float, readings: Readings, result: Step) -> bytes:
    """What is added to it by a step."""
    return msgspec.json.encode(Line(now_s, readings, msgspec.Raw(_encoded(result)))) + b"\n"


def derive(lines: Iterable[bytes]) -> Iterator[Derived]:
    """Derive the steps of a file again. A last line that was cut off is passed over.

    Raises:
        NotARecord: a line cannot be read.
        OtherFormat: the file is one of an agent with other rules.
    """
    state: Coordination | None = None
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return
        if state is None:
            state = _state(line)
            continue
        found = _decoded(line, Line, number)
        result = step(state, found.readings, found.now_s)
        yield Derived(line=number, now_s=found.now_s, recorded=bytes(found.step), derived=_encoded(result))


def _state(line: bytes) -> Coordination:
    head = _decoded(line, Head, 1)
    if head.format != FORMAT:
        raise OtherFormat(f"line 1: a record of format {head.format}; expected {FORMAT}")
    return head.state


def _decoded(line: bytes, kind: type[Kind], number: int) -> Kind:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise NotARecord(f"line {number}: {error}; expected a {kind.__name__.lower()} of coordination") from error


def _encoded(result: Step) -> bytes:
    facts = [{"type": fact.wire_type, "data": msgspec.Raw(wire.encode_data(fact))} for fact in result.facts]
    return msgspec.json.encode({"actions": result.actions, "open_guests": result.open_guests, "facts": facts})
