"""Which messages are still needed: how far a position may move while earlier messages wait for later ones."""

from __future__ import annotations


class Held:
    """Per partition, the first message that each key still needs.

    A shell keeps what it gathers in memory only. It commits the position of the first message still needed,
    so that after a crash everything that has not led to an output is read again.
    """

    def __init__(self) -> None:
        self._first: dict[int, dict[str, int]] = {}
        self._partition: dict[str, int] = {}

    def hold(self, key: str, partition: int, offset: int) -> None:
        """The message at `offset` is needed for `key`; an earlier one that is held stays the first."""
        if self._partition.setdefault(key, partition) == partition:
            self._first.setdefault(partition, {}).setdefault(key, offset)

    def release(self, key: str) -> None:
        """No message is needed for `key` any more."""
        partition = self._partition.pop(key, None)
        if partition is not None:
            del self._first[partition][key]

    def position(self, partition: int, next_offset: int) -> int:
        """Everything before it is done with; `next_offset` when nothing is held."""
        return min(self._first.get(partition, {}).values(), default=next_offset)
