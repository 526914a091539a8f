"""Follows what a script does with torch (see listening.py).

At each boundary that follows from it the numbers are left for the agent, and the process stands still if it wants. A
script with a Job (see job.py) stands still where the Job could go on elsewhere, and only there.

Nothing in here may disturb the script: an error of ours ends the counting, not the training.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .counting import Counter
from .epochs import EpochLosses, followed
from .gate.compute import Compute
from .gradients import Gradients
from .leaving import Leaving
from .listening import UNSCALED, listen_to_loaders, listen_to_saves, listen_to_training
from .memory.device import DeviceMemory
from .memory.limiting import Limiter, device_memory
from .mover import RESTORES, Movable, Mover
from .parking.storages import skip_what_is_there
from .recorder import Recorder
from .suspending import Suspender
from .trial import TRIAL
from .versions import Unreadable

COMMUNICATION_ENDS_S = 0.2
"""Far more than a thread needs to drop a tensor, even on a busy machine."""


class Harness:
    """One per process."""

    def __init__(self, torch: Any, folder: str) -> None:
        self._torch, self._folder = torch, folder
        self._memory: DeviceMemory | None = None
        """None where no limit can be set to it."""
        self._compute: Compute | None = None
        """None where the process takes no part in the sharing of a GPU's time."""
        self.begin()

    def begin(self) -> None:
        """Start counting from nothing."""
        self._recorder = Recorder(self._torch, self._folder)
        self._counter = Counter(self._boundary)
        self._suspender: Suspender | None = None
        self._limiter: Limiter | None = None
        self._ending = False
        self._training_thread = 0
        self.gradients = Gradients()
        self.epochs = followed()
        """None where the losses of epochs are not asked for."""
        self._has_job = False
        self._trial = TRIAL
        """None where the process is no trial."""
        self._off = False

    def share_gpu(self) -> None:
        """Take part in the sharing of the GPU's time."""
        self._compute = Compute(self._torch, self._folder, self._suspending().control)

    def forked(self) -> None:
        """In a forked child: count from nothing."""
        self.begin()
        if self._compute is not None:
            self._compute.forked()

    @property
    def steps(self) -> int:
        """Of all optimizers."""
        return self.gradients.steps

    def limit_memory(self) -> None:
        """Keep to the limit of the task from its start; a child of a fork keeps to it from its first boundary on."""
        self._guarded(self._begin_limiting)

    def register(self, job: Movable, leaving: Leaving) -> bool:
        """The script has a Job: it may hand over its state, and does take one over if this process is there for that.

        Returns:
            Whether it has.

        Raises:
            RuntimeError: it has one already.
            SystemExit: the state cannot be taken over, or the process was asked to leave before.
        """
        if self._has_job:
            raise RuntimeError("sanjaya: a process has one Job")
        self._has_job = True
        suspender, page = self._suspending(), self._recorder.page
        suspender.mover = mover = Mover(job, suspender.control, page, leaving)
        if self._trial is not None and job.elastic:
            self._trial.when_done = job.save
        folder = os.environ.get(RESTORES)
        if not folder:
            return False
        mover.take_over(folder)
        suspender.stand_by(page, leaving)
        return True

    def job_boundary(self, number: int, agreed: bool | None) -> None:
        """The Job's next batch is about to be drawn, and no gradients wait for a step.

        Args:
            number: of such boundaries with steps between them.
            agreed: whether the ranks have agreed to stand still here; None: they have not been asked.
        """
        self.batch_requested()
        if (trial := self._trial) is not None:
            self._guarded(lambda: trial.has_done(number))
        self._guarded(lambda: self._stand_still_if_asked(number, agreed))

    def is_to_stand_still(self) -> bool:
        """Whether the agent has asked for that, and the process has not come to it."""
        return not self._off and self._suspending().pending

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._off:
            return
        try:
            work()
        except Exception as error:
            self._off = True
            print(f"sanjaya: mini-batches are no longer counted: {error!r}", file=sys.stderr)

    def _boundary(self) -> None:
        minibatches = self._recorder.boundary()
        if self._memory is not None and not self._ending:
            self._recorder.needed(self._limiting(self._memory).boundary(self._recorder.page))
        if self._compute is not None:
            self._compute.boundary(self._recorder.page)
        if self._ending or self._has_job:
            return
        if self._trial is not None:
            self._trial.boundary()
        if os.environ.get(RESTORES):
            raise SystemExit("sanjaya: this process is to take over a state, and trains without a Job")
        self._stand_still_if_asked(minibatches)

    def _stand_still_if_asked(self, number: int, agreed: bool | None = None) -> None:
        if self._suspending().boundary(number, self._recorder.page, agreed):
            self._recorder.has_stood_still()
            if self._compute is not None:
                self._compute.move()

    def _begin_limiting(self) -> None:
        self._memory = device_memory(self._torch)
        if self._memory is not None:
            self._limiting(self._memory).begin()

    def _limiting(self, memory: DeviceMemory) -> Limiter:
        if self._limiter is None:
            self._limiter = Limiter(self._suspending().control, memory)
        return self._limiter

    def _suspending(self) -> Suspender:
        if self._suspender is None:
            self._suspender = Suspender(self._torch, self._folder)
        return self._suspender

    def stepped(self, optimizer: Any) -> None:
        """After `optimizer.step()`."""
        self.gradients.stepped(optimizer)
        self._training_thread = threading.get_ident()
        if not self._capturing():
            self._guarded(lambda: self._counter.stepped(id(optimizer)))
        if self._compute is not None:
            self._compute.goes_on()

    def batch_requested(self) -> None:
        """On entry to a DataLoader's `__next__`."""
        self._recorder.sign()
        if self._on_training_thread():
            self._guarded(self._counter.batch_requested)

    def is_exhausted(self) -> bool:
        """Behind that: whether the DataLoader is to have no batch left, because the process is a trial that is over."""
        trial = self._trial
        return (
            trial is not None
            and not self._ending
            and not trial.is_validating
            and self._on_training_thread()
            and trial.batch_requested()
        )

    def waits(self, workers: int) -> None:
        """Before the DataLoader gives a batch."""
        if self._compute is not None and self._on_training_thread():
            self._compute.waits(workers)

    def batch_drawn(self, loader: object) -> None:
        """On return from it with a batch."""
        self._recorder.sign()
        if self._on_training_thread():
            self._counter.batch_drawn()
            if self.epochs is not None:
                self.epochs.drawn(loader)
            if self._compute is not None:
                self._compute.computes()

    def exhausted(self, loader: object) -> None:
        """On return from it without one."""
        self._recorder.sign()
        if self._on_training_thread():
            self._counter.exhausted()
            if self.epochs is not None:
                self.epochs.exhausted(loader)
            if self._compute is not None:
                self._compute.computes()

    def backward(self, loss: Any) -> None:
        """Before `loss.backward()`."""
        self._recorder.sign()
        self._training_thread = self._training_thread or threading.get_ident()
        self.gradients.backward(loss)
        self._counter.backward()
        if self._compute is not None:
            self._compute.goes_on()
        if loss.numel() == 1:
            self._recorder.last_loss = detached = getattr(loss, UNSCALED, loss).detach()
            if self.epochs is not None and not self._capturing():
                self._note_epoch(lambda epochs: epochs.backward(detached))

    def _note_epoch(self, note: Callable[[EpochLosses], None]) -> None:
        """An error of ours ends the losses of epochs, not the training."""
        if self.epochs is None:
            return
        try:
            note(self.epochs)
        except Exception as error:
            self.epochs = None
            print(f"sanjaya: the losses of epochs are no longer followed: {error!r}", file=sys.stderr)

    def saving(self) -> None:
        """Before and after `torch.save`."""
        self._recorder.sign()

    def finish(self) -> None:
        """At the end of the process."""
        self._ending = True
        self._guarded(self._counter.finished)
        self._guarded(self._recorder.finish)
        self._note_epoch(EpochLosses.tell)
        if self._compute is not None:
            self._compute.ends()
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
        """Before the first step it is unknown; afterwards batches drawn by other threads do not count."""
        return self._training_thread in (0, threading.get_ident())

    def _capturing(self) -> bool:
        """A CUDA graph is being recorded: nothing happens yet."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


_harness: Harness | None = None


def current() -> Harness | None:
    """This process's; None where nothing is counted."""
    return _harness


def install() -> None:
    """Hook into the torch that has just been imported."""
    global _harness
    torch = sys.modules["torch"]
    harness = Harness(torch, os.environ["SANJAYA_HARNESS_DIR"])
    listen_to_training(torch, harness)
    listen_to_loaders(harness)
    listen_to_saves(torch, harness.saving)
    os.register_at_fork(after_in_child=harness.forked)
    atexit.register(harness.finish)
    harness.limit_memory()
    skip_what_is_there()
    _harness = harness
    try:
        harness.share_gpu()
    except (Unreadable, OSError) as error:
        print(f"sanjaya: this process takes no part in the sharing of its GPU: {error}", file=sys.stderr)
