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

PREFIX, PART = "lease-", ".part"

gang, leaving = part("gang"), part("leaving")


class LeaseIterator(Generic[B]):
    """Iterates over batches until they or the lease end.

    Args:
        batches: a DataLoader, or anything that can be iterated over, also several times.
        save: writes a checkpoint to the path that it is given; called on rank 0 alone.
        load: reads one; called on every rank.
        folder: where the checkpoint is kept; default: the job's own, `SANJAYA_CHECKPOINT_DIR`.
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
        self._folder = folder or os.environ.get("SANJAYA_CHECKPOINT_DIR") or "."
        self.batches_done = 0
        """Over all attempts."""
        self._resume(load)
        self._leaving = leaving.Leaving()

    def checkpoint(self) -> None:
        """Save now; the script may call it between batches, so that a crash costs less."""
        distributed = gang.group()
        if distributed is not None and distributed.get_rank() != 0:
            return
        older = self._saved()
        path = os.path.join(self._folder, f"{PREFIX}{self.batches_done}")
        self._save(path + PART)
        os.replace(path + PART, path)
        for batches_done in older:
            if batches_done != self.batches_done:
                os.remove(os.path.join(self._folder, f"{PREFIX}{batches_done}"))

    def _saved(self) -> list[int]:
        """Batches done at each complete checkpoint, ascending; more than one only after a crash."""
        names = [name for name in os.listdir(self._folder) if name.startswith(PREFIX) and not name.endswith(PART)]
        return sorted(int(name.removeprefix(PREFIX)) for name in names)

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
        saved = self._saved()
        if saved:
            self.batches_done = saved[-1]
            load(os.path.join(self._folder, f"{PREFIX}{self.batches_done}"))
