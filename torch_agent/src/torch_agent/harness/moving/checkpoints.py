"""Checkpoints of a job on disk: a folder each, with the state of every rank, there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..attempts import PART, AttemptFolder
from ..gang import agreed_in_the_store
from .loading import load
from .saving import save

PREFIX = "job-"
NOT_PARKED: Mapping[int, Any] = MappingProxyType({})
"""Every tensor has its memory."""
NO_NOTE: Mapping[str, str] = MappingProxyType({})


class Checkpoints:
    """Of one job; `attempt-<number>/job-<batches done>/rank-<rank>` in the folder."""

    def __init__(self, folder: str, rank: int, barrier: Callable[[], None], *, alike: bool = False) -> None:
        """Look whose the folder is.

        Args:
            barrier: waits for all ranks of the job.
            alike: all ranks are in the same state, which the first one saves for all.

        Raises:
            ValueError: it is another job's.
        """
        self._attempt = AttemptFolder(folder, PREFIX)
        self._rank, self._barrier, self._alike = rank, barrier, alike
        self._newest: int | None = None
        """Batches done at this attempt's newest checkpoint."""

    def claim(self) -> None:
        """Make this the newest attempt at the job, before it loads anything or trains.

        Raises:
            Fenced: it is not.
        """
        self._attempt.claim()

    def newest(self) -> str | None:
        """The newest complete checkpoint of all attempts; None when there is none."""
        return self._attempt.newest()

    def load(self) -> Any:
        """This rank's state in the newest complete checkpoint, the same one on all ranks; None when there is none."""
        newest = agreed_in_the_store(f"checkpoints/{self._attempt.path}", self.newest() or "")
        return load(self._file(newest)) if newest else None

    def save(
        self,
        state: Any,
        batches_done: int,
        *,
        parked: Mapping[int, Any] = NOT_PARKED,
        barrier: Callable[[], None] | None = None,
        note: Mapping[str, str] = NO_NOTE,
        others: bool = False,
    ) -> None:
        """Make a checkpoint, together with all other ranks, and remove those before it.

        Args:
            state: of this rank.
            batches_done: names it.
            parked: {identity of a storage that is empty now: its bytes, on the host}.
            barrier: in the place of the usual one.
            note: {name of a file: text} that the first rank adds.
            others: remove this attempt's later ones, too.

        Raises:
            Fenced: the attempt is not the newest; nothing of another one has been touched.
        """
        if batches_done == self._newest:
            return
        self._attempt.check()
        part = os.path.join(self._attempt.path, f"{PREFIX}{batches_done}{PART}")
        try:
            if self._rank == 0 or not self._alike:
                self._write(state, part, parked)
            for name, text in note.items() if self._rank == 0 else ():
                with open(os.path.join(part, name), "w") as file:
                    file.write(text)
            (barrier or self._barrier)()
            if self._rank == 0:
                path = self._attempt.complete(part)
                self._attempt.remove_before(path, others=others)
        except OSError:
            self._attempt.check()  # a newer attempt may have removed what was being written
            raise
        self._newest = batches_done

    def _write(self, state: Any, checkpoint: str, parked: Mapping[int, Any]) -> None:
        os.makedirs(checkpoint, exist_ok=True)
        with open(self._file(checkpoint), "wb") as file:
            save(state, file, parked)
            file.flush()
            os.fsync(file.fileno())

    def _file(self, checkpoint: str) -> str:
        return os.path.join(checkpoint, f"rank-{0 if self._alike else self._rank}")
