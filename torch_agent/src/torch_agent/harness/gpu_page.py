"""A page of memory per GPU of a node: what its owner does just now, for the guests beside it (AntMan, section 3.1.2).

One small file per GPU in the agent's state folder, mapped by all processes of the tasks on that GPU, which find it
under a name of their own in the folder of their pages (a hard link, so that a container sees it, too).

    owner's processes ──waiting or not, until when; silent after──> guests' gates
    agent ──how many guests may pass outside of gaps──> owner's processes, which count undisturbed mini-batches

Every value is eight aligned bytes with one writer at a time, written and read at once. Times are CLOCK_MONOTONIC's: a
file that was left by an earlier life of the machine has times that are over or far away, and both count as silence. So
no guest waits for an owner that has died, whatever is on the page.

A running process keeps this code when the agent is replaced: a change of the layout is a new version. The head stays.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

from .futex import Futex
from .gang import local_place
from .versions import UnknownVersion, Unreadable

MAGIC, VERSION = b"SJGP", 1
SIZE = 4096
HEAD = struct.Struct("<4sI")
OWNER_PID, WAITING, WAITING_UNTIL, SILENT_AFTER, OPEN, OPENED, BELL, ASLEEP, WAITING_FROM = range(2, 11)
"""Where the values are, in units of eight bytes."""
LINK = "gpu-"
"""Name of a page in the folder of a task's pages, before the place of the GPU among the task's."""
IDLE_S = 0.05
"""An owner that has launched nothing for so long counts as waiting."""
FAR_S = 60.0
"""An owner that promises to be busy for longer than this does not: the value is from another life of the machine."""
STALE_S = 1.0
"""A guest that has not looked for so long does not sleep at the bell."""
SHORTEST_SLEEP_S = 1e-4
SHORTEST_GAP_S = 0.0005
"""No guest begins anything in a shorter gap. So none is woken for one: it would look, for some 0.1 ms of the owner's
processor, and sleep on."""


class GpuPage:
    """The page of one GPU, mapped."""

    def __init__(self, path: Path | str) -> None:
        """Map the file.

        Raises:
            Unreadable: it is no page of a GPU, or one of a newer version.
            OSError: it is not there, or not to be written.
        """
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size != SIZE:
                raise Unreadable(f"{path}: {size} bytes; expected a page of a GPU, of {SIZE}")
            self._memory = mmap.mmap(file.fileno(), SIZE)
        magic, version = HEAD.unpack_from(self._memory)
        if magic != MAGIC:
            raise Unreadable(f"{path}: begins with {magic!r}; expected a page of a GPU, {MAGIC!r}")
        if version != VERSION:
            raise UnknownVersion(path, "a page of a GPU", version, (VERSION,))
        self._numbers = memoryview(self._memory).cast("Q")
        self._times = memoryview(self._memory).cast("d")
        self._bell = Futex(self._memory, BELL * 8)

    # The owner's side.

    def busy(self, until_s: float) -> None:
        """The owner computes; when it has not been heard of until then, it counts as waiting."""
        self._times[SILENT_AFTER] = until_s
        if self._numbers[WAITING]:
            self._numbers[WAITING] = 0

    def wait_for_data(self, now_s: float, until_s: float, silent_s: float = IDLE_S, from_s: float = 0.0) -> None:
        """The owner waits for its next batch, presumably until then; guests are woken if that is long enough.

        Args:
            silent_s: when it has not been heard of for so long after that, it counts as waiting for longer.
            from_s: the GPU works for the owner until then; harnesses that are older say nothing of that.
        """
        times = self._times
        times[WAITING_FROM] = from_s
        times[WAITING_UNTIL] = until_s
        times[SILENT_AFTER] = until_s + silent_s
        self._numbers[WAITING] = 1
        if until_s - max(now_s, from_s) > SHORTEST_GAP_S and now_s - times[ASLEEP] < STALE_S:
            self._bell.ring()

    def own(self, pid: int) -> None:
        """This process is the owner's, or one of them."""
        self._numbers[OWNER_PID] = pid

    @property
    def open(self) -> int:
        """How many guests may pass their gates outside of gaps."""
        return self._numbers[OPEN]

    @property
    def guests(self) -> tuple[int, int]:
        """How many may pass their gates outside of gaps, and how often that has become more than none."""
        return self._numbers[OPEN], self._numbers[OPENED]

    # The guests' side.

    def gap_s(self, now_s: float) -> float:
        """For how long the owner is expected to leave the GPU alone.

        0: it computes, or is about to; infinite: there is none, or it has launched nothing for too long.
        """
        if not self._numbers[OWNER_PID]:
            return float("inf")
        times = self._times
        silent_after_s = times[SILENT_AFTER]
        if not now_s <= silent_after_s <= now_s + FAR_S:
            return float("inf")
        # A beginning later than the silence was left by another owner: this one's harness is older and writes none.
        if not self._numbers[WAITING] or now_s < times[WAITING_FROM] <= silent_after_s:
            return 0.0
        return max(0.0, times[WAITING_UNTIL] - now_s)

    def listen(self, now_s: float) -> int:
        """To be called before the last look at the page ahead of `sleep`, which takes what is returned.

        So a change between the two is not slept through.
        """
        self._times[ASLEEP] = now_s
        return self._bell.value

    def sleep(self, bell: int, now_s: float, longest_s: float) -> bool:
        """Wait until guests are woken, the owner has been silent, or so long. Returns whether they were woken."""
        if self._numbers[OWNER_PID]:
            silent_s = self._times[SILENT_AFTER] - now_s
            longest_s = min(longest_s, max(silent_s, 0.0) + SHORTEST_SLEEP_S)
            if self._numbers[WAITING] and (begins_s := self._times[WAITING_FROM] - now_s) > 0.0:
                longest_s = min(longest_s, begins_s)
        self._bell.wait(bell, longest_s)
        return self._bell.value != bell

    # The agent's side.

    @property
    def is_whole(self) -> bool:
        """Whether it can be touched: a process that looks at a page behind the end of its file is killed (SIGBUS).

        It costs as much as a gate, so processes that train do not ask; a task that shortens the file of its GPU may
        end the processes beside it, as any process of the same user may.
        """
        return self._memory.size() == SIZE

    def allow(self, guests: int) -> None:
        """So many guests may pass their gates outside of gaps from now on."""
        if guests and not self._numbers[OPEN]:
            self._numbers[OPENED] = (self._numbers[OPENED] + 1) % (1 << 64)
        self._numbers[OPEN] = guests

    def ring(self) -> None:
        """Have guests that sleep look again: what they may have has changed."""
        self._bell.ring()

    @property
    def owner_pid(self) -> int:
        """Process number of an owner's process; 0: there is none."""
        return self._numbers[OWNER_PID]

    def clear(self) -> None:
        """No process of an owner is left."""
        self._numbers[OWNER_PID] = self._numbers[WAITING] = 0
        self._times[WAITING_FROM] = 0.0
        self._bell.ring()


def create(path: Path) -> None:
    """Make a page, unless there is one that this code can read.

    Raises:
        UnknownVersion: code that is newer has made one, which stays as it is.
    """
    try:
        GpuPage(path)
        return
    except UnknownVersion:
        raise
    except (OSError, Unreadable):
        pass
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_suffix(".part")
    part.write_bytes(HEAD.pack(MAGIC, VERSION).ljust(SIZE, b"\0"))
    part.chmod(0o600)
    part.rename(path)


def mend(path: Path) -> None:
    """Give a page of which a task has changed the size its size and its head again, where it is mapped.

    Raises:
        OSError: it is gone.
    """
    with open(path, "r+b", buffering=0) as file:
        file.truncate(SIZE)
        file.write(HEAD.pack(MAGIC, VERSION))


def now_s() -> float:
    """The clock of the page."""
    return time.monotonic()


def own_pages(folder: str) -> list[str]:
    """Paths of the pages of the GPUs that this process uses: the one of its local rank, or all of its task's."""
    names = sorted(name for name in os.listdir(folder) if name.startswith(LINK))
    own = f"{LINK}{local_place()}"
    return [os.path.join(folder, name) for name in ([own] if own in names else names)]
