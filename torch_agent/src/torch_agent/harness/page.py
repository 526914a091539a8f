"""A page of shared memory per process: the training process writes, the agent reads (pages.py), neither waits.

One file in the task's folder, of the layout of its version. The writer makes the sequence number odd, writes, and makes
it even; a reader that sees an odd or a changed number looks again, with pauses, since a writer that was interrupted in
the middle needs the processor to go on.

A running process keeps this code when the agent is replaced: whatever changes in the layout below is a new version,
and one more row in layouts.py. The head and the sequence number stay where they are in all versions.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import astuple, dataclass

MAGIC, VERSION = b"SJHP", 7
SIZE = 4096
HEAD = struct.Struct("<4sI")
SEQUENCE = struct.Struct("<Q")
SEQUENCE_AT = 8
BODY = struct.Struct("<IiiIQdddQQ")
BODY_AT = 16
ACKNOWLEDGED = struct.Struct("<QQQddd")
ACKNOWLEDGED_AT = 512
HANDOVER = struct.Struct("<???Q?iQdd?")
HANDOVER_AT = 1024
MEETING = struct.Struct("<I")
MEETING_AT = 2048
RHYTHM = struct.Struct("<dI")
RHYTHM_AT = 2560
SIGNS = struct.Struct("<Q")
SIGNS_AT = 3072
MEMORY = struct.Struct("<QQQQQQ")
MEMORY_AT = 3200
GATE = struct.Struct("<QdddQ")
GATE_AT = 3584


@dataclass(frozen=True)
class Acknowledged:
    """Which of the agent's turns (see control.py) the process has acknowledged last, and what it took."""

    turn: int = 0
    bytes_parked: int = 0
    """Of the device's memory, now on the host."""
    bytes_left: int = 0
    """Still on the device."""
    park_s: float = 0.0
    unpark_s: float = 0.0
    parked_at_s: float = 0.0
    """Seconds since the epoch: when the boundary was reached."""


@dataclass(frozen=True)
class Handover:
    """How far the process is with handing its job over to another process, or with taking one over."""

    movable: bool = False
    """Its script has a Job."""
    ready: bool = False
    """It waits for the state that it is to take over."""
    restored: bool = False
    """It has taken it over."""
    saved: int = 0
    """Number of the last request to save that was answered (see control.py)."""
    save_failed: bool = False
    """The answer was that it cannot be done; stderr says why."""
    save_fd: int = -1
    """Descriptor, in this process, of the file in memory that has the saved state; -1: there is none."""
    save_bytes: int = 0
    save_s: float = 0.0
    """How long saving took."""
    load_s: float = 0.0
    """How long taking over took, from when the state was there."""
    resizable: bool = False
    """Its Job is elastic: the state is that of any number of processes."""


@dataclass(frozen=True)
class Memory:
    """Where the process's memory is, and which limit it keeps to (AntMan, OSDI'20, section 3.1.1)."""

    applied: int = 0
    """Number of the last change of what the task may have (see control.py) that is applied; 0: none is."""
    device_bytes: int = 0
    """On the device, cached blocks included."""
    cached_bytes: int = 0
    """Of these, in blocks that are free."""
    host_bytes: int = 0
    """On the host, because they do not fit."""
    minibatch_host_bytes: int = 0
    """The most that lay there during the last whole mini-batch."""
    demand_bytes: int = 0
    """The most that was in use during it, wherever it lay."""


@dataclass(frozen=True)
class Gate:
    """How the process has been held up between groups of operations (AntMan, OSDI'20, section 3.1.2)."""

    gates: int = 0
    """Passed so far."""
    spacing_p99_s: float = 0.0
    """Time between two gates that 99 of 100 have kept to."""
    closed_s: float = 0.0
    """Waited at gates so far."""
    last_minibatch_s: float = 0.0
    """How long the last whole mini-batch took."""
    closed_minibatches: int = 0
    """Of an owner: those during which no guest had its gate open."""


