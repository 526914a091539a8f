"""What a training script says of itself, so that another process can go on with it in the middle of an epoch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from . import hooks
from .best import BestCheckpoint
from .elastic.shards import Shards
from .elastic.virtual import virtual_ranks
from .epochs import followed
from .gang import barrier, from_the_first, group, meet_in_the_store, place
from .gradients import Gradients
from .leaving import Leaving
from .listening import listen_to_training
from .mover import RESTORES
from .moving.checkpoints import Checkpoints
from .moving.drawing import Drawing
from .moving.randomness import Randomness

B = TypeVar("B")


@dataclass
class Position:
    """Where a job is."""

    epochs_done: int = 0
    batches_in_epoch: int = 0
    """Done of the epoch that is under way."""
    batches_done: int = 0
    """Over all epochs and attempts."""
    epoch_began_with: dict[str, Any] | None = None
    """Random numbers when the script was given the epoch; None outside of `Job.epochs`."""
    drawing_began_with: dict[str, Any] | None = None
    """See `Drawing.began_with`; None outside of `Job.batches`."""


class Job:
    """One per process. Make it when the parts are, and when the ranks have met, and have both loops run through it.

    An earlier attempt's state is loaded at once: that which the agent hands over, else the newest checkpoint.

    Args:
        checkpoint_every: batches between two checkpoints; None: only when the task is stopped (SIGTERM).
        folder: where checkpoints are kept; default: the job's own, `SANJAYA_CHECKPOINT_DIR`. Without either there
            are none, and SIGTERM does what it always does.
        elastic: the script runs every batch through `shards`, on each of its processes, so that their number may
            change. They begin with what the first of them has.
        parts: whatever has `state_dict` and `load_state_dict`, and generators of random numbers
            (`torch.Generator`); None stands for a part that this run does without.

    Raises:
        TypeError: a part is none of these; or an elastic Job has a model that exchanges gradients by itself.
        ValueError: the state that was found has other parts; or the Job is to be elastic and has no optimizer, or
            cannot be divided among so many processes; or the folder is another job's.
        Fenced: there is a newer attempt at the job, as also where it saves; that ends the process (SystemExit).
        RuntimeError: the process has a Job.
    """

    def __init__(
        self, *, checkpoint_every: int | None = None, folder: str | None = None, elastic: bool = False, **parts: Any
    ) -> None:
        generators = [part for part in parts.values() if isinstance(part, torch.Generator)]
        self._randomness = Randomness(generators)
        self._parts = {name: part for name, part in parts.items() if _has_state(name, part)}
        self._harness = hooks.current()
        self._shards: Shards | None = None
        if elastic:
            asked = self._harness.is_to_stand_still if self._harness is not None else bool
            parts_alone = list(self._parts.values())
            self._shards = Shards(virtual_ranks(*place()), group(), parts_alone, self._randomness, asked)
        self._position = Position()
        self._resumes_with: dict[str, Any] | None = None
        """Random numbers at the batch where the state was saved; None once it has been reached."""
        self._in_epochs = self._in_batches = False
        self._steps = self._boundaries = 0
        self._gradients = self._harness.gradients if self._harness is not None else _listen()
        folder = folder or os.environ.get("SANJAYA_CHECKPOINT_DIR")
        self._checkpoints = Checkpoints(folder, place()[0], barrier, alike=elastic) if folder else None
        self._epochs = self._harness.epochs if self._harness is not None else followed()
        self._best: BestCheckpoint | None = None
        """Of a job whose losses are followed."""
        if folder and self._epochs is not None:
            self._best = BestCheckpoint(folder, place()[0], barrier, alike=elastic)
        self._checkpoint_every = checkpoint_every
        self._leaving = Leaving()
        self._begin()
        if self._checkpoints is None:
            self._leaving.undo()

    @property
    def batches_done(self) -> int:
        """Over all epochs and attempts."""
        return self._position.batches_done

    @property
    def elastic(self) -> bool:
        """Whether its state may go on in another number of processes."""
        return self._shards is not None

    def epochs(self, epochs: int | range) -> Iterator[int]:
        """The epochs that are left, of so many or of these. The script has one such loop.

        Raises:
            RuntimeError: this is the second.
        """
        if self._in_epochs:
            raise RuntimeError("sanjaya: a Job has one loop over its epochs")
        self._in_epochs = True
        every = range(epochs) if isinstance(epochs, int) else epochs
        for epoch in every[self._position.epochs_done :]:
            self._begin_epoch()
            yield epoch
            self._end_epoch()

    def batches(self, batches: Iterable[B]) -> Iterator[B]:
        """The batches that are left of this epoch. A batch is done when the next one is asked for.

        Args:
            batches: a DataLoader, or anything that is iterated over once per epoch.

        Raises:
            RuntimeError: a second such loop in the same epoch; or there are fewer batches than were done.
        """
        if self._in_batches:
            raise RuntimeError("sanjaya: an epoch has one loop over its batches, and epochs come from Job.epochs")
        self._in_batches = True
        self._randomness.include(getattr(batches, "generator", None))
        drawing = self._drawing(batches)
        while True:
            self._boundary()
            try:
                batch = self._draw(drawing)
            except StopIteration:
                return
            yield batch
            self._position.batches_in_epoch += 1
            self._position.batches_done += 1

    def shards(self, batch: Any) -> Iterator[Any]:
        """This process's parts of a batch that all of them have drawn. Call `backward` on the mean loss of each.

        After the last one every parameter has the gradient of the whole batch, to the same bits on any number of
        processes; call `optimizer.step()` then.

        Args:
            batch: a tensor, or tuples, lists and dicts of tensors, with the samples along the first dimension.

        Raises:
            RuntimeError: the Job is not elastic; or the parts of the batch before were not all used.
            ValueError: it cannot be split.
        """
        return self._elastic_shards.of(batch)

    def mean(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Of something over the whole batch, e.g. the loss, from one value for each part that this process has run.

        Raises:
            RuntimeError: the Job is not elastic.
        """
        return self._elastic_shards.mean(values)

    @property
    def _elastic_shards(self) -> Shards:
        if self._shards is None:
            raise RuntimeError("sanjaya: shards are for a Job(elastic=True, ...)")
        return self._shards

    def state(self) -> dict[str, Any]:
        """All that the job is, at a boundary; tensors are the parts' own, not copies."""
        return {
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "position": vars(self._position).copy(),
            "randomness": self._randomness.capture(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become the job that had this state, which is on the host.

        Raises:
            ValueError: it has other parts.
        """
        if state["parts"].keys() != self._parts.keys():
            raise ValueError(f"sanjaya: the state is of {sorted(state['parts'])}, the Job of {sorted(self._parts)}")
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self._position = Position(**state["position"])
        self._resumes_with = state["randomness"]

    def save(self) -> None:
        """Make a checkpoint at this boundary."""
        if self._checkpoints is not None:
            self._checkpoints.save(self.state(), self.batches_done)
            self._checkpointed_at = self.batches_done

    def keep(self, state: Any, parked: Mapping[int, Any]) -> None:
        """Make a checkpoint of a state that was taken here, while the process stands still and is about to end.

        Args:
            state: as `state` had it; its tensors may be empty.
            parked: {identity of a storage that is empty now: its bytes, on the host}.
        """
        if self._checkpoints is not None:
            met = f"checkpoint/{self.batches_done}"
            self._checkpoints.save(state, self.batches_done, parked=parked, barrier=lambda: meet_in_the_store(met))

    def _begin(self) -> None:
        if self._harness is not None:
            handed_over = self._harness.register(self, self._leaving)
        elif RESTORES in os.environ:
            raise SystemExit("sanjaya: without the harness this job cannot take over a state")
        else:
            handed_over = False
        # Not earlier: until this process goes on, a move may be given up, and the attempt that it would replace trains.
        for checkpoints in (self._checkpoints, self._best):
            if checkpoints is not None:
                checkpoints.claim()
        if self._checkpoints is not None and not handed_over:
            saved = self._checkpoints.load()
            if saved is not None:
                self.restore(saved)
        if self.elastic and self._resumes_with is None:
            self._begin_alike()
        self._checkpointed_at = self.batches_done

    def _begin_alike(self) -> None:
        """With the parts and the random numbers of the first process, e.g. where the script sets no seed."""
        own = self.state()
        first = from_the_first(own)
        if first is not own:
            for name, part in self._parts.items():
                part.load_state_dict(first["parts"][name])
            self._randomness.restore(first["randomness"])

    def _begin_epoch(self) -> None:
        """The script may draw random numbers, e.g. an order, before it asks for batches: the same ones again."""
        position = self._position
        if self._epochs is not None:
            self._epochs.done = position.epochs_done
        if self._resumes_with is not None and position.epoch_began_with is not None:
            self._randomness.restore(position.epoch_began_with)
        else:
            position.epoch_began_with = self._randomness.capture()

    def _end_epoch(self) -> None:
        self._position = Position(epochs_done=self._position.epochs_done + 1, batches_done=self.batches_done)
        self._resumes_with, self._in_batches = None, False
        if self._best is not None and self._epochs is not None:
            self._best.keep(self.state, self.batches_done, self._epochs.latest())

    def _drawing(self, batches: Iterable[B]) -> Drawing[B]:
        """At the batch after those that are done."""
        position = self._position
        drawing = Drawing(batches, self._randomness, position.drawing_began_with, renewed=self._leaving.asked)
        if self._resumes_with is not None:
            drawing.drop(position.batches_in_epoch, self._resumes_with)
            self._resumes_with = None
        position.drawing_began_with = drawing.began_with
        return drawing

    def _draw(self, drawing: Drawing[B]) -> B:
        """The next batch; raises StopIteration when there is none."""
        if not drawing.renewed:
            try:
                with self._leaving.drawing_from(drawing.batches):
                    return drawing.draw()
            except StopIteration:
                raise
            except Exception:
                if not self._leaving.asked:
                    raise
            # The signal has ended the loader's workers, too. A lone process leaves at once, unless gradients are being
            # accumulated. The ranks of a gang leave together where they all look whether to; until then each needs
            # batches.
            if group() is None:
                self._boundary()
            drawing.renew(self._position.batches_in_epoch)
        return drawing.draw()

    def _boundary(self) -> None:
        """Between two batches: nothing is under way, unless gradients wait for a step."""
        if self._gradients.outstanding:
            return
        if self._gradients.steps != self._steps:
            self._steps = self._gradients.steps
            self._boundaries += 1
        if self._harness is not None:
            self._harness.job_boundary(self._boundaries, self._shards.agreed() if self._shards is not None else None)
        if self._checkpoints is not None:
            self._save_if_due(self._checkpoints)

    def _save_if_due(self, checkpoints: Checkpoints) -> None:
        leaves = self._leaving.agreed(self._boundaries)
        due = self._checkpoint_every and self.batches_done >= self._checkpointed_at + self._checkpoint_every
        if leaves or due:
            checkpoints.save(self.state(), self.batches_done)
            self._checkpointed_at = self.batches_done
        if leaves:
            barrier()  # no rank ends the task before the checkpoint is complete
            self._leaving.leave()


def _has_state(name: str, part: Any) -> bool:
    if part is None or isinstance(part, torch.Generator):
        return False
    if not hasattr(part, "state_dict") or not hasattr(part, "load_state_dict"):
        raise TypeError(f"sanjaya: {name} has no state_dict and load_state_dict")
    return True


def _listen() -> Gradients:
    """To what trains, where no harness does."""
    gradients = Gradients()
    listen_to_training(torch, gradients)
    return gradients
