"""A trial: the process ends itself, and well, after the first mini-batches and the first validation that is marked.

    training mini-batches ──so many──> no validation is marked, or one has been run ──> end
                                   └─> else the loader says that its epoch is over, so that the script goes on to its
                                       validation, which is cut short as well ──> end, when it trains on

Knows nothing of torch.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

TRIAL_STEPS = "SANJAYA_TRIAL_STEPS"
"""Mini-batches of the trial, in the environment of its process."""

B = TypeVar("B")


def _nothing() -> None:
    """There is no checkpoint to hand on."""


class Trial:
    """Of one process."""

    def __init__(self, steps: int) -> None:
        """After so many mini-batches it ends."""
        self.steps = steps
        self.is_validating = False
        self._marked = False
        """The script has marked a validation."""
        self._validated = False
        self._done = 0
        self._over = False
        """It has done its mini-batches: every epoch is over."""
        self.when_done: Callable[[], None] = _nothing
        """Called when it has done its mini-batches, before anything that only a trial does."""
        self._asked = False
        """The process was told to end, and the script has caught that."""

    def marked(self) -> None:
        """The script has a validation, and will run it."""
        self._marked = True

    def boundary(self) -> None:
        """A mini-batch is over; the process ends here if it was the last one."""
        if self._over:
            self._end()  # its batches come from no loader, or it has trained on behind its validation
        self._done += 1
        if self._done < self.steps:
            return
        self._over = True
        self.when_done()
        if not self._marked or self._validated:
            self._end()

    def has_done(self, minibatches: int) -> None:
        """So many are over, as a Job counts them."""
        while self._done < minibatches:
            self.boundary()

    def batch_requested(self) -> bool:
        """A loader is asked for a batch outside of a validation. Returns whether it has none left."""
        if self._over and self._validated:
            self._end()
        return self._over

    def validation_begins(self) -> None:
        """The script asks for the first batch of a validation."""
        self.is_validating = True

    def validation_ends(self) -> None:
        """It has the last one, or has left the loop."""
        self.is_validating = False
        self._validated = True

    def _end(self) -> NoReturn:
        """As if the script had come to its end; by force where it has caught that, or is on another thread."""
        print(f"sanjaya: the trial ends after {self._done} mini-batches", file=sys.stderr)
        if not self._asked and threading.current_thread() is threading.main_thread():
            self._asked = True
            sys.exit(0)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(0)


def ordered() -> Trial | None:
    """As the agent wants it of this process; None: it is no trial."""
    steps = os.environ.get(TRIAL_STEPS, "")
    return Trial(int(steps)) if steps.isdecimal() and int(steps) > 0 else None


TRIAL = ordered()
"""This process's."""


class Validation(Generic[B]):
    """The batches of a validation, each time anew."""

    def __init__(self, batches: Iterable[B], trial: Trial | None) -> None:
        self.batches = batches
        self._trial = trial
        if trial is not None:
            trial.marked()

    def __len__(self) -> int:
        length: int = self.batches.__len__()  # type: ignore[attr-defined]
        return length

    def __iter__(self) -> Iterator[B]:
        if self._trial is None:
            yield from self.batches
            return
        self._trial.validation_begins()
        try:
            for number, batch in enumerate(self.batches, start=1):
                yield batch
                if number >= self._trial.steps:
                    return
        finally:
            self._trial.validation_ends()


def validation(batches: Iterable[B]) -> Validation[B]:
    """Mark the batches of the script's validation, where they are made: a trial runs some of them before it ends.

    Args:
        batches: a DataLoader, or anything that is iterated over once per validation.
    """
    return Validation(batches, TRIAL)
