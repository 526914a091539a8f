"""Listens to torch: optimizer steps, requests for batches, backward passes, skipped steps of gradient scalers.

At each boundary that follows from them the numbers are left for the agent, and the process stands still if it wants.

Nothing in here may disturb the script: an error of ours ends the counting, not the training.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .counting import Counter
from .parking.storages import skip_what_is_there
from .recorder import Recorder
from .suspending import Suspender

COMMUNICATION_ENDS_S = 0.2
"""Far more than a thread needs to drop a tensor, even on a busy machine."""


class Harness:
    """One per process."""

    def __init__(self, torch: Any, folder: str) -> None:
        self._torch, self._folder = torch, folder
        self.begin()

    def begin(self) -> None:
        """Start counting from nothing: at the start, and in a forked child."""
        self._recorder = Recorder(self._torch, self._folder)
        self._counter = Counter(self._boundary)
        self._suspender: Suspender | None = None
        self._ending = False
        self._training_thread = 0
        self.steps = 0
        self._off = False

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._off:
            return
        try:
            work()
        except Exception as error:
            self._off = True
            print(f"sanjaya: mini-batches are no longer counted: {error!r}", file=sys.stderr)

    def _boundary(self) -> None:
        minibatches, page = self._recorder.boundary()
        if self._ending:
            return
        if self._suspender is None:
            self._suspender = Suspender(self._torch, self._folder)
        if self._suspender.boundary(minibatches, page):
            self._recorder.has_stood_still()

    def stepped(self, optimizer: Any) -> None:
        """After `optimizer.step()`."""
        self.steps += 1
        self._training_thread = threading.get_ident()
        if not self._capturing():
            self._guarded(lambda: self._counter.stepped(id(optimizer)))

    def batch_requested(self) -> None:
        """On entry to a DataLoader's `__next__`."""
        if self._on_training_thread():
            self._guarded(self._counter.batch_requested)

    def batch_drawn(self) -> None:
        """On return from it with a batch."""
        if self._on_training_thread():
            self._counter.batch_drawn()

    def exhausted(self) -> None:
        """On return from it without one."""
        if self._on_training_thread():
            self._counter.exhausted()

    def backward(self, loss: Any) -> None:
        """Before `loss.backward()`."""
        self._training_thread = self._training_thread or threading.get_ident()
        self._counter.backward()
        if loss.numel() == 1:
            self._recorder.last_loss = loss.detach()

    def finish(self) -> None:
        """At the end of the process."""
        self._ending = True
        self._guarded(self._counter.finished)
        self._guarded(self._recorder.finish)
        self._guarded(self._let_communication_end)

    def _let_communication_end(self) -> None:
        """Leave the interpreter to gloo's threads for a moment.

        Such a thread may still hold the tensors of the last collective. If it needs the interpreter to drop them
        when that is already going down, it is unwound by force and C++ aborts the process: a gang that had done
        all its work ends with SIGABRT ("terminate called without an active exception").
        """
        distributed = getattr(self._torch, "distributed", None)
        if distributed is not None and distributed.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            time.sleep(COMMUNICATION_ENDS_S)

    def _on_training_thread(self) -> bool:
        """Before the first step nobody knows; afterwards batches drawn by other threads do not count."""
        return self._training_thread in (0, threading.get_ident())

    def _capturing(self) -> bool:
        """A CUDA graph is being recorded: nothing happens yet."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def install() -> None:
    """Hook into the torch that has just been imported."""
    torch = sys.modules["torch"]
    harness = Harness(torch, os.environ["SANJAYA_HARNESS_DIR"])
    _hook_optimizers(torch, harness)
    _hook_loaders(torch, harness)
    _hook_backward(torch, harness)
    _hook_scalers(torch, harness)
    os.register_at_fork(after_in_child=harness.begin)
    atexit.register(harness.finish)
    skip_what_is_there()


def _hook_optimizers(torch: Any, harness: Harness) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: harness.stepped(optimizer))


def _hook_loaders(torch: Any, harness: Harness) -> None:
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    original = _BaseDataLoaderIter.__next__

    @functools.wraps(original)
    def counted_next(self: Any) -> Any:
        harness.batch_requested()
        try:
            batch = original(self)
        except StopIteration:
            harness.exhausted()
            raise
        harness.batch_drawn()
        return batch

    setattr(_BaseDataLoaderIter, original.__name__, counted_next)


def _hook_backward(torch: Any, harness: Harness) -> None:
    original = torch.Tensor.backward

    @functools.wraps(original)
    def noted_backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        harness.backward(self)
        return original(self, *args, **kwargs)

    setattr(torch.Tensor, original.__name__, noted_backward)


def _hook_scalers(torch: Any, harness: Harness) -> None:
    """A step that a gradient scaler skips (inf or NaN gradients) is an iteration all the same."""
    scaler = torch.amp.GradScaler
    original = scaler.step

    @functools.wraps(original)
    def counted_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = harness.steps
        result = original(self, optimizer, *args, **kwargs)
        if harness.steps == before:
            harness.stepped(optimizer)
        return result

    setattr(scaler, original.__name__, counted_step)
