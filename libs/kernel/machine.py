"""The form of every core: a table from event type to what it changes and what it makes the service decide.

A core is one `Machine`. For each event type it may have an *evolve* (what the event changes in the state;
never decides) and a *decide* (what the service says about it; changes the state only by emitting). A
service's own outputs go through the same evolve table at the moment they are emitted, so the state is a
fold over the events and nothing else: inputs, and own outputs on the control log. `Machine.refold` folds what was
recorded without deciding again.

A machine may *judge* its inputs: an event that is impossible in the state changes nothing and nothing is decided about
it. `Replica` tells of it: in tests and simulations it raises, in live shells it is counted.

An evolve may return what it has changed; the decide of the same event finds that in `Turn.changed`. So a decision
that is due once, at the event that makes it due, needs no mark of its own in the state.

The exception are outputs that the service *hears*: they take effect when they are read back from the log, like
an input. So does what a numeric solver has found: whatever follows from it follows from the log, also on a
machine with a solver that would have found another optimum of the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, TypeVar

from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.runtime import ClockRepaired, TimerFired

S = TypeVar("S")
E = TypeVar("E", bound=Event)

Evolve = Callable[[S, Any, float], object]
Decide = Callable[[S, Any, "Turn[S]"], None]
Judge = Callable[[S, Any], str | None]
Tell = Callable[[Envelope, str], None]
"""Is told of an input that is impossible, and why."""


class Turn(Generic[S]):
    """One handling of one input event: says the time and collects what is decided."""

    __slots__ = ("_evolve", "_heard", "_state", "cause_id", "changed", "now_s", "outputs", "refused")

    def __init__(
        self,
        state: S,
        evolve: Callable[[S, Event, float], object],
        now_s: float,
        cause_id: str,
        heard: Collection[type[Event]] = (),
        changed: Any = None,
    ) -> None:
        self._state, self._evolve, self._heard = state, evolve, heard
        self.now_s = now_s
        """Time of the input, never earlier than that of any input before."""
        self.cause_id = cause_id
        self.changed = changed
        """What the evolve of the input has returned."""
        self.outputs: list[Event] = []
        self.refused: list[str] = []
        """Decisions that were not said, because they cannot be carried out; each with why."""

    def emit(self, event: Event) -> Any:
        """Decide `event`: it is appended to the log after the turn.

        It takes effect on the state at once, or when it is read if the service hears events of its type.

        Returns:
            What its evolve has returned, as `changed` is of the input's; None for an event that takes effect later.
        """
        self.outputs.append(event)
        return None if type(event) in self._heard else self._evolve(self._state, event, self.now_s)

    def refuse(self, event: Event, why: str) -> None:
        """Say that `event` was about to be decided and cannot be, with the cause as a sentence: nothing happens."""
        self.refused.append(f"{type(event).__name__} of {event.subject} was refused: {why}")


class Machine(Generic[S]):
    """The table of one service."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._evolves: dict[type[Event], Evolve[S]] = {}
        self._decides: dict[type[Event], Decide[S]] = {}
        self._heard: dict[type[Event], None] = {}
        self._judge: Judge[S] | None = None

    def evolves(self, *types: type[Event]) -> Callable[[Evolve[S]], Evolve[S]]:
        """Register how events of these types change the state: `evolve(state, event, now_s)`.

        Raises:
            ValueError: a type has an evolve already, or is no event of the control log, from which alone the state
                is recovered: an order carries a decision out and changes nothing.
        """
        elsewhere = [cls.__name__ for cls in types if cls.topic is not Topic.CONTROL]
        if elsewhere:
            raise ValueError(f"{self.service}: {', '.join(elsewhere)} is not on the control log and changes no state")

        def register(function: Evolve[S]) -> Evolve[S]:
            self._add(self._evolves, types, function)
            return function

        return register

    def decides(self, *types: type[Event]) -> Callable[[Decide[S]], Decide[S]]:
        """Register what the service decides on inputs of these types: `decide(state, event, turn)`."""

        def register(function: Decide[S]) -> Decide[S]:
            self._add(self._decides, types, function)
            return function

        return register

    def judges(self, function: Judge[S]) -> Judge[S]:
        """Register what tells why an input cannot be in a state, as a sentence; None: it can.

        Raises:
            ValueError: there is one already.
        """
        if self._judge is not None:
            raise ValueError(f"{self.service}: inputs are judged twice ({self._judge}, {function})")
        self._judge = function
        return function

    def hears(self, *types: type[Event]) -> None:
        """Own outputs of these types take effect when they are read from the log, not when they are emitted."""
        self._heard.update(dict.fromkeys(types))

    def _add(self, table: dict[type[Event], Any], types: tuple[type[Event], ...], function: Any) -> None:
        for cls in types:
            if cls in table:
                raise ValueError(f"{self.service}: {cls.__name__} has two entries ({table[cls]}, {function})")
            table[cls] = function

    def reads(self, event: Event) -> bool:
        """Whether the event is an input of this service."""
        if isinstance(event, TimerFired):
            return event.service == self.service
        if isinstance(event, ClockRepaired):
            return True
        if event.owner == self.service:
            return type(event) in self._heard
        return type(event) in self._decides or type(event) in self._evolves

    @property
    def inputs(self) -> tuple[type[Event], ...]:
        """The event types read, of the service's own only those that it hears, in order of wire name."""
        known: dict[type[Event], None] = dict.fromkeys((*self._decides, *self._evolves, ClockRepaired))
        read = (c for c in known if c.owner != self.service or c in self._heard)
        return tuple(sorted(read, key=lambda c: c.wire_type))

    def handle(self, state: S, envelope: Envelope, now_s: float, tell: Tell | None = None) -> list[Event]:
        """Take one input: change `state` and return what the service decides, in order.

        An impossible input changes nothing; `tell` hears of it, and of decisions that were refused.
        """
        if self._judge is not None and self._is_impossible(state, envelope, tell):
            return []
        event = envelope.event
        cls = type(event)
        evolve, decide = self._evolves.get(cls), self._decides.get(cls)
        changed = evolve(state, event, now_s) if evolve is not None else None
        if decide is None:
            return []
        turn = Turn(state, self.evolve, now_s, envelope.id, self._heard, changed)
        decide(state, event, turn)
        if tell is not None:
            for why in turn.refused:
                tell(envelope, why)
        return turn.outputs

    def refold(
        self, state: S, envelope: Envelope, outputs: Iterable[Event], now_s: float, tell: Tell | None = None
    ) -> None:
        """Change `state` as the input and the outputs that were recorded for it say, without deciding.

        An impossible input itself changes nothing; `tell` hears of it.
        """
        if not self._is_impossible(state, envelope, tell):
            self.evolve(state, envelope.event, now_s)
        for output in outputs:
            if type(output) not in self._heard:
                self.evolve(state, output, now_s)

    def _is_impossible(self, state: S, envelope: Envelope, tell: Tell | None) -> bool:
        why = self._judge(state, envelope.event) if self._judge is not None else None
        if why is not None and tell is not None:
            tell(envelope, why)
        return why is not None

    def evolve(self, state: S, event: Event, now_s: float) -> object:
        """Change `state` as `event` says, and return what its evolve does; nothing for a type without an entry."""
        evolve = self._evolves.get(type(event))
        return evolve(state, event, now_s) if evolve is not None else None