@dataclass(frozen=True)
class PageReading:
    """What one rank had done at one moment."""

    pid: int
    rank: int
    world_size: int
    minibatches_total: int
    last_boundary_s: float
    """Seconds since the epoch; 0 before the first boundary."""
    minibatch_mean_s: float
    """Smoothed time from boundary to boundary."""
    loss: float | None
    memory_peak_bytes: int
    memory_min_bytes: int
    acknowledged: Acknowledged = Acknowledged()
    handover: Handover = Handover()
    listens: bool = True
    """Its harness looks at what the agent wants; the first one did not."""
    group_size: int = 0
    """Ranks of its process group; 1: it has none so far, 0: the harness has not said."""
    p99_s: float = 0.0
    """Seconds that 99 of 100 mini-batches have kept to; 0: there were none, or the harness does not say."""
    nonfinite: int = 0
    """Losses in a row, up to the newest one, that are NaN or infinite."""
    signs: int = 0
    """Counts what shows that the script goes on between mini-batches: batches, backward passes, files saved."""
    memory: Memory | None = None
    """None: its harness knows no limits."""
    gate: Gate | None = None
    """None: its harness has no gates."""


class PageWriter:
    """The training process's side. About half a microsecond per write."""

    def __init__(self, folder: str, rank: int, world_size: int) -> None:
        self.pid = os.getpid()
        self.rank = rank
        self._world_size = world_size
        path = os.path.join(folder, f"rank-{rank}-{self.pid}.page")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, SIZE)
            self._page = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self._sequence = 0
        HEAD.pack_into(self._page, 0, MAGIC, VERSION)
        HANDOVER.pack_into(self._page, HANDOVER_AT, *astuple(Handover()))

    def write(
        self,
        minibatches_total: int,
        last_boundary_s: float,
        minibatch_mean_s: float,
        loss: float,
        memory_peak_bytes: int,
        memory_min_bytes: int,
    ) -> None:
        """Publish a boundary; `loss` is NaN while none is known."""
        self._put(
            BODY,
            BODY_AT,
            self.pid,
            self.rank,
            self._world_size,
            0,
            minibatches_total,
            last_boundary_s,
            minibatch_mean_s,
            loss,
            memory_peak_bytes,
            memory_min_bytes,
        )

    def acknowledged(self, what: Acknowledged) -> None:
        """Publish that a turn has been acknowledged."""
        self._put(ACKNOWLEDGED, ACKNOWLEDGED_AT, *astuple(what))

    def handover(self, what: Handover) -> None:
        """Publish how far a move is."""
        self._put(HANDOVER, HANDOVER_AT, *astuple(what))

    def met(self, group_size: int) -> None:
        """Publish how many ranks have met; 1: this one has met no other."""
        self._put(MEETING, MEETING_AT, group_size)

    def rhythm(self, p99_s: float, nonfinite: int) -> None:
        """Publish how long mini-batches take, and how many of the newest losses are no finite numbers."""
        self._put(RHYTHM, RHYTHM_AT, p99_s, nonfinite)

    def memory(self, what: Memory) -> None:
        """Publish where the memory is."""
        self._put(MEMORY, MEMORY_AT, *astuple(what))

    def gate(
        self,
        gates: int,
        spacing_p99_s: float,
        closed_s: float,
        last_minibatch_s: float,
        closed_minibatches: int,
    ) -> None:
        """Publish what gates have cost (see Gate): at each boundary, hence the values alone."""
        self._put(GATE, GATE_AT, gates, spacing_p99_s, closed_s, last_minibatch_s, closed_minibatches)

    def sign(self, number: int) -> None:
        """Publish that the script goes on; from any thread, hence one aligned word without a sequence number."""
        SIGNS.pack_into(self._page, SIGNS_AT, number)

    def _put(self, layout: struct.Struct, at: int, *values: float) -> None:
        page = self._page
        SEQUENCE.pack_into(page, SEQUENCE_AT, self._sequence + 1)
        layout.pack_into(page, at, *values)
        self._sequence += 2
        SEQUENCE.pack_into(page, SEQUENCE_AT, self._sequence)
