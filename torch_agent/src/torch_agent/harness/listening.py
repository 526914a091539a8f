"""Hooks into torch: listeners are told of optimizer steps, backward passes and requests for batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

UNSCALED = "_sanjaya_unscaled"
"""Attribute of a loss that a gradient scaler has scaled: what it was."""


class TrainingListener(Protocol):
    """Hears of what trains."""

    @property
    def steps(self) -> int:
        """How many it has heard of."""

    def stepped(self, optimizer: Any) -> None:
        """After `optimizer.step()`, or after a gradient scaler has skipped it."""

    def backward(self, loss: Any) -> None:
        """Before `loss.backward()`."""


class LoaderListener(Protocol):
    """Hears of every DataLoader, on whichever thread it is used."""

    def batch_requested(self) -> None:
        """On entry to its `__next__`."""

    def is_exhausted(self) -> bool:
        """Behind that: whether it is to have no batch left."""

    def waits(self, workers: int) -> None:
        """After that, and before the batch is there; so many processes load it, 0: none but this one."""

    def batch_drawn(self, loader: object) -> None:
        """On return from it with a batch; `loader` is the iterator over the DataLoader."""

    def exhausted(self, loader: object) -> None:
        """On return from it without one."""


def listen_to_training(torch: Any, listener: TrainingListener) -> None:
    """From now on, to the end of the process."""
    _hook_optimizers(listener)
    _hook_backward(torch, listener)
    _hook_scalers(torch, listener)


def listen_to_loaders(listener: LoaderListener) -> None:
    """From now on, to the end of the process."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    original = _BaseDataLoaderIter.__next__

    @functools.wraps(original)
    def counted_next(self: Any) -> Any:
        listener.batch_requested()
        if listener.is_exhausted():
            listener.exhausted(self)
            raise StopIteration
        listener.waits(getattr(self, "_num_workers", 0))  # private to torch; as it is in 2.4 to 2.15
        try:
            batch = original(self)
        except StopIteration:
            listener.exhausted(self)
            raise
        listener.batch_drawn(self)
        return batch

    setattr(_BaseDataLoaderIter, original.__name__, counted_next)


def listen_to_saves(torch: Any, saving: Callable[[], None]) -> None:
    """From now on, to the end of the process: told before and after `torch.save`."""
    original = torch.save

    @functools.wraps(original)
    def noted_save(*args: Any, **kwargs: Any) -> Any:
        saving()
        result = original(*args, **kwargs)
        saving()
        return result

    torch.save = torch.serialization.save = noted_save


def _hook_optimizers(listener: TrainingListener) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: listener.stepped(optimizer))


def _hook_backward(torch: Any, listener: TrainingListener) -> None:
    original = torch.Tensor.backward

    @functools.wraps(original)
    def noted_backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        listener.backward(self)
        return original(self, *args, **kwargs)

    setattr(torch.Tensor, original.__name__, noted_backward)


def _hook_scalers(torch: Any, listener: TrainingListener) -> None:
    """A step that a gradient scaler skips (inf or NaN gradients) is an iteration all the same.

    The loss that it has scaled remembers what it was: the scale changes while the script trains.
    """
    scaler = torch.amp.GradScaler
    original = scaler.step
    original_scale = scaler.scale

    @functools.wraps(original_scale)
    def noted_scale(self: Any, outputs: Any) -> Any:
        result = original_scale(self, outputs)
        if result is not outputs and isinstance(outputs, torch.Tensor):
            setattr(result, UNSCALED, outputs.detach())
        return result

    @functools.wraps(original)
    def counted_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = listener.steps
        result = original(self, optimizer, *args, **kwargs)
        if listener.steps == before:
            listener.stepped(optimizer)
        return result

    setattr(scaler, original.__name__, counted_step)
    setattr(scaler, original_scale.__name__, noted_scale)
