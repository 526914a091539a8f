"""What cannot be read of the files that the harness, the shims and the agent leave for each other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class Unreadable(Exception):
    """A file that this code cannot read; the message says which, what was found and what was expected."""


class UnknownVersion(Unreadable):
    """It has a version that this code does not know."""

    def __init__(self, path: Path | str, what: str, found: int, known: Iterable[int]) -> None:
        """See the class.

        Args:
            what: the file is, in a few words.
            found: the version that the file says it has.
        """
        versions = ", ".join(map(str, known))
        super().__init__(f"{path}: {what} of version {found}; this code knows version {versions}")
