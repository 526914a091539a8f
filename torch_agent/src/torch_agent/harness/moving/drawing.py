"""One pass over the batches of an epoch, which another process can repeat up to where this one is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from .randomness import Randomness

B = TypeVar("B")
PERSISTENT = "_iterator"
"""Where a DataLoader keeps workers that live for more than one pass."""
_ended: list[Any] = []
"""Iterators with workers that have died: dropping one waits for a lock that one of them may have had then."""


class Drawing(Generic[B]):
    """An iterator that knows what it began with: the order of the batches hangs on it."""

    def __init__(
        self,
        batches: Iterable[B],
        randomness: Randomness,
        began_with: dict[str, Any] | None = None,
        *,
        renewed: bool = False,
    ) -> None:
        """Begin.

        Args:
            began_with: what the pass began with that this one is to repeat; None: with what comes next.
            renewed: with new workers: those that the loader may have have died.
        """
        self.batches, self._randomness = batches, randomness
        self.began_with = began_with or {"randomness": randomness.capture(), "workers": self._has_workers()}
        """The random numbers, and whether the loader had its workers from an earlier pass."""
        self.renewed = renewed
        """The workers are from after the signal."""
        if renewed:
            self._forget_workers()
        self._iterator = iter(batches) if began_with is None and not renewed else self._begin_again()

    def draw(self) -> B:
        """The next batch.

        Raises:
            StopIteration: there are no more.
        """
        return next(self._iterator)

    def drop(self, batches_done: int, goes_on_with: dict[str, Any]) -> None:
        """Drop the batches that are done, and go on with the random numbers that came then.

        They are drawn, not skipped: workers with random augmentation are where they were afterwards.

        Raises:
            RuntimeError: there are not so many.
        """
        for number in range(batches_done):
            if next(self._iterator, self) is self:
                raise RuntimeError(f"sanjaya: {batches_done} batches of this epoch were done, now there are {number}")
        self._randomness.restore(goes_on_with)

    def renew(self, batches_done: int) -> None:
        """Come back to where this pass is with new workers: the old ones have died."""
        now = self._randomness.capture()
        _ended.append(self._iterator)
        self.renewed = True
        self._forget_workers()
        self._iterator = self._begin_again()
        self.drop(batches_done, now)

    def _begin_again(self) -> Iterator[B]:
        if self.began_with["workers"] and not self._has_workers():
            iter(self.batches)  # makes them, for which it draws a random number that the pass did not draw
        self._randomness.restore(self.began_with["randomness"])
        return iter(self.batches)

    def _has_workers(self) -> bool:
        return getattr(self.batches, PERSISTENT, None) is not None

    def _forget_workers(self) -> None:
        if self._has_workers():
            _ended.append(getattr(self.batches, PERSISTENT))
            setattr(self.batches, PERSISTENT, None)
