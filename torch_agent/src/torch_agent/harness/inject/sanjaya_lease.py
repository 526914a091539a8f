"""Three lines in a training script that let it be taken off its GPUs and go on elsewhere where it was.

    from sanjaya_lease import LeaseIterator

    lease = LeaseIterator(loader, save=save, load=load)   # calls load(path) when an earlier attempt has saved
    for batch in lease:
        ...

`save(path)` and `load(path)` are the script's own, e.g. `torch.save`/`torch.load` of model and optimizer. When the
lease ends (the scheduler stops the task with SIGTERM) the iterator saves between two batches and ends the process
with status 143. The idea is Gavel's `GavelIterator` (OSDI'20, section 6); every process of a task can import this
module, because its folder is on their PYTHONPATH.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from sanjaya_harness import part

B = TypeVar("B")

PREFIX = "lease-"

attempts, gang, leaving = part("attempts"), part("gang"), part("leaving")


class LeaseIterator(Generic[B]):
    """Iterates over batches until they or the lease end.

    Args:
        batches: a DataLoader, or anything that can be iterated over, also several times.
        save: writes a checkpoint to the path that it is given; called on rank 0 alone.
        load: reads one; called on every rank.
        folder: where the checkpoint is kept; default: the job's own, `SANJAYA_CHECKPOINT_DIR`.

    Raises:
        ValueError: the folder is another job's.
        Fenced: there is a newer attempt at the job, as also where it saves; that ends the process (SystemExit).
    """

    def __init__(
        self,
        batches: Iterable[B],
        *,
        save: Callable[[str], Any],
        load: Callable[[str], Any],
        folder: str | None = None,
    ) -> None:
        self._batches, self._save = batches, save
        folder = folder or os.environ.get("SANJAYA_CHECKPOINT_DIR") or "."
        self._attempt = attempts.AttemptFolder(folder, PREFIX)
        self.batches_done = 0
        """Over all attempts."""
        self._resume(load)
        self._leaving = leaving.Leaving()

    def checkpoint(self) -> None:
        """Save now; the script may call it between batches, so that a crash costs less."""
        distributed = gang.group()
        if distributed is not None and distributed.get_rank() != 0:
            return
        self._attempt.check()
        unfinished = os.path.join(self._attempt.path, f"{PREFIX}{self.batches_done}{attempts.PART}")
        try:
            self._save(unfinished)
            self._attempt.remove_before(self._attempt.complete(unfinished), others=True)
        except (OSError, RuntimeError):  # torch.save raises the latter where the folder is gone
            self._attempt.check()  # a newer attempt may have removed what was being written
            raise

    def __iter__(self) -> Iterator[B]:
        iterator = iter(self._batches)
        while not self._leaving.agreed(self.batches_done):
            try:
                with self._leaving.drawing_from(self._batches):
                    batch = next(iterator)
            except StopIteration:
                return
            except RuntimeError:
                if self._leaving.asked:  # the signal has ended the loader's workers, too
                    break
                raise
            yield batch
            self.batches_done += 1
        self.checkpoint()
        gang.barrier()  # no rank ends the task before the checkpoint is complete
        self._leaving.leave()

    def _resume(self, load: Callable[[str], Any]) -> None:
        self._attempt.claim()
        newest = gang.agreed_in_the_store(f"leases/{self._attempt.path}", self._attempt.newest() or "")
        if newest:
            self.batches_done = self._attempt.batches_done(newest)
            load(newest)
